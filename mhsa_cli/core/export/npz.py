"""NumPy arrays: the weights, and attention weights on held-out rows. No pickle."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from mhsa_cli.core.export import Files, Source
from mhsa_cli.core.heads.capture import PROBE_ROWS, capture
from mhsa_cli.core.tasks import fixed_batch
from mhsa_cli.core.training.checkpoint import weights_of
from mhsa_cli.core.training.state import read_state
from mhsa_cli.errors import UsageError

ROOM, LARGEST = 2**24, 2**28  # attention weights of a file, and the most of a single row


def to_npz(run: Source) -> Files:
    """Write one compressed .npz: the weights as `model.<name>`, and `attention` (N, L, H, T, T) on held-out rows.

    Attention is in eval mode, before dropout; `tokens`, `symbols`, `targets` (N, T) are its rows, row 0 the sample of
    `mhsa inspect-heads`. Also `step`, and `config` as JSON text. Raises: UsageError if one row has too many weights.
    """
    if run.checkpoint is not None:
        return _without_model(run, run.checkpoint)
    model, task, _, step = run.trained()
    size = len(model.heads) * task.seq_len**2
    if size > LARGEST:
        hint = "without attention: --to transformer-lens, or checkpoints/*/model.safetensors in the run folder"
        raise UsageError(f"{size:,} attention weights per row exceed the limit of {LARGEST:,}", hint)
    batch = fixed_batch(task, run.config.train.seed, "probe", PROBE_ROWS)
    n_rows = max(1, min(PROBE_ROWS, ROOM // size))
    rows = batch.inputs[:n_rows]
    arrays = {
        "attention": torch.stack(capture(model, rows), dim=1).numpy(),  # (N, L, H, T, T)
        "tokens": rows.numpy(),
        "symbols": np.array([task.symbols(row) for row in rows.tolist()]),
        "targets": batch.targets[:n_rows].numpy(),
        "step": np.array(step),
        "config": np.array(json.dumps(run.config.to_dict())),
    }
    arrays |= {f"model.{name}": parameter.detach().cpu().numpy() for name, parameter in model.named_parameters()}
    return _write(arrays)


def _without_model(run: Source, files: Mapping[str, bytes]) -> Files:
    """Write what needs no forward pass: the weights, and the maps of heads.json, of one row."""
    arrays = {
        "step": np.array(read_state(files)["step"]),
        "config": np.array(json.dumps(run.config.to_dict())),
    }
    maps = None if run.heads is None else run.heads.get("weights")
    if maps:
        arrays["attention"] = np.array(maps, dtype=np.float32)[None]  # (1, L, H, T, T), rounded to 7 digits
        arrays["symbols"] = np.array([run.heads["tokens"]])  # type: ignore[index]
    return _write(arrays | {f"model.{name}": tensor.numpy() for name, tensor in weights_of(files).items()})


def _write(arrays: Mapping[str, Any]) -> Files:
    out = io.BytesIO()
    np.savez_compressed(out, **arrays)
    return {"": out.getvalue()}
