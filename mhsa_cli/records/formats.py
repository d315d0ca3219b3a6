"""The format number of run.json, heads.json, sweep.json, and of a checkpoint's MANIFEST.json and state.json."""

from __future__ import annotations

FORMAT = 2
