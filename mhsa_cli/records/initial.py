"""What became of the tensors of a file of initial weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MappedTensor:
    """A weight of ours, its shape, the tensors of the file that it was made of, and what was done with them.

    `target` is "" for tensors that are no weights of this model: `done` gives the reason.
    """

    sources: Sequence[str]
    target: str
    shape: Sequence[int]
    done: str
