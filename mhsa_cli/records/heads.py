"""Measurements of heads: maps, scores, ablations, labels, circuits, history over training, matches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from mhsa_cli.records.claims import Claim
from mhsa_cli.records.labels import Label
from mhsa_cli.text import Head


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
    """One head on the shown sample. `entropy`: mean over queries q >= 1 of H(A_q)/ln(q+1), so 1 is uniform.

    `answer_weight`: mean weight on the position that holds the answer, over a probe batch; `answer_uniform`: that of a
    uniform head. Both are None if the task has no such position.
    """

    entropy: float | None
    answer_weight: float | None = None
    answer_uniform: float | None = None


@dataclass(frozen=True, slots=True)
class HeadMaps:
    """Every head's attention weights on one sample: `weights[layer][head][query][key]`, before dropout, eval mode.

    `note` explains the task to a reader of the maps; `report` is None if the heads were not measured.
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
    """A head's weight on a target: the mean `mass`, that of a `uniform` head, and the `lift`.

    lift = (mass - uniform) / (1 - uniform): 0 is uniform, 1 all weight, below 0 avoidance. `distance`: of the best
    offset. `null`: the 99th percentile of the lift of untrained heads of the same shape on the same rows.
    """

    mass: float
    uniform: float
    lift: float
    distance: int | None = None
    null: float | None = None


@dataclass(frozen=True, slots=True)
class HeadScore(OfHead):
    """The measurements of one head; None or missing where not measured.

    `scores` are by target; `entropy`, `uniformity`, `confidence` and `positionality` lie in 0..1. Gaps: induction lift
    by distance between repeats, used in training or not (`duplicate_gaps`: duplicate lift at the latter). A delta is
    the loss with this head alone ablated, minus the loss. `label` is None if withheld, for the reason in `evidence`.
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
        """The target of its label; None if it has none."""
        return None if self.label is None else self.label.target


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the attention patterns matter, by the loss with uniform attention in every head.

    `joint_delta_nats` is that loss minus `loss_nats`; `pattern_matters` is None if it could not be measured. `inputs`
    are the rows; `try_task` is a task where the pattern matters. `withheld`: why `redundancy` or `effective_heads` is
    None.
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
    """The verdict, and the measurements and label of every head."""

    verdict: Verdict
    heads: Sequence[HeadScore]


@dataclass(frozen=True, slots=True)
class Ablation:
    """Loss (nats) and accuracy on the probe under an ablation `way`; deltas and their error are from way "none"."""

    way: str
    loss: float
    accuracy: float
    delta_nats: float
    delta_se: float


@dataclass(frozen=True, slots=True)
class HeadCircuits(OfHead):
    """The QK and OV circuits of one head, from its weights; None where undefined for the model.

    `qk_shares`: shares of the score's variance by query part x key part ("tok-tok", "pos-pos", ...), summing to 1.
    `ov_top1`: fraction of tokens whose own logit the OV circuit raises most. `ov_copying`: real part of the sum of its
    eigenvalues / sum of their moduli, 1 = copies. `direct_logits`: mean direct contribution to the answer's logit minus
    that to the mean of all logits.
    """

    qk_shares: Mapping[str, float] | None
    ov_top1: float | None
    ov_copying: float | None
    direct_logits: float | None


@dataclass(frozen=True, slots=True)
class Composition:
    """Composition of head `reader` with the earlier head `writer` by queries, keys and values; 0 = random heads."""

    writer: Head
    reader: Head
    queries: float
    keys: float
    values: float


@dataclass(frozen=True, slots=True)
class Circuits:
    """The circuits of all heads. `residual_error`: largest |sum of direct parts - logits|; `notes`: what is missing."""

    step: int
    heads: Sequence[HeadCircuits]
    compositions: Sequence[Composition]
    residual_error: float | None
    inputs: str
    notes: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class HeadSnapshot(OfHead):
    """One head in a snapshot: lifts by target, `distance` of the best offset, lifts of all `offsets` by distance."""

    lifts: Mapping[str, float]
    distance: int | None
    entropy: float | None
    uniformity: float | None
    confidence: float | None
    positionality: float | None
    offsets: Mapping[int, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """Every head after `step` updates; `maps` are of the probe's first row, in percent, pooled by `pool` if long."""

    step: int
    heads: Sequence[HeadSnapshot]
    maps: Sequence[Sequence[Sequence[Sequence[int]]]]
    pool: int = 1


@dataclass(frozen=True, slots=True)
class HeadHistory(OfHead):
    """One head's lift over training on the `target` of its final `label`, at `distance` if that is an offset.

    `onset`: the first of three snapshots in a row with lift >= 0.5. `width`: steps from lift 0.2 to 0.8. `lead`: step
    of the largest loss drop minus onset. None if it did not happen or was not measured.
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
    """The heads of two runs, paired at least total cost.

    A cost is the mean Jensen-Shannon divergence of two heads' maps over ln 2: 0 equal, 1 disjoint. `cost` is the mean
    over pairs, `random_cost` over random pairings.
    """

    pairs: Sequence[tuple[Head, Head, float]]
    unmatched_first: Sequence[Head]
    unmatched_second: Sequence[Head]
    cost: float
    random_cost: float
    inputs: str
