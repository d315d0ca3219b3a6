"""Head maps as the plain data of heads.json, and back."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mhsa_cli.errors import RunError
from mhsa_cli.records import HeadMaps, HeadSummary
from mhsa_cli.runs.listing import WEIGHTS
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
        "heads": [{**asdict(head), **more} for head, more in zip(maps.heads, measured, strict=True)],
    }


def check_measured(content: Mapping[str, Any], info: Mapping[str, Any], path: Path) -> None:
    """Make sure that maps of a run's last step were measured on its weights; older versions noted no digest.

    Raises: RunError.
    """
    own, wanted = content.get(WEIGHTS), info.get(WEIGHTS)
    if content.get("step") == info.get("step") and None not in (own, wanted) and own != wanted:
        raise RunError(f"{escape(path)} was measured on the weights of another run: sha256 {escape(str(own))}", ANEW)


def maps_from_dict(content: Mapping[str, Any]) -> HeadMaps:
    """Read maps back. Raises: RunError if a part is missing, or not of the kind or shape it should be."""
    try:
        heads = [
            HeadSummary(h["layer"], h["head"], h["entropy"], h.get("source_weight"), h.get("source_chance"))
            for h in content["heads"]
        ]
        report, note = report_from_dict(content), content.get("note", "")
        maps = HeadMaps(content["step"], content["task"], content["tokens"], content["weights"], heads, note, report)
        _check(maps)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        missing = isinstance(error, KeyError)
        wrong = (
            f"{error.args[0]} is missing"
            if missing
            else str(error)
            if type(error) is ValueError
            else "a part is of the wrong kind"
        )
        raise RunError(f"heads.json is damaged: {wrong}", ANEW) from error
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
    if not all(isinstance(text, str) for text in (maps.task, maps.note, *maps.tokens)):
        raise ValueError("task, note and tokens should be texts")
    figures = [figure for h in maps.heads for figure in (h.entropy, h.source_weight, h.source_chance)]
    weights = (weight for layer in maps.weights for head in layer for row in head for weight in row)
    if not isinstance(maps.step, int) or not all(map(_is_number, weights)):
        raise ValueError("the step and the weights should be numbers")
    if not all(figure is None or _is_number(figure) for figure in figures):
        raise ValueError("a head's figures should be numbers")


def _is_number(value: object) -> bool:
    if isinstance(value, float):
        return not math.isinf(value)  # NaN is shown as what it is
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) <= 1
