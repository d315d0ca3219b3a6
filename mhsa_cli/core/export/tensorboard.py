"""TensorBoard logs: loss curves, head scores over training, and attention maps as images."""

from __future__ import annotations

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from mhsa_cli.core.export import Files, Source, flat, heads_of
from mhsa_cli.errors import UsageError

CURVES = {
    "step": {"loss": "train/loss", "accuracy": "train/accuracy", "lr": "train/lr"},
    "eval": {"loss": "eval/loss", "accuracy": "eval/accuracy"},
}
PIXELS = 12  # per side of one weight


def to_tensorboard(run: Source) -> Files:
    """Write one event file: scalars train/*, eval/* and heads/L0.H3/*, and an image maps/L0 for every layer.

    Images are white for weight 0 and black for 1; rows are queries, columns keys, heads side by side.
    Raises: UsageError if the tensorboard package is missing.
    """
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise UsageError(
            "a TensorBoard log needs the tensorboard package", "pip install 'mhsa-cli[tensorboard]'"
        ) from error
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        for record in run.metrics:
            for key, tag in CURVES.get(str(record.get("kind")), {}).items():
                if is_number(record.get(key)) and "step" in record:
                    writer.add_scalar(tag, record[key], record["step"])
        for tag, value, step in head_scalars(run):
            writer.add_scalar(tag, value, step)
        if run.heads is not None:
            for layer, image in enumerate(layer_images(run.heads["weights"])):
                writer.add_image(f"maps/L{layer}", image, run.heads.get("step"), dataformats="HW")
        writer.close()
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def head_scalars(run: Source) -> list[tuple[str, float, int]]:
    """List (tag, value, step) of every number known of a head, over training if recorded, else at the end."""
    documents = [*run.head_scores] or ([run.heads] if run.heads is not None else [])
    found = []
    for document in documents:
        for head in heads_of(document, "the head scores"):
            for name, value in flat(head).items():
                if name not in ("layer", "head") and is_number(value):
                    found.append((f"heads/L{head['layer']}.H{head['head']}/{name}", value, document.get("step", 0)))
    return found


def layer_images(weights: Any) -> list[np.ndarray]:
    """Draw the maps of each layer side by side, (H, T, T) to one 8-bit image, white for 0, with white margins."""
    images = []
    for layer in weights:
        maps = np.nan_to_num(np.array(layer, dtype=float)).clip(0, 1)
        grey = np.round(255 * (1 - maps)).astype(np.uint8)
        large = grey.repeat(PIXELS, axis=1).repeat(PIXELS, axis=2)
        images.append(np.concatenate([np.pad(head, PIXELS // 2, constant_values=255) for head in large], axis=1))
    return images


def is_number(value: object) -> bool:
    """Whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
