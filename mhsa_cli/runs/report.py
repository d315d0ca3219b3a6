"""What was measured of heads as the plain data of heads.json, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from mhsa_cli.records import Claim, HeadReport, HeadScore, Label, TargetScore, Verdict
from mhsa_cli.records.claim_words import sentences, words
from mhsa_cli.records.claims import stored

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
    parts = [words(claim) for claim in head.evidence]
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
        "evidence": BETWEEN.join(parts),
        "evidence_parts": parts,
    }


def verdict_to_dict(verdict: Verdict) -> dict[str, Any]:
    """Write the verdict, what it claims in words."""
    said = {"claims": sentences(verdict.claims), "withheld": words(verdict.withheld) if verdict.withheld else ""}
    plain = {field.name: said.get(field.name, getattr(verdict, field.name)) for field in fields(Verdict)}
    return {"text" if name == "claims" else name: value for name, value in plain.items()}


def report_from_dict(content: Mapping[str, Any]) -> HeadReport | None:
    """Read the measurement back; None if the file holds none. Raises: KeyError, TypeError or ValueError if damaged."""
    if content.get("verdict") is None:
        return None
    told, known = content["verdict"], {field.name for field in fields(Verdict)}
    text, inputs, withheld = told["text"], told["inputs"], told.get("withheld", "")
    if not all(isinstance(one, str) for one in (text, inputs, withheld)):
        raise ValueError("the verdict's texts should be texts")
    said = {"claims": [stored(text)], "withheld": stored(withheld) if withheld else None}
    verdict = Verdict(**{name: value for name, value in told.items() if name in known} | said)
    if not isinstance(verdict.pattern_matters, bool | None):
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


def _evidence(head: Mapping[str, Any]) -> tuple[Claim, ...]:
    """Read the evidence: older files have one text. Raises: ValueError."""
    parts = head["evidence_parts"] if "evidence_parts" in head else head["evidence"]
    parts = parts.split(BETWEEN) if isinstance(parts, str) else parts
    if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
        raise ValueError("a head's evidence should be texts")
    return tuple(map(stored, parts))


def check_numbers(values: Sequence[Any]) -> None:
    """Refuse what is neither a finite number nor None. Raises: ValueError."""
    for value in values:
        fine = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if value is not None and not fine:
            raise ValueError("a head's figures should be numbers")
