"""The head report of a model: the verdict, and every head's scores, effects and label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import finite_or_none, head_weights
from mhsa_cli.core.heads.causal import Ablator, Effect, effective_heads, redundancy, shapley
from mhsa_cli.core.heads.labels import JOINT, label_head, similar_heads, with_backups
from mhsa_cli.core.heads.probe import Probe, build_probe
from mhsa_cli.core.heads.random_baseline import null_limits
from mhsa_cli.core.heads.scores import concat_heads, gap_lifts, lifts, positionality, shape
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import sums
from mhsa_cli.records.claims import Claim, Predicate, Status
from mhsa_cli.records.heads import HeadReport, HeadScore, TargetScore, Verdict

NEGATIVE = 0.01  # a Shapley value below minus this part of the joint effect makes the effective number meaningless


@torch.no_grad()
def head_report(model: TransformerLM, task: Task, seed: int, limits: Mapping[str, float] | None = None) -> HeadReport:
    """Score, ablate and label every head on held-out rows; the model does not change.

    What could not be measured is None, and the verdict says why. `limits` are the `null_limits` of this shape and task,
    measured by default.
    """
    unscored = [HeadScore(*address, scores={}) for address in model.heads]
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        return _unmeasured(unscored, "weights not finite")
    probe = build_probe(model, task, seed)
    if probe is None:
        return _unmeasured(unscored, "rows too long", seq_len=task.seq_len)
    if model.custom is not None:
        return _custom_report(model, task, probe, seed, limits)
    ablator = Ablator(model, probe.batch)
    if not math.isfinite(ablator.loss):
        return _unmeasured(unscored, "loss not finite", probe.inputs)
    joint = ablator.joint("uniform")
    heads = _with_effects(_scored(model, task, probe, ablator.clean.weights, seed, limits), ablator, seed)
    verdict = _verdict(model, task, probe, ablator, joint, heads)
    return HeadReport(verdict, _with_backups([label_head(head, verdict) for head in heads], ablator))


def _custom_report(
    model: TransformerLM, task: Task, probe: Probe, seed: int, limits: Mapping[str, float] | None
) -> HeadReport:
    """Score the patterns of custom attention, whose heads cannot be ablated."""
    heads = _scored(model, task, probe, head_weights(model, probe.ids), seed, limits)
    inputs, targets = (ids.to(model.pos.device).unsqueeze(0) for ids in (probe.batch.inputs, probe.batch.targets))
    with eval_mode(model):
        loss, _, count = sums(model(inputs[0]).unsqueeze(0), targets)
    why = Claim("model", "custom attention")
    claims = [Claim("model", "patterns not measured", status=Status.NOT_MEASURED, evidence={"why": why})]
    verdict = Verdict(None, None, None, finite_or_none(loss[0] / count[0]), claims, probe.inputs, withheld=why)
    return HeadReport(verdict, [label_head(head, verdict, why) for head in heads])


def _with_backups(heads: list[HeadScore], ablator: Ablator) -> list[HeadScore]:
    """Test whether heads without an effect of their own have one when similar heads are uniform too."""
    found = []
    for head in heads:
        backups = similar_heads(head, heads)
        if backups and ablator.spend(2):
            rest = [other.address for other in backups]
            delta = ablator.joint("uniform", [*rest, head.address]).delta - ablator.joint("uniform", rest).delta
            head = with_backups(head, backups, delta)
        found.append(head)
    return found


def _unmeasured(heads: list[HeadScore], why: Predicate, inputs: str = "", **evidence: int) -> HeadReport:
    reason = Claim("model", why, evidence=evidence)
    claim = Claim("model", "heads not measured", status=Status.NOT_MEASURED, evidence={"why": reason})
    verdict = Verdict(None, None, None, None, [claim], inputs, withheld=reason)
    return HeadReport(verdict, [label_head(head, verdict) for head in heads])


def _scored(
    model: TransformerLM, task: Task, probe: Probe, clean: list[Tensor], seed: int, limits: Mapping[str, float] | None
) -> list[HeadScore]:
    """Score every head's pattern; `clean` are the weights on the probe, by layer."""
    weights, limits = concat_heads(clean), null_limits(model, task) if limits is None else limits
    targets = {}  # by name, each head's mass, the uniform head's, lift and distance
    for name, found in lifts(weights, probe).items():
        distance = [None] * len(found.mass) if found.distance is None else found.distance.tolist()
        targets[name] = list(
            zip(found.mass.tolist(), found.uniform.tolist(), found.lift.tolist(), distance, strict=True)
        )
    random_weights = concat_heads(head_weights(model, probe.random))
    figures = {**shape(weights, probe.visible), "positionality": positionality(random_weights, probe.visible)}
    columns = {name: values.tolist() for name, values in figures.items()}
    gaps = gap_lifts(model, task, seed)
    by_gap = {f"{name}_gaps": {gap: lift.tolist() for gap, lift in part.items()} for name, part in gaps.items()}
    heads = []
    for i, address in enumerate(model.heads):
        scores = {name: TargetScore(*target[i], limits.get(name)) for name, target in targets.items()}
        own: dict[str, Any] = {name: finite_or_none(values[i]) for name, values in columns.items()}
        own |= {name: {gap: lift[i] for gap, lift in part.items()} for name, part in by_gap.items()}
        heads.append(HeadScore(*address, scores, **own))
    return heads


