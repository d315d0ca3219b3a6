"""What is measured of heads on request: logit lens, direct logits by position, prefix matching and copying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from mhsa_cli.records.claims import Claim
from mhsa_cli.records.heads import OfHead
from mhsa_cli.text import Head


@dataclass(frozen=True, slots=True)
class LensStep:
    """The loss and accuracy of the stream after `layer`, read by the final norm and the output map; None: embedding."""

    layer: int | None
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class LogitLens:
    """The steps of the lens on the rows `inputs`, and the chance level."""

    steps: Sequence[LensStep]
    inputs: str
    chance_loss: float
    chance_accuracy: float


@dataclass(frozen=True, slots=True)
class DirectLogits:
    """By head, the direct contribution to the answer's logit minus that to the mean logit, at each query position.

    `counts` are the scored queries at each position; a figure is None where there are none.
    """

    counts: Sequence[int]
    heads: Mapping[Head, Sequence[float | None]]
    inputs: str
    notes: Sequence[Claim] = ()


@dataclass(frozen=True, slots=True)
class PaperScore(OfHead):
    """A head's prefix matching score of Olsson et al. 2022, and the share of tokens that it copies (OV top-1)."""

    prefix_matching: float
    copies: float | None


@dataclass(frozen=True, slots=True)
class PaperScores:
    """The prefix matching scores of all heads, with the 99th percentile of untrained heads of both figures."""

    heads: Sequence[PaperScore]
    prefix_matching_null: float
    copies_null: float | None
