"""What was seen and measured of heads: maps, scores, causes, labels, circuits, their history, their matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mhsa_cli.records.claims import Claim
from mhsa_cli.records.labels import Label
from mhsa_cli.text import Head


@dataclass(frozen=True, slots=True)
class OfHead:
    """What is known of one head: `layer` and `head` are its address."""

    layer: int
    head: int

    @property
    def address(self) -> Head:
        """The head's address; as text, for example `L0.H3`."""
        return Head(self.layer, self.head)

    @property
    def name(self) -> str:
        """The head's address in text, for example `L0.H3`."""
        return str(self.address)


@dataclass(frozen=True, slots=True)
class HeadSummary(OfHead):
    """One head on the shown sample. `entropy`: mean over queries q >= 1 of H(A_q)/ln(q+1), so 1 is uniform.

    `answer_weight` is the mean weight on the position that holds the answer, over a probe batch; `answer_uniform` is
    what a uniform head puts there. Both are None where the task has no such position.
    """

    entropy: float | None
    answer_weight: float | None = None
    answer_uniform: float | None = None


@dataclass(frozen=True, slots=True)
class HeadMaps:
    """Every head's attention weights on one sample: `weights[layer][head][query][key]`, before dropout, eval mode.

    `note` is what a reader of the maps must know about the task. `report`: what was measured of the heads, if it was.
    """

    step: int
    task: str
    tokens: Sequence[str]
    weights: Sequence[Sequence[Sequence[Sequence[float]]]]
    heads: Sequence[HeadSummary]
    note: str = ""
    report: HeadReport | None = None


@dataclass(frozen=True, slots=True)
class TargetScore:
    """How much of a head's weight lies on a target: the mean `mass`, a `uniform` head's, and the `lift`.

    lift = (mass - uniform) / (1 - uniform): 0 is uniform, 1 perfect, below 0 avoids. `distance` is the best offset's.
    `null`: the 99th percentile of the lift of randomly initialised heads of the same shape on the same rows.
    """

    mass: float
    uniform: float
    lift: float
    distance: int | None = None
    null: float | None = None


@dataclass(frozen=True, slots=True)
class HeadScore(OfHead):
    """What was measured about one head. What could not be measured is None or missing; deltas are in nats.

    `scores`: by target's name. `entropy`, `uniformity`, `confidence` and `positionality` lie in 0..1. The gaps give the
    induction lift by distance between repeats, at trained and at never trained ones (`duplicate_gaps`: the duplicate
    lift at the latter). A delta is the loss after acting
    on this head alone, minus the loss before. `label` is None where labels are withheld; `evidence` gives its reason.
    """

    scores: Mapping[str, TargetScore]
    entropy: float | None = None
    uniformity: float | None = None
    confidence: float | None = None
    positionality: float | None = None
    trained_gaps: Mapping[int, float] = field(default_factory=dict)
    unseen_gaps: Mapping[int, float] = field(default_factory=dict)
    duplicate_gaps: Mapping[int, float] = field(default_factory=dict)
    uniform_delta_nats: float | None = None
    uniform_delta_se: float | None = None
    zero_delta_nats: float | None = None
    mean_delta_nats: float | None = None
    resample_delta_nats: float | None = None
    shapley_nats: float | None = None
    shapley_se: float | None = None
    label: Label | None = None
    evidence: Sequence[Claim] = ()

    @property
    def target(self) -> str | None:
        """The target that names the head; None where none does."""
        return None if self.label is None else self.label.target


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the learned patterns matter at all: the loss with every head's pattern replaced by the uniform one.

    `joint_delta_nats` is that loss minus `loss_nats`. `pattern_matters` is None where it could not be measured.
    `claims` say it, `inputs` on which rows; `try_task` names a task on which the pattern matters.
    `redundancy` and `effective_heads` are None where they mean nothing; `withheld` says why.
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


@dataclass(frozen=True, slots=True)
class HeadReport:
    """Every head's scores, causes and label, and the verdict that stands before them."""

    verdict: Verdict
    heads: Sequence[HeadScore]


@dataclass(frozen=True, slots=True)
class Ablation:
    """Loss (nats) and accuracy on the probe with some heads acted on in one way; `way` "none" is the model as it is.

    `delta_nats` is the loss minus that of "none", `delta_se` its standard error over the rows.
    """

    way: str
    loss: float
    accuracy: float
    delta_nats: float
    delta_se: float


@dataclass(frozen=True, slots=True)
class HeadCircuits(OfHead):
    """What one head's weights do, read from the weights. None where it is not defined for this model.

    `qk_shares`: shares of the score's variance by query part x key part ("tok-tok", "pos-pos", ...); they sum to 1.
    `ov_top1`: fraction of tokens whose own logit the head's OV circuit raises most. `ov_copying`: real part of the sum
    of its eigenvalues / sum of their sizes, 1 = copies. `direct_logits`: mean direct contribution to the right answer's
    logit, less that to the mean of all logits.
    """

    qk_shares: Mapping[str, float] | None
    ov_top1: float | None
    ov_copying: float | None
    direct_logits: float | None


@dataclass(frozen=True, slots=True)
class Composition:
    """How strongly head `reader` reads what the earlier head `writer` writes, above randomly drawn heads.

    Through its queries, keys and values; 0 = as random heads would. Addresses are (layer, head).
    """

    writer: Head
    reader: Head
    queries: float
    keys: float
    values: float


@dataclass(frozen=True, slots=True)
class Circuits:
    """All heads' circuits. `residual_error`: largest |sum of direct parts - logits|; `notes`: what is missing, why."""

    step: int
    heads: Sequence[HeadCircuits]
    compositions: Sequence[Composition]
    residual_error: float | None
    inputs: str
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class HeadSnapshot(OfHead):
    """One head in a snapshot: its lifts by target's name, `distance` of the best offset, and the other scores.

    `offsets` are the lifts of every offset tried, by distance.
    """

    lifts: Mapping[str, float]
    distance: int | None
    entropy: float | None
    uniformity: float | None
    confidence: float | None
    positionality: float | None
    offsets: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """Every head after `step` updates, on the one probe that all snapshots of a run share.

    `maps[layer][head][query][key]`: the probe's first row, weights in percent, pooled by `pool` where it is long.
    """

    step: int
    heads: Sequence[HeadSnapshot]
    maps: Sequence[Sequence[Sequence[Sequence[int]]]]
    pool: int = 1


@dataclass(frozen=True, slots=True)
class HeadHistory(OfHead):
    """One head's lift on one target over training. `target` is what the head ended as, named by `label`.

    `onset`: the first of three snapshots in a row with lift >= 0.5. `width`: steps from lift 0.2 to 0.8. `lead`:
    step of the largest loss drop minus onset. None where that never happened, or was not measured. `distance` is the
    best offset's at the end, where the offset is the target.
    """

    target: str
    label: str
    steps: Sequence[int]
    lifts: Sequence[float | None]
    onset: int | None
    width: int | None
    lead: int | None
    distance: int | None = None


@dataclass(frozen=True, slots=True)
class Matching:
    """Heads of one run paired with heads of another so that the total cost is least; addresses are (layer, head).

    A cost is the mean Jensen-Shannon divergence of two heads' maps over ln 2: 0 equal, 1 disjoint. `cost` is the pairs'
    mean, `random_cost` that of random pairings.
    """

    pairs: Sequence[tuple[Head, Head, float]]
    unmatched_first: Sequence[Head]
    unmatched_second: Sequence[Head]
    cost: float
    random_cost: float
    inputs: str
