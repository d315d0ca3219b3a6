"""What was measured of heads as the plain data of heads.json, and back."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mhsa_cli.records import Claim, HeadReport, HeadScore, Label, Verdict
from mhsa_cli.records.claim_words import sentences, words
from mhsa_cli.records.claims import stored
from mhsa_cli.runs.codec import from_plain, plain

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
            **plain(head.scores),
            **{name: getattr(head, name) for name in FIGURES},
        },
        **{name: plain(getattr(head, name)) for name in GAPS},
        **{name: getattr(head, name) for name in CAUSES},
        "evidence": BETWEEN.join(parts),
        "evidence_parts": parts,
    }


def verdict_to_dict(verdict: Verdict) -> dict[str, Any]:
    """Write the verdict, what it claims in words."""
    said = {"claims": sentences(verdict.claims), "withheld": words(verdict.withheld) if verdict.withheld else ""}
    return {"text" if name == "claims" else name: said.get(name, value) for name, value in plain(verdict).items()}


def report_from_dict(content: Mapping[str, Any]) -> HeadReport | None:
    """Read the measurement back; None if the file holds none. Raises: one of WRONG if damaged."""
    if content.get("verdict") is None:
        return None
    told = content["verdict"]
    withheld = told.get("withheld", "")
    said = {"claims": [_stored(told["text"])], "withheld": _stored(withheld) if withheld else None}
    verdict = from_plain(Verdict, {**told, **said}, finite=True)
    return HeadReport(verdict, [_score(head) for head in content["heads"]])


def _score(head: Mapping[str, Any]) -> HeadScore:
    """Read one head's measurement. Raises: one of WRONG."""
    scores = {name: one for name, one in head["scores"].items() if name not in FIGURES}
    figures = {name: head["scores"].get(name) for name in FIGURES}
    certain = {name: head[name] for name in (*GAPS, *CAUSES)}  # these were always there
    told = {**certain, **figures, "scores": scores, "label": _label(head), "evidence": _evidence(head)}
    score = from_plain(HeadScore, {**head, **told}, finite=True)
    if head["target"] is not None and head["target"] not in scores:
        raise ValueError(f"a head's target {head['target']!r} has no score")
    if head["target"] != score.target:
        raise ValueError("a head's label and its target should be of one kind")
    return score


def _label(head: Mapping[str, Any]) -> Label | None:
    """Read a head's label: older files have its words alone. Raises: ValueError."""
    words = head["label"]
    told = head.get("label_id", words)
    label = Label.from_id(told) if "label_id" in head else Label.from_words(words)
    if told is not None and label is None:
        raise ValueError("a head's label should be one that is known")
    return label


def _evidence(head: Mapping[str, Any]) -> list[Claim]:
    """Read the evidence: older files have one text. Raises: ValueError."""
    parts = head["evidence_parts"] if "evidence_parts" in head else head["evidence"]
    return [_stored(part) for part in (parts.split(BETWEEN) if isinstance(parts, str) else parts)]


def _stored(text: Any) -> Claim:
    """Make a claim of a sentence that the file keeps. Raises: ValueError."""
    if not isinstance(text, str):
        raise ValueError("what is said of heads should be texts")
    return stored(text)
