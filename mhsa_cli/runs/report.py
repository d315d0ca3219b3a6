"""What was measured of heads as the plain data of heads.json, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from mhsa_cli.records import HeadReport, HeadScore, Label, TargetScore, Verdict

FIGURES = ("entropy", "uniformity", "confidence", "positionality")
GAPS = ("trained_gaps", "unseen_gaps", "duplicate_gaps")
CAUSES = (
    "uniform_delta_nats",
    "uniform_delta_se",
    "zero_delta_nats",
    "mean_delta_nats",
    "resample_delta_nats",
    "shapley_nats",
    "shapley_se",
)

BETWEEN = "; "  # the parts of the evidence, where it is one text


def score_to_dict(head: HeadScore) -> dict[str, Any]:
    """Write one head's measurement: `lift` and `chance` are those of its target, or of the closest one if unnamed."""
    closest = max(head.scores, key=lambda name: head.scores[name].lift, default=None)
    shown = head.scores.get(head.target or closest or "")
    return {
        "label": None if head.label is None else head.label.text,
        "label_id": None if head.label is None else head.label.id,
        "target": head.target,
        "closest": closest,
        "lift": None if shown is None else shown.lift,
        "chance": None if shown is None else shown.chance,
        "scores": {
            **{name: asdict(score) for name, score in head.scores.items()},
            **{name: getattr(head, name) for name in FIGURES},
        },
        **{name: {str(gap): lift for gap, lift in getattr(head, name).items()} for name in GAPS},
        **{name: getattr(head, name) for name in CAUSES},
        "evidence": BETWEEN.join(head.evidence),
        "evidence_parts": list(head.evidence),
    }


def verdict_to_dict(verdict: Verdict) -> dict[str, Any]:
    """Write the verdict."""
    return asdict(verdict)


def report_from_dict(content: Mapping[str, Any]) -> HeadReport | None:
    """Read the measurement back; None if the file holds none. Raises: KeyError, TypeError or ValueError if damaged."""
    if content.get("verdict") is None:
        return None
    known = {field.name for field in fields(Verdict)}
    verdict = Verdict(**{name: value for name, value in content["verdict"].items() if name in known})
    texts = (verdict.text, verdict.inputs, verdict.withheld)
    if not all(isinstance(text, str) for text in texts) or not isinstance(verdict.pattern_matters, bool | None):
        raise ValueError("the verdict's texts should be texts")
    check_numbers([verdict.joint_delta_nats, verdict.loss_nats, verdict.redundancy, verdict.effective_heads])
    return HeadReport(verdict, [_score(head) for head in content["heads"]])


def _score(head: Mapping[str, Any]) -> HeadScore:
    scores = {
        name: TargetScore(one["mass"], one["chance"], one["lift"], one["distance"], one["null"])
        for name, one in head["scores"].items()
        if name not in FIGURES
    }
    figures = {name: head["scores"].get(name) for name in FIGURES}
    gaps: dict[str, Any] = {name: {int(gap): lift for gap, lift in head[name].items()} for name in GAPS}
    causes = {name: head[name] for name in CAUSES}
    certain = [x for one in scores.values() for x in (one.mass, one.chance, one.lift)]
    certain += [lift for part in gaps.values() for lift in part.values()]
    if None in certain:
        raise ValueError("a head's lifts should be numbers")
    check_numbers([*certain, *(x for one in scores.values() for x in (one.distance, one.null))])
    check_numbers([*figures.values(), *causes.values()])
    label, target, evidence = _label(head), head["target"], _evidence(head)
    if target is not None and target not in scores:
        raise ValueError(f"a head's target {target!r} has no score")
    if target != (None if label is None else label.target):
        raise ValueError("a head's label and its target should be of one kind")
    return HeadScore(head["layer"], head["head"], scores, **figures, **gaps, **causes, label=label, evidence=evidence)


def _label(head: Mapping[str, Any]) -> Label | None:
    """Read a head's label: older files have its words alone. Raises: ValueError."""
    words = head["label"]
    told = head.get("label_id", words)
    label = Label.from_id(told) if "label_id" in head else Label.from_words(words)
    if told is not None and label is None:
        raise ValueError("a head's label should be one that is known")
    return label


def _evidence(head: Mapping[str, Any]) -> tuple[str, ...]:
    """Read the evidence: older files have one text. Raises: ValueError."""
    parts = head["evidence_parts"] if "evidence_parts" in head else head["evidence"]
    parts = parts.split(BETWEEN) if isinstance(parts, str) else parts
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a head's evidence should be texts")
    return tuple(parts)


def check_numbers(values: Sequence[Any]) -> None:
    """Refuse what is neither a finite number nor None. Raises: ValueError."""
    for value in values:
        fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if value is not None and not fine:
            raise ValueError("a head's figures should be numbers")
