"""Measurements of heads: maps, scores, ablations, labels, matches."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Generic, Literal, NamedTuple, TypeVar, get_args

from mhsa_cli.records.claims import Claim, Status, judge
from mhsa_cli.records.labels import Distance, Label, Role
from mhsa_cli.text import Head, from_file


class GapLimit(StrEnum):
    """Why heads were tested at too few distances between repeats that training does not favour."""

    LENGTH = "row length"
    SYMBOLS = "symbols"  # too few, or too many, to repeat at more distances


@dataclass(frozen=True, slots=True)
class OfHead:
    """A record of one head: `layer` and `head` are its address."""

    layer: int
    head: int

    @property
    def address(self) -> Head:
        return Head(self.layer, self.head)

    @property
    def name(self) -> str:
        """The address in text, for example `L0.H3`."""
        return str(self.address)


@dataclass(frozen=True, slots=True)
class HeadSummary(OfHead):
    """One head on the shown sample. `entropy`: mean of H(A_q)/ln n over queries with n > 1 visible keys, 1: uniform.

    `answer_weight`: mean weight on the position that holds the answer, over a probe batch; `answer_uniform`: that of a
    uniform head. Both are None if the task has no such position.
    """

    entropy: float | None
    answer_weight: float | None = None
    answer_uniform: float | None = None


class LayerRole(StrEnum):
    """What an attention layer of an encoder-decoder does."""

    ENCODER = "encoder"  # self-attention of the source
    DECODER = "decoder"  # causal self-attention of separator and answer
    CROSS = "cross"  # attention of the decoder to the encoder's output


WAYS = ("uniform", "zero", "mean", "resample")  # of ablation


@dataclass(frozen=True, slots=True)
class LayerPart:
    """The part of a row that a layer of an encoder-decoder works on: `queries` and `keys` are (first, end)."""

    role: LayerRole
    queries: Sequence[int]
    keys: Sequence[int]

    @property
    def causal(self) -> bool:
        """Whether a query sees the keys up to its own only."""
        return self.role is LayerRole.DECODER


@dataclass(frozen=True, slots=True)
class HeadMaps:
    """Every head's attention weights on one sample: `weights[layer][head][query][key]`, before dropout, eval mode.

    `note` explains the task to a reader of the maps; `report` is None if the heads were not measured. `parts` are those
    of the layers of an encoder-decoder, else none. `origin` is the file of a model that was made elsewhere, which has
    no steps.
    """

    step: int
    task: str
    tokens: Sequence[str]
    weights: Sequence[Sequence[Sequence[Sequence[float]]]]
    heads: Sequence[HeadSummary]
    note: str = ""
    report: HeadReport | None = None
    parts: Sequence[LayerPart] = ()
    origin: str | None = None

    @property
    def when(self) -> str:
        """What the maps are of: a step of the training, or a model from a file."""
        return f"step {self.step}" if self.origin is None else from_file(self.origin)


@dataclass(frozen=True, slots=True)
class TargetScore:
    """A head's weight on a target: the mean `mass`, that of a `uniform` head, and the `lift`.

    lift = (mass - uniform) / (1 - uniform): 0 is uniform, 1 all weight, below 0 avoidance. `scored`: the lift over
    scored queries alone. `distance`, `period` and `token` (shown as `symbol`) say which offset or token was best.
    `null`: the 99th percentile of the lift of untrained heads of the same shape; `random_null`: the largest of heads
    with random Q and K of the trained norms in the same model.
    """

    mass: float
    uniform: float
    lift: float
    distance: Distance | None = None
    null: float | None = None
    period: int | None = None
    token: int | None = None
    scored: float | None = None
    random_null: float | None = None
    symbol: str | None = None


@dataclass(frozen=True, slots=True)
class OwnFigure:
    """A head on a score of the user's own: the mean `value` over rows, its standard error, and a `uniform` head's.

    `null_low` and `null` are the 1st and 99th percentile of untrained heads of the same shape. Of a target, the value
    is the mean weight on it, and `lift` is as in TargetScore. None where it gives no finite number.
    """

    value: float | None
    se: float | None
    uniform: float | None
    lift: float | None = None
    null_low: float | None = None
    null: float | None = None


@dataclass(frozen=True, slots=True)
class HeadScore(OfHead):
    """The measurements of one head; None or missing where not measured.

    `scores` are by target; `entropy`, `uniformity`, `confidence` and `positionality` lie in 0..1. Gaps: induction lift
    by distance between repeats, favoured in training or not (`duplicate_gaps`: duplicate lift at the latter;
    `gap_limit`: why there are fewer of these than a label needs). A delta is the loss with this head alone ablated,
    minus the loss, with its standard error; `share` is the part of the joint effect that its Shapley value is. `kept`
    is the part of its effect that an ideal head of its label keeps. `role` is what it does to the loss; `label` is None
    if withheld, for the reason in `evidence`. `own_scores` are the user's own, by name; no label reads them.
    """

    scores: Mapping[str, TargetScore]
    entropy: float | None = None
    uniformity: float | None = None
    confidence: float | None = None
    positionality: float | None = None
    trained_gaps: Mapping[int, float] = field(default_factory=dict)
    unseen_gaps: Mapping[int, float] = field(default_factory=dict)
    duplicate_gaps: Mapping[int, float] = field(default_factory=dict)
    gap_limit: GapLimit | None = None
    uniform_delta_nats: float | None = None
    uniform_delta_se: float | None = None
    zero_delta_nats: float | None = None
    zero_delta_se: float | None = None
    mean_delta_nats: float | None = None
    mean_delta_se: float | None = None
    resample_delta_nats: float | None = None
    resample_delta_se: float | None = None
    shapley_nats: float | None = None
    shapley_se: float | None = None
    share: float | None = None
    share_se: float | None = None
    kept: float | None = None
    kept_se: float | None = None
    role: Role | None = None
    label: Label | None = None
    evidence: Sequence[Claim] = ()
    own_scores: Mapping[str, OwnFigure] = field(default_factory=dict)

    @property
    def target(self) -> str | None:
        """The target of its label; None if it has none."""
        return None if self.label is None else self.label.target

    def effect(self, way: str) -> tuple[float, float] | None:
        """Return the effect of an ablation and its standard error; None where not measured."""
        delta, se = getattr(self, f"{way}_delta_nats"), getattr(self, f"{way}_delta_se")
        return None if delta is None else (delta, se or 0.0)


@dataclass(frozen=True, slots=True)
class Interaction:
    """The Shapley interaction of two heads' patterns in nats, with its standard error.

    Above 0 they are worth more together than alone, below 0 they do the same work. Source: Grabisch and Roubens 1999.
    """

    first: Head
    second: Head
    nats: float
    se: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the attention patterns matter, by the loss with uniform attention in every head and in single ones.

    `joint_delta_nats` is the loss with all heads uniform minus `loss_nats`; `pattern_matters`: whether all of them or
    one alone has an effect of either sign, None if not measured. `labels_kept` is the part of the joint effect that
    ideal heads of the labels keep. `inputs` are the rows; `try_task` is a task where the pattern matters. `withheld`:
    why `redundancy` or `effective_heads` is None.
    """

    pattern_matters: bool | None
    joint_delta_nats: float | None
    joint_delta_se: float | None
    loss_nats: float | None
    claims: Sequence[Claim]
    inputs: str
    try_task: str | None = None
    redundancy: float | None = None
    effective_heads: float | None = None
    withheld: Claim | None = None
    labels_kept: float | None = None
    labels_kept_se: float | None = None
    interactions: Sequence[Interaction] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class HeadReport:
    """The verdict, and the measurements and label of every head.

    `coalitions` are the losses with only some heads keeping their pattern, the others uniform: entry i, of 2^n, is that
    of the heads h of `heads` whose bit h of i is set. Empty where not all of them were measured.
    """

    verdict: Verdict
    heads: Sequence[HeadScore]
    coalitions: Sequence[float] = ()

    def loss_without(self, uniform: Collection[Head]) -> float | None:
        """Return the loss with these heads uniform; None where it was not measured."""
        if self.coalitions:
            return self.coalitions[sum(1 << h for h, head in enumerate(self.heads) if head.address not in uniform)]
        clean, effects = self.verdict.loss_nats, [h.effect("uniform") for h in self.heads if h.address in uniform]
        if clean is None or len(effects) > 1 or None in effects:
            return None
        return clean + sum(effect[0] for effect in effects if effect is not None)


