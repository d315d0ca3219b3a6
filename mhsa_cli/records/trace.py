"""One forward pass, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One tensor on the way from ids to loss. `symbols` are its sizes by name (`B`, `H`, `T`, `d_head`).

    `data`: "input", "view" (its input's memory, measured), "copy" (the same numbers laid out anew) or "new" (computed).
    `flops`: a multiply and an add are two. `bytes`: new memory, none for a view. `mean` and `std`: None for ids.
    """

    part: str
    layer: int | None
    name: str
    how: str
    symbols: Sequence[str]
    shape: Sequence[int]
    data: str
    strides: Sequence[int]
    dtype: str
    flops: int
    bytes: int
    mean: float | None
    std: float | None


@dataclass(frozen=True, slots=True)
class TraceCheck:
    """Something that must be true of attention, measured: `figure` is the worst found, `facts` what was held to it."""

    name: str
    passed: bool
    figure: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TracePart:
    """Parameters of one part, all layers together, and the norm of their gradient if there was a backward pass."""

    name: str
    parameters: int
    gradient_norm: float | None


@dataclass(frozen=True, slots=True)
class TraceCache:
    """What generation keeps of one row, all layers together; `grows`: keys and values, one more for every token.

    `all_heads_bytes` is what `bytes_at_max` would be with as many KV heads as heads.
    """

    grows: bool
    bytes_per_token: int
    bytes_at_max: int
    all_heads_bytes: int
    max_seq_len: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One forward pass of an untrained model, tensor by tensor. `sizes` are the symbols' values; `loss` in nats.

    `flops` and `bytes` are those of all steps. `attention_formula` counts one layer's attention parameters in symbols.
    """

    task: str
    attention: str
    positions: str
    seed: int
    n_layers: int
    sizes: Mapping[str, int]
    steps: Sequence[TraceStep]
    flops: int
    bytes: int
    loss: float
    checks: Sequence[TraceCheck]
    parts: Sequence[TracePart]
    parameters: int
    attention_parameters: int
    attention_formula: str
    cache: TraceCache
