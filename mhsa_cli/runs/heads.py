"""Head maps as the plain data of heads.json, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mhsa_cli.errors import IS, DamageError
from mhsa_cli.records import HeadMaps
from mhsa_cli.runs.codec import WRONG, from_plain, plain, what_is_wrong
from mhsa_cli.runs.json_file import parse_document, restore_nonfinite
from mhsa_cli.runs.listing import HEADS, WEIGHTS
from mhsa_cli.runs.report import report_from_dict, score_to_dict, verdict_to_dict
from mhsa_cli.text import Head, escape

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

    Older versions noted no digest. Raises: DamageError, NewerFormatError.
    """
    content = parse_document(raw, path)
    own, wanted = content.get(WEIGHTS), info.get(WEIGHTS)
    if content.get("step") == info.get("step") and None not in (own, wanted) and own != wanted:
        said = f" was measured on the weights of another run: sha256 {escape(str(own))}"
        raise DamageError((path, said), ANEW, "other-weights")
    return restore_nonfinite(content)


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
    figures = (figure for h in maps.heads for figure in (h.entropy, h.source_weight, h.source_chance))
    if not all(figure is None or _is_number(figure) for figure in figures):
        raise ValueError("a head's figures should be finite")


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isinf(value)  # NaN is shown as what it is
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1
