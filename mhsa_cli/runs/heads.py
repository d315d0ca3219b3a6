"""Head maps, and what was measured of the heads, as the plain data of heads.json, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mhsa_cli.errors import IS, DamageError
from mhsa_cli.records.claim_words import sentences, words
from mhsa_cli.records.claims import Claim, stored
from mhsa_cli.records.heads import HeadMaps, HeadReport, HeadScore, Verdict
from mhsa_cli.records.labels import Label
from mhsa_cli.runs.codec import WRONG, from_plain, plain, what_is_wrong
from mhsa_cli.runs.json_file import parse_document, restore_nonfinite
from mhsa_cli.runs.listing import HEADS, WEIGHTS
from mhsa_cli.runs.older_keys import rename_heads
from mhsa_cli.text import Head, escape

FIGURES = ("entropy", "uniformity", "confidence", "positionality")
MEASURED = (
    *("trained_gaps", "unseen_gaps", "duplicate_gaps"),
    *("uniform_delta_nats", "uniform_delta_se", "zero_delta_nats", "mean_delta_nats", "resample_delta_nats"),
    *("shapley_nats", "shapley_se"),
)
BETWEEN = "; "  # the parts of the evidence, where it is one text
ANEW = "delete heads.json, and mhsa inspect-heads computes it anew from the checkpoint; or use --tokens"


def maps_to_dict(maps: HeadMaps) -> dict[str, Any]:
    """Turn maps into JSON data: step, task, tokens, weights[layer][head][query][key], verdict, heads."""
    measured = [{} for _ in maps.heads] if maps.report is None else [score_to_dict(h) for h in maps.report.heads]
    return {
        "step": maps.step,
        "task": maps.task,
        "note": maps.note,
        "tokens": list(maps.tokens),
        "weights": maps.weights,
        "verdict": None if maps.report is None else verdict_to_dict(maps.report.verdict),
        "heads": [{**plain(head), **more} for head, more in zip(maps.heads, measured, strict=True)],
    }


def parse_heads(raw: bytes, info: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Parse heads.json, NaN restored; maps of a run's last step must be measured on the weights that run.json names.

    Keys of format 1 are renamed; older versions noted no digest. Raises: DamageError, NewerFormatError.
    """
    content = parse_document(raw, path)
    own, wanted = content.get(WEIGHTS), info.get(WEIGHTS)
    if content.get("step") == info.get("step") and None not in (own, wanted) and own != wanted:
        said = f" was measured on the weights of another run: sha256 {escape(str(own))}"
        raise DamageError((path, said), ANEW, "other-weights")
    return rename_heads(restore_nonfinite(content))


def maps_from_dict(content: Mapping[str, Any]) -> HeadMaps:
    """Read maps back. Raises: DamageError if a part is missing, or not of the kind or shape it should be."""
    try:
        maps = from_plain(HeadMaps, {**content, "report": report_from_dict(content)})
        _check(maps)
    except WRONG as error:
        raise DamageError((Path(HEADS), IS, f"damaged: {what_is_wrong(error)}"), ANEW, "heads") from error
    return maps


def _check(maps: HeadMaps) -> None:
    """Look at everything a drawing relies on. Raises: ValueError or TypeError."""
    T = len(maps.tokens)
    shapes = {(len(head), *{len(row) for row in head}) for layer in maps.weights for head in layer}
    places = [Head(layer, head) for layer, maps_ in enumerate(maps.weights) for head in range(len(maps_))]
    if shapes - {(T, T)} or [h.address for h in maps.heads] != places:
        raise ValueError("maps, tokens and heads do not fit together")
    if not places:
        raise ValueError("it holds no map")
    if not all(_is_number(weight) for layer in maps.weights for head in layer for row in head for weight in row):
        raise ValueError("the weights should be numbers")
    figures = (figure for h in maps.heads for figure in (h.entropy, h.answer_weight, h.answer_uniform))
    if not all(figure is None or _is_number(figure) for figure in figures):
        raise ValueError("a head's figures should be finite")


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isinf(value)  # NaN is shown as what it is
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1


def score_to_dict(head: HeadScore) -> dict[str, Any]:
    """Write one head's measurement: `lift` and `uniform` are those of its target, or of the closest one if unnamed."""
    closest = max(head.scores, key=lambda name: head.scores[name].lift, default=None)
    shown = head.scores.get(head.target or closest or "")
    parts = [words(claim) for claim in head.evidence]
    return {
        "label": None if head.label is None else head.label.text,
        "label_id": None if head.label is None else head.label.id,
        "target": head.target,
        "closest": closest,
        "lift": None if shown is None else shown.lift,
        "uniform": None if shown is None else shown.uniform,
        "scores": {**plain(head.scores), **{name: getattr(head, name) for name in FIGURES}},
        **{name: plain(getattr(head, name)) for name in MEASURED},
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
    certain = {name: head[name] for name in MEASURED}  # these were always there
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
    label = Label.from_id(told) if "label_id" in head else Label.from_old_words(words)
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
