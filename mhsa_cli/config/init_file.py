"""The file of initial weights that train.init names, beside the config or here; it is not read for its tensors."""

from __future__ import annotations

import os
from pathlib import Path

from mhsa_cli.config.own_file import Problem
from mhsa_cli.config.problems import clip
from mhsa_cli.config.recipes import installed
from mhsa_cli.text import byte_size

PICKLES = (".pt", ".pth", ".bin", ".pkl", ".pickle", ".ckpt")
LARGEST = 2**30  # bytes
_STATE = "{n: t.contiguous() for n, t in model.state_dict().items()}"
HOW_TO_SAVE = f"safetensors.torch.save_file({_STATE}, 'FILE.safetensors')"


def located(path: str) -> str:
    """Return the path to open: `path` itself, or where there is none the file installed with the recipes."""
    return path if os.path.lexists(path) else str(installed(path) or path)


def problem(path: str) -> Problem | None:
    """Return what is wrong with a file of weights, by its name, kind and size."""
    file, shown = Path(located(path)), clip(path)
    if file.suffix.lower() in PICKLES:
        message = f"found `{shown}`, a pickle, which runs code when it is loaded; wanted FILE.safetensors"
        return Problem("init", message, f"load it yourself, then {HOW_TO_SAVE}")
    try:
        if not file.is_file():
            return Problem("init", f"`{shown}` is not a file", "the path is relative to the working directory")
        if file.stat().st_size > LARGEST:
            return Problem("init", f"`{shown}` is larger than {byte_size(LARGEST)}")
    except (OSError, ValueError) as error:
        return Problem("init", f"`{shown}` cannot be read: {error}")
    return None
