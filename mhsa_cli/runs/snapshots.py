"""Head scores over training as the plain data of heads.jsonl, and back; and a snapshot's maps as maps to draw."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.errors import IS, DamageError
from mhsa_cli.records.heads import HeadMaps, HeadSummary, SnapshotRecord
from mhsa_cli.runs.codec import WRONG, from_plain, is_count, plain, what_is_wrong
from mhsa_cli.runs.listing import SCORES
from mhsa_cli.text import Head

KIND = "heads"
FIRST = ("layer", "head", "lifts", "distance", "offsets")  # the order of a head's keys in the file
DELETE = "delete that line to go on without it, or train the run again"


def snapshot_to_dict(record: SnapshotRecord) -> dict[str, Any]:
    """Turn a snapshot into one line of heads.jsonl: step, heads, maps[layer][head][query][key] in percent, pool."""
    found = plain(record)
    return {"kind": KIND, **found, "heads": [dict.fromkeys(FIRST) | head for head in found["heads"]]}


def snapshots_from_lines(lines: Iterable[Mapping[str, Any]]) -> list[SnapshotRecord]:
    """Read snapshots back, by step; of two for one step the later line counts, other kinds of lines are left out.

    Raises: DamageError naming the step if a part is missing, of the wrong kind or shape, or if the heads change.
    """
    found: dict[int, SnapshotRecord] = {}
    places: list[Head] | None = None
    for number, line in enumerate((line for line in lines if line.get("kind") == KIND), 1):
        try:
            record = _snapshot(line)
            heads = [head.address for head in record.heads]
            if places is not None and heads != places:
                raise ValueError("it has other heads than the snapshots before it")
        except WRONG as error:
            step = line.get("step")
            where = f"step {step}" if is_count(step) else f"snapshot {number}"
            said = f"damaged at {where}: {what_is_wrong(error)}"
            raise DamageError((Path(SCORES), IS, said), DELETE, "snapshot") from error
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


def _snapshot(line: Mapping[str, Any]) -> SnapshotRecord:
    """Read one line. Raises: one of WRONG."""
    record = from_plain(SnapshotRecord, line)
    if record.pool < 1:
        raise ValueError(f"pool is {record.pool}, expected 1 or more")
    if not record.heads:
        raise ValueError("it holds no head")
    maps = record.maps
    if [head.address for head in record.heads] != [(i, j) for i, layer in enumerate(maps) for j in range(len(layer))]:
        raise ValueError("maps and heads do not fit together")
    sizes = {len(head) for layer in maps for head in layer}
    rows = [row for layer in maps for head in layer for row in head]
    if len(sizes) != 1 or any(not isinstance(row, list) or not 1 <= len(row) <= max(sizes) for row in rows):
        raise ValueError("the maps should be equally large, with a row for each query")
    if not all(is_count(part) and part <= 100 for row in rows for part in row):
        raise ValueError("the maps should be whole numbers from 0 to 100")
    return record
