"""Imported by the process from which all grades are forked: what each needs is there then, on one thread."""

from __future__ import annotations

import torch

import mhsa_cli.check.grade

torch.set_num_threads(1)

__all__ = ["mhsa_cli"]