@dataclass(frozen=True, slots=True)
class Ablation:
    """Loss (nats) and accuracy on the probe under an ablation `way`; deltas and their error are from way "none"."""

    way: str
    loss: float
    accuracy: float
    delta_nats: float
    delta_se: float


class Untested(StrEnum):
    """Why a matching was not tested against random heads."""

    CUSTOM = "custom"  # random heads of custom attention are not known
    SIZE = "size"  # too many weights
    NOT_FINITE = "nonfinite"


@dataclass(frozen=True, slots=True)
class Matching:
    """The heads of two runs, paired at least total cost.

    A cost is the mean Jensen-Shannon divergence of two heads' maps over ln 2: 0 equal, 1 disjoint. `cost` is the mean
    over pairs. It is tested against `draws` matchings of each run's heads with random heads in the other run:
    `p_value` is the larger of the two, and `null_cost` the smaller 5% quantile. SHOWN: the cost is clearly below it.
    """

    pairs: Sequence[tuple[Head, Head, float]]
    unmatched_first: Sequence[Head]
    unmatched_second: Sequence[Head]
    cost: float
    inputs: str
    status: Status = Status.NOT_MEASURED
    null_cost: float | None = None
    p_value: float | None = None
    draws: int = 0
    untested: Untested | None = None


