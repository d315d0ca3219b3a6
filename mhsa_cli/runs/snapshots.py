"""Head scores over training as the plain data of heads.jsonl, and back; and a snapshot's maps as maps to draw."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from mhsa_cli.errors import RunError
from mhsa_cli.records import HeadMaps, HeadSnapshot, HeadSummary, SnapshotRecord
from mhsa_cli.runs.listing import SCORES
from mhsa_cli.text import Head, escape

KIND = "heads"
FIGURES = ("entropy", "uniformity", "confidence", "positionality")


def snapshot_to_dict(record: SnapshotRecord) -> dict[str, Any]:
    """Turn a snapshot into one line of heads.jsonl: step, heads, maps[layer][head][query][key] in percent, pool."""
    heads = [
        {
            "layer": head.layer,
            "head": head.head,
            "lifts": dict(head.lifts),
            "distance": head.distance,
            "offsets": {str(distance): lift for distance, lift in head.offsets.items()},
            **{name: getattr(head, name) for name in FIGURES},
        }
        for head in record.heads
    ]
    return {"kind": KIND, "step": record.step, "heads": heads, "maps": record.maps, "pool": record.pool}


def snapshots_from_lines(lines: Iterable[Mapping[str, Any]]) -> list[SnapshotRecord]:
    """Read snapshots back, by step; of two for one step the later line counts, other kinds of lines are left out.

    Raises: RunError naming the step if a part is missing, of the wrong kind or shape, or if the heads change.
    """
    found: dict[int, SnapshotRecord] = {}
    places: list[Head] | None = None
    for number, line in enumerate((line for line in lines if line.get("kind") == KIND), 1):
        try:
            record = _snapshot(line)
            heads = [head.address for head in record.heads]
            if places is not None and heads != places:
                raise ValueError("it has other heads than the snapshots before it")
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise _damaged(number, line.get("step"), error) from error
        places = heads
        found[record.step] = record
    return [found[step] for step in sorted(found)]


def snapshot_maps(record: SnapshotRecord, task: str, tokens: Sequence[str]) -> HeadMaps:
    """Make a snapshot's maps ready to draw: weights in 0..1, full rows, 0 on the future.

    `tokens` stand beside them if they are as many as the queries; otherwise positions do.
    """
    weights = [
        [[[part / 100 for part in row] + [0.0] * (len(head) - len(row)) for row in head] for head in layer]
        for layer in record.maps
    ]
    size = max((len(head) for layer in record.maps for head in layer), default=0)
    beside = list(tokens) if len(tokens) == size else [str(place * record.pool) for place in range(size)]
    heads = [HeadSummary(head.layer, head.head, head.entropy) for head in record.heads]
    return HeadMaps(record.step, task, beside, weights, heads)


def _damaged(number: int, step: Any, error: Exception) -> RunError:
    where = f"step {step}" if _is_count(step) else f"snapshot {number}"
    if isinstance(error, KeyError):
        wrong = f"{escape(str(error.args[0]))} is missing"
    else:
        wrong = str(error) if type(error) is ValueError else "a part is of the wrong kind"
    hint = "delete that line to go on without it, or train the run again"
    return RunError(f"{SCORES} is damaged at {where}: {wrong}", hint)


def _snapshot(line: Mapping[str, Any]) -> SnapshotRecord:
    """Read one line. Raises: KeyError, TypeError, ValueError."""
    step, pool = line["step"], line.get("pool", 1)
    if not _is_count(step) or not _is_count(pool) or pool < 1:
        raise ValueError("step and pool should be whole numbers, the pool 1 or more")
    heads = [_head(head) for head in line["heads"]]
    if not heads:
        raise ValueError("it holds no head")
    maps = line["maps"]
    if [head.address for head in heads] != [(i, j) for i, layer in enumerate(maps) for j in range(len(layer))]:
        raise ValueError("maps and heads do not fit together")
    sizes = {len(head) for layer in maps for head in layer}
    rows = [row for layer in maps for head in layer for row in head]
    if len(sizes) != 1 or any(not isinstance(row, list) or not 1 <= len(row) <= max(sizes) for row in rows):
        raise ValueError("the maps should be equally large, with a row for each query")
    if not all(_is_count(part) and part <= 100 for row in rows for part in row):
        raise ValueError("the maps should be whole numbers from 0 to 100")
    return SnapshotRecord(step, heads, maps, pool)


def _head(content: Mapping[str, Any]) -> HeadSnapshot:
    layer, head, lifts, distance = content["layer"], content["head"], content["lifts"], content.get("distance")
    figures = [content.get(name) for name in FIGURES]
    entropy, even, sure, bound = figures
    if not _is_count(layer) or not _is_count(head) or not (distance is None or _is_count(distance)):
        raise ValueError("layer, head and distance should be whole numbers")
    # A lift of null is one that could not be measured, as NaN is.
    measured = {str(name): math.nan if lift is None else lift for name, lift in lifts.items()}
    offsets = {int(at): lift for at, lift in content.get("offsets", {}).items() if lift is not None}
    if not all(map(_is_number, [*measured.values(), *offsets.values()])):
        raise ValueError("the lifts should be numbers")
    if not all(figure is None or _is_number(figure) for figure in figures):
        raise ValueError("a head's figures should be numbers")
    return HeadSnapshot(layer, head, measured, distance, entropy, even, sure, bound, offsets)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
