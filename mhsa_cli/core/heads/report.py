"""The head report of a model: the verdict, and every head's scores, effects and label."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.core.heads.capture import finite_or_none, head_weights
from mhsa_cli.core.heads.causal import Ablator, Effect
from mhsa_cli.core.heads.causes import ALONE, JOINT, SHARE, backups, cancelling, effect_status, role_of
from mhsa_cli.core.heads.head_claims import effect_claims, kept_claim, pattern_claims
from mhsa_cli.core.heads.head_scores import score_heads
from mhsa_cli.core.heads.headline import headline, path_claim, paths_to_test
from mhsa_cli.core.heads.label_trials import with_tested_labels
from mhsa_cli.core.heads.labels import labels_of
from mhsa_cli.core.heads.logit_attribution import direct_logits
from mhsa_cli.core.heads.path_patching import all_paths, path_patch
from mhsa_cli.core.heads.probe import Probe, build_probe
from mhsa_cli.core.heads.random_baseline import Limits, null_limits, random_limits, with_limits
from mhsa_cli.core.heads.replacement import kept_together
from mhsa_cli.core.heads.shapley import exact_shapley, precise_shapley
from mhsa_cli.core.heads.stream import output_maps
from mhsa_cli.core.heads.teamwork import groups_of, teamwork
from mhsa_cli.core.heads.verdict import Rows, judge_model, label_claims, seen_claims, share_work, work_claims
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.tasks import Batch, Task, TrainBatches
from mhsa_cli.core.tasks.base import stream_generator, sums
from mhsa_cli.core.training.overlap import seen_in_training
from mhsa_cli.errors import UsageError
from mhsa_cli.records.claims import Claim, Predicate, Status, judge
from mhsa_cli.records.heads import WAYS, HeadReport, HeadScore, Interaction, Path, PathEffect, Verdict
from mhsa_cli.records.labels import Label, Role
from mhsa_cli.text import Head, plural

MOST_PATHS, SHOWN_PATHS = 1024, 8  # paths between heads that are patched, and that are stated
MORE = 30  # times the budget, where more is asked for
PAIRS = 15  # pairs of heads that are made uniform together where not all coalitions were measured


@torch.no_grad()
def head_report(
    model: TransformerLM,
    task: Task,
    seed: int,
    limits: Callable[[], Limits] | None = None,
    training: tuple[TrainBatches, int] | None = None,
    more: bool = False,
) -> HeadReport:
    """Score, ablate and label every head on held-out rows; the model does not change.

    What could not be measured is None, and the verdict says why. `limits` returns the `null_limits` of this shape and
    task, by default measured here; it is called only if heads are labelled. `training` has its batches and the number
    of steps, by which rows seen in training are known.
    `more` also measures what takes long: Shapley values of more than 10 heads, and the paths between all heads.
    """
    limits = limits or (lambda: null_limits(model, task))
    unscored = [HeadScore(*address, scores={}) for address in model.heads]
    if not all(bool(p.isfinite().all()) for p in model.parameters()):
        return _unmeasured(unscored, "weights not finite")
    probe = build_probe(model, task, seed)
    if probe is None:
        return _unmeasured(unscored, "rows too long", seq_len=task.seq_len)
    seen = None if training is None else seen_in_training(*training, len(probe.ids), "probe")
    if model.custom is not None:
        return _custom_report(model, task, probe, seed, seen, limits)
    ablator = Ablator(model, probe.batch)
    if not math.isfinite(ablator.loss):
        return _unmeasured(unscored, "loss not finite", probe.inputs)
    heads = score_heads(model, task, probe, ablator.clean.weights, seed)
    ablator.budget *= MORE if more else 1
    return Report(model, task, probe, ablator, seed, seen, limits, more).of(heads)


class Report:
    """Measures causes and labels of scored heads on one probe."""

    def __init__(
        self,
        model: TransformerLM,
        task: Task,
        probe: Probe,
        ablator: Ablator,
        seed: int,
        seen: int | None,
        limits: Callable[[], Limits],
        more: bool,
    ) -> None:
        self.model, self.task, self.probe, self.ablator = model, task, probe, ablator
        self.seed, self.seen, self.limits, self.looks = seed, seen, limits, len(ablator.heads)
        self.more = more
        self.shapley = exact_shapley(ablator) or (precise_shapley(ablator, seed) if more else None)
        self.excess: Effect | None = None  # of single effects over the joint one

    def of(self, heads: list[HeadScore]) -> HeadReport:
        ablator = self.ablator
        joint = ablator.joint("uniform")
        shown = joint.delta if judge(*joint, JOINT) is Status.SHOWN else None
        heads = self._with_effects(heads, shares=shown is not None)
        heads = self._with_roles(heads, shown)
        frozen = all(attn.kind == "uniform" for attn in self.model.mixers)
        verdict = judge_model(self._rows(), joint, heads, frozen)
        if not verdict.pattern_matters:
            withheld, fields = share_work(verdict, heads, (), None)
            unlabelled = [self._unlabelled(head) for head in heads]
            return HeadReport(replace(verdict, **fields, withheld=withheld), unlabelled, ablator.coalition_losses())
        heads = with_limits(heads, self.limits(), random_limits(self.model, self.probe))
        pairs = self._interactions() if shown is not None else []
        heads = [self._labelled(head) for head in heads]
        others = {h.address: [b.address for b in self._backups(h, heads, pairs)] for h in heads}
        heads = [self._with_backups(head, others[head.address]) for head in heads]
        heads, ideals = with_tested_labels(ablator, self.probe, heads, others)
        kept = kept_together(ablator, ideals)
        withheld, fields = share_work(verdict, heads, pairs, kept)
        verdict = replace(verdict, **fields, withheld=withheld)
        first = self._headline(heads, verdict, ideals)
        claims = [
            *first,
            *label_claims(verdict),
            *verdict.claims,
            *work_claims(verdict, heads, self.excess),
            *self._teamwork(heads, verdict),
        ]
        verdict = replace(verdict, claims=claims)
        found = [self._with_evidence(head, shown, others[head.address]) for head in heads]
        return HeadReport(verdict, found, ablator.coalition_losses())

    def _with_effects(self, heads: list[HeadScore], shares: bool) -> list[HeadScore]:
        """Ablate each head in every way and add Shapley values; what exceeds the budget stays None.

        The `shares` are those of a joint effect that was shown.
        """
        shapley = self.shapley
        columns: dict[str, list[float]] = {}
        for kind in WAYS:
            effects = self._singles() if kind == "uniform" else self.ablator.each(kind)
            if effects is not None:
                columns[f"{kind}_delta_nats"] = [effect.delta for effect in effects]
                columns[f"{kind}_delta_se"] = [effect.se for effect in effects]
        if shapley is not None:
            columns |= {"shapley_nats": [one.delta for one in shapley.values]}
            columns |= {"shapley_se": [one.se for one in shapley.values]}
            if shares and all(math.isfinite(one.delta + one.se) for one in shapley.shares):
                columns |= {"share": [one.delta for one in shapley.shares]}
                columns |= {"share_se": [one.se for one in shapley.shares]}
        found: list[HeadScore] = []
        for i, head in enumerate(heads):
            values: dict[str, Any] = {name: values[i] for name, values in columns.items()}
            found.append(replace(head, **values))
        return found

    def _singles(self) -> list[Effect] | None:
        """Return the effect of making each head uniform, and keep by how much their sum exceeds the joint effect."""
        ablator, heads = self.ablator, self.ablator.heads
        if not self._affords(len(heads) + 1):
            return None
        rows = ablator.uniform_rows([*([head] for head in heads), heads])
        *singles, joint = rows - ablator.clean_rows
        self.excess = ablator.means((sum(singles) - joint).unsqueeze(0))[0]
        return ablator.means(torch.stack(singles))

    def _uniform(self, groups: Sequence[Sequence[Head]]) -> list[Effect] | None:
        """Return the effect of making each group of heads uniform; None where that exceeds the budget."""
        if not groups:
            return []
        return self.ablator.effects(self.ablator.uniform_rows(groups)) if self._affords(len(groups)) else None

    def _affords(self, groups: int) -> bool:
        """Spend the budget for groups of uniform heads, unless all are known."""
        return self.ablator.coalitions is not None or self.ablator.spend(groups)

    def _with_roles(self, heads: list[HeadScore], joint: float | None) -> list[HeadScore]:
        alone = {head.address: effect_status(head, "uniform", self.looks) for head in heads}
        cancelled = self._cancelled(heads, alone)
        against = self._direct() if Status.OPPOSITE in alone.values() else {}
        return [
            replace(
                head,
                role=role_of(head, joint, self.looks, head.address in cancelled, against.get(head.address)),
                evidence=self._cancel_claim(head, cancelled),
            )
            for head in heads
        ]

    def _cancel_claim(self, head: HeadScore, cancelled: Mapping[Head, Head]) -> tuple[Claim, ...]:
        if head.address not in cancelled:
            return ()
        other = {"others": [str(cancelled[head.address])]}
        return (Claim(head.name, "cancels", head.uniform_delta_nats, head.uniform_delta_se, evidence=other),)

    def _cancelled(self, heads: Sequence[HeadScore], alone: Mapping[Head, Status]) -> dict[Head, Head]:
        singles = {
            h.address: h.uniform_delta_nats
            for h in heads
            if alone[h.address] is Status.SHOWN and h.uniform_delta_nats is not None
        }
        names = list(singles)
        pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
        effects = self._uniform(pairs) if self.shapley is not None or len(pairs) <= PAIRS else None
        if effects is None:
            return {}
        return cancelling(singles, {pair: effect.delta for pair, effect in zip(pairs, effects, strict=True)})

    def _direct(self) -> Mapping[Head, float]:
        """Measure what each head adds to the answer's logit, less its mean over all logits, of a decoder alone."""
        if self.model.source:
            return {}
        batch = Batch(self.ablator.inputs, self.probe.batch.targets.to(self.ablator.inputs.device))
        figures, _ = direct_logits(self.model, batch, self.ablator.clean.logits)
        return {head: figure.mean for head, figure in figures.items()}

    def _rows(self) -> Rows:
        """Measure the loss on as many rows of the training data."""
        probe, ablator, gap = self.probe, self.ablator, None
        if self.task.holds_back:  # fresh rows of a task that draws them are no training data
            generator = stream_generator(self.seed, "probe-train", 0)
            drawn = Ablator(self.model, self.task.draw(len(probe.ids), generator))
            held_out, trained = (one.means(one.clean_rows.unsqueeze(0))[0] for one in (ablator, drawn))
            gap = Effect(held_out.delta - trained.delta, math.hypot(held_out.se, trained.se))
        inputs, n = _inputs(probe, self.seen), len(probe.ids)
        return Rows(self.task.name, inputs, ablator.loss, self.task.chance_loss, n, gap, self.seen)

    def _unlabelled(self, head: HeadScore) -> HeadScore:
        why = Claim(head.name, "not labelled", status=Status.NOT_MEASURED)
        return replace(head, label=None, evidence=(why, *effect_claims(head, None, self.looks, None)))

    def _interactions(self) -> list[Interaction]:
        names = self.ablator.heads
        pairs = {} if self.shapley is None else self.shapley.pairs
        return [Interaction(names[i], names[j], *effect) for (i, j), effect in pairs.items()]

    def _labelled(self, head: HeadScore) -> HeadScore:
        if head.role is None:
            return head
        written = self.ablator.clean.outputs[head.layer][:, head.head]
        W_O = output_maps(self.model.attention[head.layer])[head.head]
        if head.role in (Role.NO_EFFECT, Role.PATTERN) and not bool((written @ W_O).any()):
            return replace(head, label=Label("dead"))
        return replace(head, label=labels_of(head, head.role, self.probe.ids.size(1))[0])

    def _backups(self, head: HeadScore, heads: Sequence[HeadScore], pairs: Sequence[Interaction]) -> list[HeadScore]:
        if effect_status(head, "uniform", self.looks) is not Status.NOT_SHOWN:
            return []
        return backups(head, heads, pairs)

    def _with_backups(self, head: HeadScore, rest: Sequence[Head]) -> HeadScore:
        """Test whether a head without an effect alone has one when its backup heads are uniform too."""
        if not rest or not self._affords(2):
            return head
        before, after = self.ablator.uniform_rows([rest, [*rest, head.address]])
        effect = self.ablator.means((after - before).unsqueeze(0))[0]
        if judge(*effect, ALONE, self.looks) is not Status.SHOWN:
            return head
        claim = Claim(head.name, "backup heads", *effect, ALONE, evidence={"others": [str(other) for other in rest]})
        role = Role.REDUNDANT if head.role in (Role.NO_EFFECT, Role.OUTPUT) else head.role
        label = head.label
        if label is not None and label.role is not None:
            label = replace(label, role=role)
        return replace(head, role=role, label=label, evidence=(*head.evidence, claim))

    def _headline(self, heads: Sequence[HeadScore], verdict: Verdict, ideals: Mapping[Head, Tensor]) -> list[Claim]:
        """State by which heads the task is solved, where their labels account for it."""
        ablator, joint = self.ablator, verdict.joint_delta_nats or 0.0

        def rest(others: Sequence[Head]) -> float:
            effects = self._uniform([others])
            return effects[0].delta / joint if effects else 0.0

        def kept(alone: Sequence[Head]) -> float | None:
            if set(alone) == ideals.keys():
                return verdict.labels_kept
            effect = kept_together(ablator, {head: ideals[head] for head in alone})
            return None if effect is None else effect.delta

        right = ablator.clean.logits[ablator.scored].argmax(-1) == ablator.answers
        accuracy, goal = float(right.double().mean()), self.task.goal_accuracy
        paths = self._patched(paths_to_test(heads))
        claim = headline(heads, kept, accuracy, goal, paths, rest)
        return [*([] if claim is None else [claim]), *map(path_claim, [*paths, *self._all_paths(paths)])]

    def _teamwork(self, heads: Sequence[HeadScore], verdict: Verdict) -> list[Claim]:
        groups = groups_of(heads)
        effects = self._uniform(groups)
        if effects is None:
            return []
        gap = self.task.chance_loss - self.ablator.loss
        together = dict(zip(map(tuple, groups), effects, strict=True))
        return teamwork(heads, together, gap, SHARE * (verdict.joint_delta_nats or 0.0))

    def _all_paths(self, known: Sequence[PathEffect]) -> list[PathEffect]:
        """Patch the paths between every two heads, if more is asked for, and return the strongest that were shown."""
        if not self.more or self.model.source:
            return []
        found = self._patched(all_paths(self.model)[:MOST_PATHS])
        shown = [path for path in found if path.above_null and path.path not in [one.path for one in known]]
        return sorted(shown, key=lambda path: -path.delta_nats)[:SHOWN_PATHS]

    def _patched(self, paths: Sequence[Path]) -> list[PathEffect]:
        try:
            return path_patch(self.model, self.task, self.seed, paths) if paths else []
        except UsageError:  # no corrupted rows, or rows too long: the circuit stays unconfirmed
            return []

    def _with_evidence(self, head: HeadScore, joint: float | None, rest: Sequence[Head]) -> HeadScore:
        causes = effect_claims(head, joint, self.looks, None)
        evidence = (*pattern_claims(head, self.looks), *causes, *head.evidence, *kept_claim(head, self.looks))
        return replace(head, evidence=evidence)


