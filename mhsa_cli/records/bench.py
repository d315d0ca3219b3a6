"""Results of `mhsa bench`. Spreads are (25%, median, 75%) over several rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

Spread = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine: `cores` that this process may use, `threads` unless a record has its own."""

    section: ClassVar[str] = "machine"
    cpu: str
    cores: int
    device: str
    gpu: str | None
    torch: str
    threads: int


@dataclass(frozen=True, slots=True)
class StepSpeed:
    """The wall time of a training step at one size and number of threads; a token is one position of one row.

    `size`: batch_size, seq_len, d_model, n_heads, n_layers, d_mlp. `recommended`: the best number of threads tried.
    """

    section: ClassVar[str] = "steps"
    name: str
    size: Mapping[str, int]
    parameters: int
    threads: int
    step_ms: Spread
    steps_per_second: float
    tokens_per_second: float
    recommended: bool


@dataclass(frozen=True, slots=True)
class StackSpeed:
    """A step of `models` models trained as one stack; a model-step is a step of one model."""

    section: ClassVar[str] = "stacks"
    models: int
    step_ms: Spread
    model_steps_per_second: float


@dataclass(frozen=True, slots=True)
class AttentionSpeed:
    """One attention block on a row of `seq_len` tokens: "fused" and "linear" with backward, "weights" forward only.

    `extra_mb` (1e6 bytes) is the additional peak memory, None where the system does not report it.
    """

    section: ClassVar[str] = "attention"
    path: str
    seq_len: int
    ms: Spread
    extra_mb: float | None


@dataclass(frozen=True, slots=True)
class ImportSpeed:
    """The wall time that `import torch` adds to the start of Python."""

    section: ClassVar[str] = "import_torch"
    seconds: Spread


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A figure that was skipped, with the reason."""

    section: str
    what: str
    why: str


BenchRecord = Machine | StepSpeed | StackSpeed | AttentionSpeed | ImportSpeed | NotMeasured
