"""What crosses the walls between rooms: plain frozen data, no torch, no rich."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One training step, measured on its own batch before the update. `loss` in nats; `step` counts from 1."""

    step: int
    loss: float
    accuracy: float
    lr: float


@dataclass(frozen=True, slots=True)
class EvalRecord:
    """Loss (nats) and accuracy over the fixed evaluation sequences after `step` updates."""

    step: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class EpochRecord:
    """The end of an epoch (from 1): `loss` is the mean of its steps' training losses, in nats."""

    epoch: int
    step: int
    loss: float
    eval_loss: float
    eval_accuracy: float


@dataclass(frozen=True, slots=True)
class SaveRecord:
    """A checkpoint to be committed: file names and their bytes. `reason`: "start", "periodic", "end" or "stop"."""

    step: int
    files: Mapping[str, bytes]
    reason: str


Record = StepRecord | EvalRecord | EpochRecord | SaveRecord


@dataclass(frozen=True, slots=True)
class HeadSummary:
    """One head on the shown sample. `entropy`: mean over queries q >= 1 of H(A_q)/ln(q+1), so 1 is uniform.

    `source_weight` is the mean weight on the position that holds the answer, over a probe batch; `source_chance` is
    what a uniform head puts there. Both are None where the task has no such position.
    """

    layer: int
    head: int
    entropy: float | None
    source_weight: float | None = None
    source_chance: float | None = None

    @property
    def name(self) -> str:
        """The head's address in text, for example `L0.H3`."""
        return f"L{self.layer}.H{self.head}"


@dataclass(frozen=True, slots=True)
class HeadMaps:
    """Every head's attention weights on one sample: `weights[layer][head][query][key]`, before dropout, eval mode.

    `note` is what a reader of the maps must know about the task.
    """

    step: int
    task: str
    tokens: Sequence[str]
    weights: Sequence[Sequence[Sequence[Sequence[float]]]]
    heads: Sequence[HeadSummary]
    note: str = ""


@dataclass(frozen=True, slots=True)
class Series:
    """One line of a curve: values at steps. `role` is "train" or "eval"; NaN and None are gaps."""

    name: str
    steps: Sequence[int]
    values: Sequence[float | None]
    role: str = "train"


@dataclass(frozen=True, slots=True)
class TaskInfo:
    """A task as `mhsa tasks` shows it: one sentence, and an input row over its target row (`·` = not scored)."""

    name: str
    summary: str
    inputs: Sequence[str]
    targets: Sequence[str]
    chance_loss: float
    chance_accuracy: float


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
    """Something that must be true of attention, measured: `figure` is the worst found, `text` says it in words."""

    name: str
    passed: bool
    figure: float
    text: str


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
