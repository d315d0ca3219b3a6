"""What was measured of heads as the plain data of heads.json and heads.jsonl, and back."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from mhsa_cli.errors import IS, DamageError
from mhsa_cli.records.claim_words import sentences, words
from mhsa_cli.records.heads import HeadMaps, HeadReport, HeadScore, HeadSummary, LayerPart, Verdict
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.runs.codec import FINITE, MALFORMED, describe_malformed, from_plain, is_count, plain
from mhsa_cli.runs.json_file import parse_document, restore_nonfinite
from mhsa_cli.runs.listing import HEADS, SCORES, WEIGHTS
from mhsa_cli.runs.older_keys import rename_heads
from mhsa_cli.text import Head, escape

FIGURES = ("entropy", "uniformity", "confidence", "positionality")  # among the scores in heads.json
COALITIONS = "coalitions"  # no key where not all were measured, as in the files of older versions
OWN = "own_scores"  # of the user; no key where there are none
MEASURED = [field.name for field in fields(HeadScore) if field.name not in (*FIGURES, "label", "evidence")]
LATER = {  # not in the files of older versions
    *(
        "zero_delta_se",
        "mean_delta_se",
        "resample_delta_se",
        "share",
        "share_se",
        "kept",
        "kept_se",
        "role",
        "gap_limit",
        OWN,
    ),
}
ANEW = "delete heads.json, and mhsa inspect-heads computes it anew from the checkpoint; or use --tokens"
KIND = "heads"  # of a line of heads.jsonl
DELETE = "delete that line to go on without it, or train the run again"


def maps_to_dict(maps: HeadMaps) -> dict[str, Any]:
    """Turn maps into JSON data: step, task, tokens, weights[layer][head][query][key], verdict, heads."""
    measured = [{} for _ in maps.heads] if maps.report is None else [score_to_dict(h) for h in maps.report.heads]
    return {
        "step": maps.step,
        "task": maps.task,
        "note": maps.note,
        **({} if maps.origin is None else {"origin": maps.origin}),
        "tokens": list(maps.tokens),
        "weights": maps.weights,
        **({"parts": plain(maps.parts)} if maps.parts else {}),
        "verdict": None if maps.report is None else verdict_to_dict(maps.report.verdict),
        **({COALITIONS: maps.report.coalitions} if maps.report is not None and maps.report.coalitions else {}),
        "heads": [{**plain(head), **more} for head, more in zip(maps.heads, measured, strict=True)],
    }


def score_to_dict(head: HeadScore) -> dict[str, Any]:
    """Write one head's scores; `lift` and `uniform` are those of its target, or of the closest one if it has none."""
    closest = max(head.scores, key=lambda name: head.scores[name].lift, default=None)
    score = head.scores.get(head.target or closest or "")
    values = plain(head)
    measured = [name for name in MEASURED if name != OWN or head.own_scores]
    return {
        "label": None if head.label is None else head.label.text,
        "label_id": values["label"],
        "target": head.target,
        "closest": closest,
        "lift": None if score is None else score.lift,
        "uniform": None if score is None else score.uniform,
        **{name: values[name] for name in measured},
        "scores": {**values["scores"], **{name: values[name] for name in FIGURES}},
        "evidence": "; ".join(map(words, head.evidence)),
        "claims": values["evidence"],
    }


def verdict_to_dict(verdict: Verdict) -> dict[str, Any]:
    """Write the verdict, and its claims as one text too."""
    return {**plain(verdict), "text": sentences(verdict.claims)}


