"""What `mhsa bench` measured of this machine. Every figure is (25 %, median, 75 %) over several rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

Spread = tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class Machine:
    """What the figures depend on: `cores` that this process may use, `threads` where nothing else is said."""

    section: ClassVar[str] = "machine"
    cpu: str
    cores: int
    device: str
    gpu: str | None
    torch: str
    threads: int


@dataclass(frozen=True, slots=True)
class StepSpeed:
    """The training step of one size with one number of CPU threads, as `mhsa train` takes it, in wall time.

    `size` has batch_size, seq_len, d_model, n_heads, n_layers and d_mlp; a token is one position of one row.
    `recommended`: the number of threads to ask for at this size, of those that were tried.
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
    """A step of `models` models that train as one stack; a model-step is one step of one of them."""

    section: ClassVar[str] = "stacks"
    models: int
    step_ms: Spread
    model_steps_per_second: float


@dataclass(frozen=True, slots=True)
class AttentionSpeed:
    """One way through one attention block for a row of `seq_len` tokens.

    `path`: "fused" and "linear" run forward and backward, as in training; "weights" reads every exact weight, forward
    only. `extra_mb` (1e6 bytes) is the peak beyond what was held before, None where the system does not tell.
    """

    section: ClassVar[str] = "attention"
    path: str
    seq_len: int
    ms: Spread
    extra_mb: float | None


@dataclass(frozen=True, slots=True)
class ImportSpeed:
    """The start-up of a process: what `import torch` adds to a bare Python, in seconds of wall time."""

    section: ClassVar[str] = "import_torch"
    seconds: Spread


@dataclass(frozen=True, slots=True)
class NotMeasured:
    """A figure that would have taken too much: which one, of which section, and why."""

    section: str
    what: str
    why: str


BenchRecord = Machine | StepSpeed | StackSpeed | AttentionSpeed | ImportSpeed | NotMeasured
