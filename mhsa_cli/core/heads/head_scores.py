"""The scores of all heads of a model on one probe: lifts on every target, and the figures of their patterns."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from mhsa_cli.core.heads.capture import finite_or_none, head_weights
from mhsa_cli.core.heads.gaps import gap_lifts
from mhsa_cli.core.heads.probe import Probe
from mhsa_cli.core.heads.scores import concat_heads, lifts, of_heads, positionality, scored_lifts, shape
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.records.heads import HeadScore, TargetScore


def score_heads(model: TransformerLM, task: Task, probe: Probe, clean: list[Tensor], seed: int) -> list[HeadScore]:
    """Score every head's pattern; `clean` are the weights on the probe, by layer."""
    weights, shuffled = concat_heads(clean), concat_heads(head_weights(model, probe.shuffled))
    scores: dict[int, HeadScore] = {}
    for part, heads in probe.groups(model.heads):
        there, again = (of_heads(w, heads) for w in (weights, shuffled))
        scores |= zip(heads, _score_group(model, task, part, heads, there, again, seed), strict=True)
    return [scores[i] for i in range(len(model.heads))]


def _score_group(
    model: TransformerLM, task: Task, probe: Probe, group: list[int], weights: Tensor, shuffled: Tensor, seed: int
) -> list[HeadScore]:
    """Score the heads of a group, whose layers see the same keys: weights (B, N, T, T) on both kinds of rows."""
    found = lifts(weights, probe)
    scored = scored_lifts(weights, probe, found)
    figures = {**shape(weights, probe.visible), "positionality": positionality(weights, shuffled, probe)}
    columns = {name: values.tolist() for name, values in figures.items()}
    gaps = gap_lifts(model, task, seed, group)
    kinds = {"trained_gaps": gaps.trained, "unseen_gaps": gaps.unseen, "duplicate_gaps": gaps.duplicate}
    by_gap = {name: {gap: lift.tolist() for gap, lift in part.items()} for name, part in kinds.items()}
    heads = []
    for i, address in enumerate(model.heads[index] for index in group):
        scores = {
            name: TargetScore(
                mass=float(lift.mass[i]),
                uniform=float(lift.uniform[i]),
                lift=float(lift.lift[i]),
                scored=scored[name][i],
                symbol=None if (token := lift.numbers(i).token) is None else task.symbols([token])[0],
                **lift.numbers(i)._asdict(),
            )
            for name, lift in found.items()
        }
        own: dict[str, Any] = {name: finite_or_none(values[i]) for name, values in columns.items()}
        own |= {name: {gap: lift[i] for gap, lift in part.items()} for name, part in by_gap.items()}
        heads.append(HeadScore(*address, scores, gap_limit=gaps.limit, **own))
    return heads