def parse_heads(raw: bytes, info: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Parse heads.json, which must be of the weights in run.json. Raises: DamageError, NewerFormatError."""
    content = parse_document(raw, path)
    found, expected = content.get(WEIGHTS), info.get(WEIGHTS)  # older versions wrote neither
    if content.get("step") == info.get("step") and None not in (found, expected) and found != expected:
        message = f" was measured on the weights of another run: sha256 {escape(str(found))}"
        raise DamageError((path, message), ANEW, "other-weights")
    return rename_heads(restore_nonfinite(content))


def maps_from_dict(content: Mapping[str, Any]) -> HeadMaps:
    """Read maps back. Raises: DamageError if a part is missing, or of the wrong kind or shape."""
    try:
        maps = from_plain(HeadMaps, {**content, "report": _report(content)})
        _check(maps)
    except MALFORMED as error:
        raise DamageError((Path(HEADS), IS, f"damaged: {describe_malformed(error)}"), ANEW, "heads") from error
    return maps


def _check(maps: HeadMaps) -> None:
    """Check the shapes and figures that drawings rely on. Raises: ValueError or TypeError."""
    T = len(maps.tokens)
    shapes = {(len(head), *{len(row) for row in head}) for layer in maps.weights for head in layer}
    if shapes - {(T, T)} or [h.address for h in maps.heads] != _addresses(maps.weights):
        raise ValueError("maps, tokens and heads do not fit together")
    if maps.parts and (len(maps.parts) != len(maps.weights) or not all(_fits(part, T) for part in maps.parts)):
        raise ValueError("parts and layers do not fit together")
    if not maps.heads:
        raise ValueError("it holds no map")
    if not all(_is_weight(weight) for layer in maps.weights for head in layer for row in head for weight in row):
        raise ValueError("the weights should be numbers")
    figures = (figure for h in maps.heads for figure in (h.entropy, h.answer_weight, h.answer_uniform))
    if any(figure is not None and math.isinf(figure) for figure in figures):
        raise ValueError("a head's figures should be finite")


def _fits(part: LayerPart, T: int) -> bool:
    """Whether the queries and keys of a layer lie within a row of T tokens."""
    return all(len(pair) == 2 and 0 <= pair[0] < pair[1] <= T for pair in (part.queries, part.keys))


def _addresses(maps: Sequence[Sequence[Any]]) -> list[Head]:
    return [Head(layer, head) for layer, heads in enumerate(maps) for head in range(len(heads))]


def _is_weight(value: object) -> bool:
    if isinstance(value, float):
        return not math.isinf(value)  # NaN is shown as NaN
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1


def _report(content: Mapping[str, Any]) -> HeadReport | None:
    """Read the report; None if the file holds none. Raises: one of MALFORMED."""
    values = content.get("verdict")
    if values is None:
        return None
    claims = {"claims": values.get("claims", [values["text"]]), "withheld": values.get("withheld") or None}
    verdict = from_plain(Verdict, {**values, **claims}, finite=True)
    heads, losses = [_score(head) for head in content["heads"]], content.get(COALITIONS) or ()
    if losses and (len(losses) != 2 ** len(heads) or not all(map(FINITE.fits, losses))):
        raise ValueError(f"the losses of coalitions should be {2 ** len(heads)} numbers")
    return HeadReport(verdict, heads, losses)


def _score(head: Mapping[str, Any]) -> HeadScore:
    """Read one head's scores. Raises: one of MALFORMED."""
    scores = dict(head["scores"])
    values = {name: head[name] for name in MEASURED if name in head or name not in LATER}
    values |= {name: scores.pop(name, None) for name in FIGURES}
    texts = {"label": head["label_id"], "evidence": head["claims"] if "claims" in head else head["evidence_parts"]}
    score = from_plain(HeadScore, {**values, **texts, "scores": scores}, finite=True)
    if head["target"] is not None and head["target"] not in scores:
        raise ValueError(f"a head's target {head['target']!r} has no score")
    if head["target"] != score.target:
        raise ValueError("a head's label and its target should be of one kind")
    return score


def snapshot_to_dict(record: SnapshotRecord) -> dict[str, Any]:
    """Turn a snapshot into a line of heads.jsonl: step, heads, maps[layer][head][query][key] in percent, pool.

    What a snapshot without maps does not hold is left out.
    """
    line = {"kind": KIND, **plain(record)}
    if not record.own_uniform:
        line["heads"] = [{key: value for key, value in head.items() if key != OWN} for head in line["heads"]]
        del line["own_uniform"]
    if not record.maps:
        line["heads"] = [{key: value for key, value in head.items() if key not in FIGURES} for head in line["heads"]]
        del line["maps"], line["pool"]
    return line


def snapshots_from_lines(lines: Iterable[Mapping[str, Any]]) -> list[SnapshotRecord]:
    """Read snapshots back, by step. Of two lines for one step the later counts; lines of other kinds are ignored.

    Raises: DamageError naming the step if a part is missing, of the wrong kind or shape, or if the heads change.
    """
    found: dict[int, SnapshotRecord] = {}
    heads: list[Head] | None = None
    for number, line in enumerate((line for line in lines if line.get("kind") == KIND), 1):
        try:
            record = _snapshot(line)
            if heads is not None and heads != [head.address for head in record.heads]:
                raise ValueError("it has other heads than the snapshots before it")
        except MALFORMED as error:
            step = line.get("step")
            where = f"step {step}" if is_count(step) else f"snapshot {number}"
            message = f"damaged at {where}: {describe_malformed(error)}"
            raise DamageError((Path(SCORES), IS, message), DELETE, "snapshot") from error
        heads = [head.address for head in record.heads]
        found[record.step] = record
    return [found[step] for step in sorted(found)]


def _snapshot(line: Mapping[str, Any]) -> SnapshotRecord:
    """Read one line. Raises: one of MALFORMED."""
    record = from_plain(SnapshotRecord, line)
    if record.pool < 1:
        raise ValueError(f"pool is {record.pool}, expected 1 or more")
    if not record.heads:
        raise ValueError("it holds no head")
    maps = record.maps
    if "maps" not in line:
        return record
    if [head.address for head in record.heads] != _addresses(maps):
        raise ValueError("maps and heads do not fit together")
    sizes = {len(head) for layer in maps for head in layer}
    rows = [row for layer in maps for head in layer for row in head]
    if len(sizes) != 1 or any(not isinstance(row, list) or not 1 <= len(row) <= max(sizes) for row in rows):
        raise ValueError("the maps should be equally large, with a row for each query")
    if not all(is_count(part) and part <= 100 for row in rows for part in row):
        raise ValueError("the maps should be whole numbers from 0 to 100")
    return record


def snapshot_maps(
    record: SnapshotRecord, task: str, tokens: Sequence[str], parts: Sequence[LayerPart] = ()
) -> HeadMaps:
    """Turn a snapshot's maps into maps to draw: weights in 0..1, rows of full length, 0 on the future.

    `tokens` label the rows if there is one for each query; otherwise positions do. `parts` are those of its layers.
    """
    weights = [
        [[[part / 100 for part in row] + [0.0] * (len(head) - len(row)) for row in head] for head in layer]
        for layer in record.maps
    ]
    size = max((len(head) for layer in record.maps for head in layer), default=0)
    names = list(tokens) if len(tokens) == size else [str(position * record.pool) for position in range(size)]
    heads = [HeadSummary(head.layer, head.head, head.entropy) for head in record.heads]
    return HeadMaps(record.step, task, names, weights, heads, parts=parts if record.pool == 1 else ())
