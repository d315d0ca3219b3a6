"""What the weights of heads compute: QK and OV circuits, direct logits, composition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mhsa_cli.records.claims import Claim
from mhsa_cli.records.heads import OfHead
from mhsa_cli.text import Head


@dataclass(frozen=True, slots=True)
class HeadCircuits(OfHead):
    """The QK and OV circuits of one head, from its weights; None where undefined for the model.

    `qk_shares`: shares of the score's variance by query part x key part ("tok-tok", "pos-pos", ...), by "distance", or
    by both ("token-distance"), summing to 1. `ov_top1`: fraction of tokens whose own logit the OV circuit raises most.
    `ov_copying`: real part of the sum of its eigenvalues / sum of their moduli, 1 = copies. `direct_logits`: mean
    direct contribution to the answer's logit minus that to the mean of all logits, with its standard error over rows.
    """

    qk_shares: Mapping[str, float] | None
    ov_top1: float | None
    ov_copying: float | None
    direct_logits: float | None
    direct_se: float | None = None


@dataclass(frozen=True, slots=True)
class Composition:
    """Composition of head `reader` with the earlier head `writer` by queries, keys and values.

    0 is the root mean square of random directions.
    """

    writer: Head
    reader: Head
    queries: float
    keys: float
    values: float


@dataclass(frozen=True, slots=True)
class Circuits:
    """The circuits of all heads. `residual_error`: largest |sum of direct parts - logits|; `notes`: what is missing.

    `composition_limit`: the score that the largest of all compositions exceeds in 5% of models with random directions;
    one that does not exceed it is not shown. `null_top1` and `null_copying` are what 1% of heads with random directions
    exceed. `origin` is the file of a model that was made elsewhere.
    """

    step: int
    heads: Sequence[HeadCircuits]
    compositions: Sequence[Composition]
    residual_error: float | None
    inputs: str
    notes: Sequence[Claim] = ()
    composition_limit: float | None = None
    null_top1: float | None = None
    null_copying: float | None = None
    origin: str | None = None
