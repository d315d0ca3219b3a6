"""A run in the formats of other programs: one entry a format. Each turns a run's data into files, name to bytes.

A format that is one file calls it "": its name is the caller's. Only the formats that need the model import torch.
"""

from __future__ import annotations

from collections.abc import Callable

from mhsa_cli.core.export.source import Files, Source


def _npz(run: Source) -> Files:
    """Write the weights, and the attention on probe rows, as one file of arrays."""
    from mhsa_cli.core.export.npz import to_npz

    return to_npz(run)


def _csv(run: Source) -> Files:
    """Write a row per head and a row per record of the metrics."""
    from mhsa_cli.core.export.plain import to_csv

    return to_csv(run)


def _json(run: Source) -> Files:
    """Write config, figures, heads and metrics as one document."""
    from mhsa_cli.core.export.plain import to_json

    return to_json(run)


def _transformer_lens(run: Source) -> Files:
    """Write weights and config as TransformerLens names them."""
    from mhsa_cli.core.export.transformer_lens import to_transformer_lens

    return to_transformer_lens(run)


def _tensorboard(run: Source) -> Files:
    """Write curves, head scores and maps as a TensorBoard log."""
    from mhsa_cli.core.export.tensorboard import to_tensorboard

    return to_tensorboard(run)


EXPORTS: dict[str, Callable[[Source], Files]] = {
    "npz": _npz,
    "csv": _csv,
    "json": _json,
    "transformer-lens": _transformer_lens,
    "tensorboard": _tensorboard,
}
SINGLE = {"npz": ".npz", "json": ".json"}  # formats that are one file, and its ending; the others are a folder