def _inputs(probe: Probe, seen: int | None) -> str:
    """Describe the rows; they are held out only where none was trained on."""
    n, T = probe.ids.shape
    return f"{n} {'' if seen else 'held-out '}rows of {probe.task.name}, {plural(T, 'token')} each"


def _custom_report(
    model: TransformerLM, task: Task, probe: Probe, seed: int, seen: int | None, limits: Callable[[], Limits]
) -> HeadReport:
    """Score the patterns of custom attention, whose heads cannot be ablated."""
    heads = score_heads(model, task, probe, head_weights(model, probe.ids), seed)
    heads = with_limits(heads, limits(), None)
    ids, targets = (ids.to(model.pos.device).unsqueeze(0) for ids in (probe.batch.inputs, probe.batch.targets))
    with eval_mode(model):
        loss, _, count = sums(model(ids[0]).unsqueeze(0), targets)
    why, looks = Claim("model", "custom attention"), len(heads)
    claims = [Claim("model", "patterns not measured", status=Status.NOT_MEASURED, evidence={"why": why})]
    claims += seen_claims(seen, len(probe.ids))
    inputs = _inputs(probe, seen)
    verdict = Verdict(None, None, None, finite_or_none(loss[0] / count[0]), claims, inputs, withheld=why)
    found = []
    for head in heads:
        head = replace(head, role=Role.PATTERN, label=labels_of(head, Role.PATTERN, task.seq_len)[0])
        evidence = (*pattern_claims(head, looks), *effect_claims(head, None, looks, why))
        found.append(replace(head, evidence=evidence))
    return HeadReport(verdict, found)


def _unmeasured(heads: list[HeadScore], why: Predicate, inputs: str = "", **evidence: int) -> HeadReport:
    reason = Claim("model", why, evidence=evidence)
    claim = Claim("model", "heads not measured", status=Status.NOT_MEASURED, evidence={"why": reason})
    verdict = Verdict(None, None, None, None, [claim], inputs, withheld=reason)
    nothing = [Claim(head.name, "nothing measured", status=Status.NOT_MEASURED) for head in heads]
    return HeadReport(verdict, [replace(h, evidence=(c,)) for h, c in zip(heads, nothing, strict=True)])