def _with_effects(heads: list[HeadScore], ablator: Ablator, seed: int) -> list[HeadScore]:
    """Ablate each head in every way and add Shapley values; what exceeds the budget stays None."""

    def deltas(effects: list[Effect] | None) -> list[float] | None:
        return None if effects is None else [effect.delta for effect in effects]

    uniform, shares = ablator.each("uniform"), shapley(ablator, seed)
    effects = {
        "uniform_delta_nats": deltas(uniform),
        "uniform_delta_se": None if uniform is None else [effect.se for effect in uniform],
        "shapley_nats": None if shares is None else shares.values,
        "shapley_se": None if shares is None else shares.se,
        **{f"{kind}_delta_nats": deltas(ablator.each(kind)) for kind in ("zero", "mean", "resample")},
    }
    known: dict[str, list[Any]] = {name: values for name, values in effects.items() if values is not None}
    return [replace(head, **{name: values[i] for name, values in known.items()}) for i, head in enumerate(heads)]


def _verdict(
    model: TransformerLM, task: Task, probe: Probe, ablator: Ablator, joint: Effect, heads: list[HeadScore]
) -> Verdict:
    """Decide whether the patterns matter at all: the condition for every label."""
    delta = joint.delta
    limit, try_task = max(JOINT, 2 * joint.se), None
    matters = delta >= limit
    losses: dict[str, Any] = {"loss": ablator.loss, "without": ablator.loss + delta, "task": task.name}
    if matters:
        claims = [Claim("model", "pattern matters", delta, joint.se, limit, evidence=losses)]
    else:
        claims = [Claim("model", "no effect shown", delta, joint.se, limit, Status.NOT_SHOWN, losses)]
        if all(attn.kind == "uniform" for attn in model.mixers):
            claims = [Claim("model", "frozen uniform")]
        elif ablator.loss > 0.9 * task.chance_loss:
            claims.append(Claim("model", "not learned", ablator.loss, reference=task.chance_loss))
        claims.append(Claim("model", "heads not labelled", status=Status.NOT_MEASURED))
        try_task = "copy" if task.name != "copy" else None
    singles = [h.uniform_delta_nats for h in heads if h.uniform_delta_nats is not None]
    shares = [h.shapley_nats for h in heads if h.shapley_nats is not None]
    withheld = None
    if not matters:
        withheld = Claim("model", "joint effect too small", delta, joint.se, limit, Status.NOT_SHOWN)
    elif len(singles) < len(heads) or len(shares) < len(heads):
        withheld = Claim("model", "not all measured", status=Status.NOT_MEASURED)
    complete = withheld is None
    if complete and min(shares) < -NEGATIVE * delta:
        withheld = Claim("model", "negative shares", min(shares), reference=-NEGATIVE * delta)
    return Verdict(
        matters,
        delta,
        joint.se,
        ablator.loss,
        claims,
        probe.inputs,
        try_task,
        redundancy(singles, delta) if complete else None,
        effective_heads(shares) if withheld is None else None,
        withheld,
    )