class Mlp(NamedTuple):
    """The address of a layer's MLP; `L0.MLP` as text."""

    layer: int

    def __str__(self) -> str:
        return f"L{self.layer}.MLP"


OneWriter = Head | Mlp | Literal["embedding"]


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Together(Generic[T]):
    """Several writers or readers at once; `L0.H1+L0.H3` as text."""

    members: tuple[T, ...]

    def __str__(self) -> str:
        return "+".join(map(str, self.members))


EMBEDDING: Literal["embedding"] = "embedding"  # with position vectors, if they are added to it
Writer = OneWriter | Together[OneWriter]
Reader = Head | Together[Head]
Part = Literal["q", "k", "v"]
PARTS: tuple[Part, ...] = get_args(Part)


@dataclass(frozen=True, slots=True)
class Path:
    """What `writer` adds to the input of head `reader`, for its queries, keys or values (`part`); None: the logits.

    Several readers read it at once, none of them what another one makes of it.
    """

    writer: Writer
    reader: Reader | None = None
    part: Part | None = None

    @property
    def writers(self) -> tuple[OneWriter, ...]:
        return self.writer.members if isinstance(self.writer, Together) else (self.writer,)

    @property
    def readers(self) -> tuple[Head, ...]:
        """The reading heads; none for the logits."""
        if self.reader is None:
            return ()
        return self.reader.members if isinstance(self.reader, Together) else (self.reader,)

    def __str__(self) -> str:
        return f"{self.writer}:{'logits' if self.reader is None else f'{self.reader}.{self.part}'}"


LEAST_PATH = 0.01  # nats: where corrupted rows leave a writer as it is, effect and null are rounding


@dataclass(frozen=True, slots=True)
class PathEffect:
    """The increase of the loss when a path carries what its writer adds in a corrupted row; `part` is None for logits.

    In nats per scored token, with its standard error over `n_pairs` rows. `null` is the largest |increase| of random
    writers whose output changes as much.
    """

    writer: Writer
    reader: Reader | None
    part: Part | None
    delta_nats: float
    delta_se: float
    null: float
    n_pairs: int

    @property
    def path(self) -> Path:
        return Path(self.writer, self.reader, self.part)

    @property
    def above_null(self) -> bool:
        """Whether the loss rises by more than with every random writer, by 0.01 nats, and by more than its error."""
        return self.delta_nats > self.null and judge(self.delta_nats, self.delta_se, LEAST_PATH) is Status.SHOWN


@dataclass(frozen=True, slots=True)
class ActivationEffect(OfHead):
    """The increase of the loss when a head's whole output is that of a corrupted row, over `n_pairs` rows."""

    delta_nats: float
    delta_se: float
    n_pairs: int
