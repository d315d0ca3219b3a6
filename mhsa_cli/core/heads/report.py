"""The whole measurement of a model's heads: verdict first, then every head's scores, causes and label."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import figure
from mhsa_cli.core.heads.causal import Effect, Ground, effective_heads, redundancy, shapley
from mhsa_cli.core.heads.hooks import head_weights
from mhsa_cli.core.heads.labels import JOINT, label_all, look_alikes, with_stand_ins
from mhsa_cli.core.heads.probe import Probe, build_probe
from mhsa_cli.core.heads.random_baseline import null_limits
from mhsa_cli.core.heads.scores import Lift, gap_lifts, heads_together, lifts, positionality, shape
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.tasks.base import sums
from mhsa_cli.records.claims import Claim, Predicate, Status
from mhsa_cli.records.heads import HeadReport, HeadScore, TargetScore, Verdict

NEGATIVE = 0.01  # a share below minus this part of the whole makes counting heads meaningless


@torch.no_grad()
def head_report(model: TransformerLM, task: Task, seed: int, limits: Mapping[str, float] | None = None) -> HeadReport:
    """Measure every head on rows that training never reads, replace its pattern to see what it causes, and label it.

    Works on what the model is and changes nothing of it. What could not be measured is None, and the verdict says why.
    `limits` are those of random heads (`null_limits`), which models of one shape and task share; measured if left out.
    """
    bare = [HeadScore(*address, scores={}) for address in model.heads]
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        return _nothing(bare, "weights not finite", "")
    probe = build_probe(model, task, seed)
    if probe is None:
        return _nothing(bare, "rows too long", "", seq_len=task.seq_len)
    if model.custom is not None:
        return _looks(model, task, probe, seed, limits)
    ground = Ground(model, probe.batch)
    if not math.isfinite(ground.loss):
        return _nothing(bare, "loss not finite", probe.inputs)
    joint = ground.together("uniform")
    heads = _with_causes(_scored(model, task, probe, ground.clean.weights, seed, limits), ground, seed)
    verdict = _verdict(model, task, probe, ground, joint, heads)
    return HeadReport(verdict, _with_stand_ins(label_all(heads, verdict), ground))


def _looks(model: TransformerLM, task: Task, probe: Probe, seed: int, limits: Mapping[str, float] | None) -> HeadReport:
    """Score the heads of a block that is not ours: where they look, but not what they cause."""
    heads = _scored(model, task, probe, head_weights(model, probe.ids), seed, limits)
    inputs, targets = (ids.to(model.pos.device).unsqueeze(0) for ids in (probe.batch.inputs, probe.batch.targets))
    with eval_mode(model):
        loss, _, count = sums(model(inputs[0]).unsqueeze(0), targets)
    why = Claim("model", "custom block")
    claims = [_unknown("patterns not measured", why)]
    verdict = Verdict(None, None, None, figure(loss[0] / count[0]), claims, probe.inputs, withheld=why)
    return HeadReport(verdict, label_all(heads, verdict, why))


def _with_stand_ins(heads: list[HeadScore], ground: Ground) -> list[HeadScore]:
    """Look whether heads that alone are idle do work once those that look alike are gone."""
    found = []
    for head in heads:
        others = look_alikes(head, heads)
        if others and ground.affords(2):
            rest = [one.address for one in others]
            without = ground.together("uniform", [*rest, head.address])
            head = with_stand_ins(head, others, without.delta - ground.together("uniform", rest).delta)
        found.append(head)
    return found


def _nothing(heads: list[HeadScore], why: Predicate, inputs: str, **evidence: int) -> HeadReport:
    reason = Claim("model", why, evidence=evidence)
    verdict = Verdict(None, None, None, None, [_unknown("heads not measured", reason)], inputs, withheld=reason)
    return HeadReport(verdict, label_all(heads, verdict))


def _unknown(what: Predicate, why: Claim) -> Claim:
    return Claim("model", what, status=Status.NOT_MEASURED, evidence={"why": why})


def _scored(
    model: TransformerLM, task: Task, probe: Probe, clean: list[Tensor], seed: int, limits: Mapping[str, float] | None
) -> list[HeadScore]:
    """Score every head's weights; `clean` are those on the probe, by layer."""
    weights = heads_together(clean)
    found, limits = lifts(weights, probe), null_limits(model, task) if limits is None else limits
    rows = {name: _columns(one) for name, one in found.items()}
    bound = positionality(heads_together(head_weights(model, probe.random)), probe.visible)
    looks = {**shape(weights, probe.visible), "positionality": bound}
    columns = {name: values.tolist() for name, values in looks.items()}
    gaps = gap_lifts(model, task, seed)
    by_gap = {f"{name}_gaps": {gap: lift.tolist() for gap, lift in part.items()} for name, part in gaps.items()}
    heads = []
    for i, address in enumerate(model.heads):
        scores = {name: TargetScore(*row[i], limits.get(name)) for name, row in rows.items()}
        own: dict[str, Any] = {name: figure(values[i]) for name, values in columns.items()}
        own |= {name: {gap: lift[i] for gap, lift in part.items()} for name, part in by_gap.items()}
        heads.append(HeadScore(*address, scores, **own))
    return heads


