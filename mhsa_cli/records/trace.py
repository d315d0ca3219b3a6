"""Records of `mhsa trace`: one forward pass, tensor by tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One tensor between ids and loss; `symbols` are its sizes by name (`B`, `H`, `T`, `d_head`).

    `data`: "input", "view" (memory of its input, measured), "copy" (same values in a new layout) or "new". `flops`: a
    multiply-add counts two. `bytes`: new memory, 0 for a view. `mean` and `std`: None for ids.
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
    """A property of attention, measured: `figure` is the worst deviation, `facts` what was compared."""

    name: str
    passed: bool
    figure: float
    facts: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TracePart:
    """Parameters of one part over all layers, and their gradient norm if there was a backward pass."""

    name: str
    parameters: int
    gradient_norm: float | None


@dataclass(frozen=True, slots=True)
class TraceCache:
    """The KV cache of one row over all layers; `all_heads_bytes` is its size without shared KV heads."""

    grows: bool
    bytes_per_token: int
    bytes_at_max: int
    all_heads_bytes: int
    max_seq_len: int


@dataclass(frozen=True, slots=True)
class Trace:
    """One forward pass of a model with its initial weights; `sizes` are the values of the symbols, `loss` is in nats.

    `init` is the file that the weights are from, None if they are drawn from the seed.
    `flops` and `bytes` are totals; `attention_formula` is the number of one layer's attention parameters in symbols.
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
    cache: TraceCache | None  # without a causal mask there is none
    init: str | None = None
