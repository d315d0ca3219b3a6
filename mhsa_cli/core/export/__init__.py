"""A run in the formats of other programs: one entry a format. Each turns a run's data into files, name to bytes.

A format that is one file calls it "": its name is the caller's. Only the formats that need the model import torch.
"""

from __future__ import annotations

import importlib

from mhsa_cli.core.export.source import Files, Source

# The module of a format, which is imported when it is asked for, and its function.
EXPORTS = {
    "npz": ("npz", "to_npz"),
    "csv": ("plain", "to_csv"),
    "json": ("plain", "to_json"),
    "transformer-lens": ("transformer_lens", "to_transformer_lens"),
    "tensorboard": ("tensorboard", "to_tensorboard"),
}
SINGLE = {"npz": ".npz", "json": ".json"}  # formats that are one file, and its ending; the others are a folder


def exported(run: Source, to: str) -> Files:
    """Write a run in one of the formats of EXPORTS."""
    module, function = EXPORTS[to]
    files: Files = getattr(importlib.import_module(f"{__name__}.{module}"), function)(run)
    return files
