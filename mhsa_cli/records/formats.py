"""The format number of run.json, heads.json, sweep.json, MANIFEST.json and state.json."""

from __future__ import annotations

FORMAT = 2
