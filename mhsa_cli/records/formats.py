"""The format number of run.json, heads.json, sweep.json, MANIFEST.json and state.json, and a checkpoint's files."""

from __future__ import annotations

FORMAT = 2
WEIGHTS, MOMENTS, STATE = "model.safetensors", "optimizer.safetensors", "state.json"
DTYPES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}  # as named in a safetensors file
