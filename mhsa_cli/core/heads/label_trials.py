"""The choice of a head's label: of the targets that its pattern allows, the one whose ideal head keeps its effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from mhsa_cli.core.heads.causal import Ablator
from mhsa_cli.core.heads.labels import confirmed, exceeds_nulls, extent_of, label_on, labels_of
from mhsa_cli.core.heads.parts import further_targets
from mhsa_cli.core.heads.probe import Probe
from mhsa_cli.core.heads.replacement import Trial, ideal_weights, mixed, try_labels
from mhsa_cli.core.heads.targets import target_of
from mhsa_cli.core.heads.teamwork import WORKING
from mhsa_cli.records.claims import Claim
from mhsa_cli.records.heads import HeadScore
from mhsa_cli.records.labels import ROLE_TARGETS, Extent, Label
from mhsa_cli.text import Head

MOST_LABELS = 3  # of one head, that are tested


def with_tested_labels(
    ablator: Ablator, probe: Probe, heads: Sequence[HeadScore], rest: Mapping[Head, Sequence[Head]]
) -> tuple[list[HeadScore], dict[Head, Tensor]]:
    """Choose every head's label by what its ideal keeps; also return the weights of each ideal head.

    A head is tested with the heads in `rest` uniform: its backup heads.
    """
    looks = len(ablator.heads)
    trials = {
        head.address: trials_of(head, ablator.clean.weights[head.layer][:, head.head], probe)
        for head in heads
        if head.role in WORKING
    }
    tried = try_labels(ablator, {head: own for head, own in trials.items() if own}, rest)
    found = []
    for head in heads:
        if (one := tried.get(head.address)) is not None:
            label, kept = one.trial.label, one.kept
            if kept is not None:
                extent = extent_of(*kept, looks)
                if extent is None and one.trial.besides:  # not by this target alone
                    extent = Extent.PARTLY
                label = replace(label, extent=extent)
                head = replace(head, kept=kept.delta, kept_se=kept.se)
            also = [
                Claim(head.name, "also attends", part, evidence={"target": target.id})
                for target, part in one.trial.besides
            ]
            head = replace(head, label=label, evidence=(*head.evidence, *also))
        found.append(head)
    return found, {head: one.trial.ideal for head, one in tried.items()}


def trials_of(head: HeadScore, weights: Tensor, probe: Probe) -> list[Trial]:
    """Return the labels that a head may have with their ideal weights, alone and then with further targets.

    `weights` (B, T, T) are the head's on the probe.
    """
    if head.role is None:
        return []
    probe = probe.of(head.layer)
    labels = [one for one in labels_of(head, head.role, probe.ids.size(1)) if one.target is not None][:MOST_LABELS]
    alone = [Trial(label, ideal_weights(keys_of(label, probe), probe.visible)) for label in labels]
    return [*alone, *(trial for label in labels[:1] if (trial := _mixture(head, label, weights, probe)).besides)]


def keys_of(label: Label, probe: Probe) -> Tensor:
    """Return the keys of a label's target on the probe: (B or 1, T, T)."""
    return target_of(label.kind, label, probe.task)(probe.ids)


def _mixture(head: HeadScore, label: Label, weights: Tensor, probe: Probe) -> Trial:
    """Return a label with the further targets that take part of the weight it leaves."""
    keys, visible = keys_of(label, probe), probe.visible
    others = {
        name: label_on(name, score)
        for name, score in head.scores.items()
        if name not in (label.kind, *ROLE_TARGETS) and exceeds_nulls(score) and confirmed(head, name)
    }
    further = {name: keys_of(one, probe) for name, one in others.items()}
    parts = further_targets(weights.cpu().double(), keys, further, visible)
    mass = head.scores[label.kind].mass
    ideals = [ideal_weights(part, visible) for part in (keys, *(part.keys for part in parts))]
    ideal = mixed(ideals, [mass, *(part.part * (1 - mass) for part in parts)])
    return Trial(label, ideal, [(others[part.name], part.part) for part in parts])