def _columns(one: Lift) -> list[tuple[float, float, float, int | None]]:
    """Give each head's mass, the uniform head's, the lift and the distance."""
    mass, uniform, lift = one.mass.tolist(), one.uniform.tolist(), one.lift.tolist()
    distance = [None] * len(mass) if one.distance is None else one.distance.tolist()
    return list(zip(mass, uniform, lift, distance, strict=True))


def _with_causes(heads: list[HeadScore], ground: Ground, seed: int) -> list[HeadScore]:
    """Replace each head in turn, the dearest last; what costs too much stays None."""

    def deltas(effects: list[Effect] | None) -> list[float] | None:
        return None if effects is None else [effect.delta for effect in effects]

    uniform, shares = ground.one_by_one("uniform"), shapley(ground, seed)
    causes = {
        "uniform_delta_nats": deltas(uniform),
        "uniform_delta_se": None if uniform is None else [effect.se for effect in uniform],
        "shapley_nats": None if shares is None else shares.values,
        "shapley_se": None if shares is None else shares.se,
        **{f"{kind}_delta_nats": deltas(ground.one_by_one(kind)) for kind in ("zero", "mean", "resample")},
    }
    known: dict[str, list[Any]] = {name: values for name, values in causes.items() if values is not None}
    return [replace(head, **{name: values[i] for name, values in known.items()}) for i, head in enumerate(heads)]


def _verdict(
    model: TransformerLM, task: Task, probe: Probe, ground: Ground, joint: Effect, heads: list[HeadScore]
) -> Verdict:
    """Say whether the patterns matter at all, before any head is named."""
    delta = joint.delta
    limit, try_task = max(JOINT, 2 * joint.se), None
    matter = delta >= limit
    spread: dict[str, Any] = {"loss": ground.loss, "without": ground.loss + delta, "task": task.name}
    if matter:
        claims = [Claim("model", "pattern matters", delta, joint.se, limit, evidence=spread)]
    else:
        none = Status.NOT_SHOWN
        claims = [Claim("model", "no effect shown", delta, joint.se, limit, none, spread)]
        if all(block.kind == "uniform" for block in model.mixers):
            claims = [Claim("model", "frozen uniform")]
        elif ground.loss > 0.9 * task.chance_loss:
            claims.append(Claim("model", "not learned", ground.loss, reference=task.chance_loss))
        claims.append(Claim("model", "heads not labelled", status=Status.NOT_MEASURED))
        try_task = "copy" if task.name != "copy" else None
    singles = [h.uniform_delta_nats for h in heads if h.uniform_delta_nats is not None]
    shares = [h.shapley_nats for h in heads if h.shapley_nats is not None]
    withheld = None
    if not matter:
        withheld = Claim("model", "shares mean nothing", delta, joint.se, limit, Status.NOT_SHOWN)
    elif len(singles) < len(heads) or len(shares) < len(heads):
        withheld = Claim("model", "not all measured", status=Status.NOT_MEASURED)
    whole = withheld is None
    if whole and min(shares) < -NEGATIVE * delta:
        withheld = Claim("model", "shares negative", min(shares), reference=-NEGATIVE * delta)
    return Verdict(
        matter,
        delta,
        joint.se,
        ground.loss,
        claims,
        probe.inputs,
        try_task,
        redundancy(singles, delta) if whole else None,
        effective_heads(shares) if withheld is None else None,
        withheld,
    )
