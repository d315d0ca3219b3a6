"""Snapshots round-trip through heads.jsonl, and every kind of damage is located."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.errors import DamageError
from mhsa_cli.records.timeline import HeadSnapshot, SnapshotRecord
from mhsa_cli.runs.heads import snapshot_maps, snapshot_to_dict, snapshots_from_lines
from mhsa_cli.runs.run_dir import RunDir

# L=2 H=3 T=4: rows 0..q, a ragged triangle.
MAP = [[100], [25, 75], [10, 20, 70], [1, 2, 3, 94]]


def record(step: int, lift: float = 0.25, heads: int = 3) -> SnapshotRecord:
    places = [(layer, head) for layer in range(2) for head in range(heads)]
    found = [
        HeadSnapshot(layer, head, {"previous": lift, "offset": 0.5}, 3 if head else None, 0.9, None, 0.3, 0.1 * head)
        for layer, head in places
    ]
    return SnapshotRecord(step, found, [[MAP] * heads] * 2, pool=1 + step % 2)


def test_snapshots_come_back_from_the_disk_as_they_were(tmp_path: Path) -> None:
    records = [record(step, lift=step / 10) for step in (0, 1, 2, 4)]
    with RunDir.create(tmp_path / "runs", "one") as run:
        assert snapshots_from_lines(run.records("heads.jsonl")) == []
        run.append("heads.jsonl", [snapshot_to_dict(one) for one in records[:1]])
        run.append("heads.jsonl", [snapshot_to_dict(one) for one in records[1:]])
    assert snapshots_from_lines(RunDir.open(tmp_path / "runs", "one").records("heads.jsonl")) == records


def test_a_snapshot_without_maps_is_a_short_line() -> None:
    heads = [HeadSnapshot(0, head, {"previous": 0.5}, 3, offsets={2: 0.25, 3: 0.5}) for head in range(2)]
    short = SnapshotRecord(4, heads, in_context=-0.75)
    line = json.loads(json.dumps(snapshot_to_dict(short)))
    assert line.keys() == {"kind", "step", "heads", "in_context"} and "entropy" not in line["heads"][0]
    assert snapshots_from_lines([line]) == [short]
    older = {key: value for key, value in line.items() if key != "in_context"}
    assert snapshots_from_lines([older])[0].in_context is None
    with pytest.raises(DamageError):
        snapshots_from_lines([line, {**line, "step": 5, "heads": line["heads"][:1]}])


def test_a_nan_lift_round_trips(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "runs", "one") as run:
        run.append("heads.jsonl", [snapshot_to_dict(record(0, lift=math.nan))])
        line = json.loads((run.path / "heads.jsonl").read_text())
        assert line["heads"][0]["lifts"]["previous"] is None and line["kind"] == "heads"
        back = snapshots_from_lines(run.records("heads.jsonl"))[0]
    assert math.isnan(back.heads[0].lifts["previous"]) and back.heads[0].lifts["offset"] == 0.5
    del line["nonfinite"]  # a bare null says the same
    assert math.isnan(snapshots_from_lines([line])[0].heads[0].lifts["previous"])


def test_the_later_line_of_a_step_counts_and_other_kinds_are_left_out() -> None:
    lines = [snapshot_to_dict(record(step, lift)) for step, lift in ((4, 0.1), (0, 0.2), (4, 0.3))]
    found = snapshots_from_lines([{"kind": "other"}, *lines, {}])
    assert [(one.step, one.heads[0].lifts["previous"]) for one in found] == [(0, 0.2), (4, 0.3)]


def _set(*path: Any, to: Any) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        place: Any = line
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = to

    return change


def _drop(*path: Any) -> Callable[[dict[str, Any]], None]:
    def change(line: dict[str, Any]) -> None:
        place: Any = line
        for key in path[:-1]:
            place = place[key]
        del place[path[-1]]

    return change


@pytest.mark.parametrize(
    ("damage", "where"),
    [
        (_drop("heads"), "heads"),
        (_drop("heads", 1, "lifts"), "heads[1].lifts"),
        (_drop("step"), "step"),
        (_set("step", to=-1), "step"),
        (_set("step", to=True), "step"),
        (_set("pool", to=0), None),
        (_set("heads", to=[]), None),
        (_set("heads", to=7), "heads"),
        (_set("heads", 0, to="x"), "heads[0]"),
        (_set("heads", 0, "layer", to=1.5), "heads[0].layer"),
        (_set("heads", 0, "distance", to="3"), "heads[0].distance"),
        (_set("heads", 2, "lifts", "previous", to="high"), "heads[2].lifts.previous"),
        (_set("heads", 0, "lifts", "previous", to=True), "heads[0].lifts.previous"),
        (_set("heads", 0, "lifts", to=[0.1]), "heads[0].lifts"),
        (_set("heads", 0, "offsets", to={"x": 0.5}), "heads[0].offsets.x"),
        (_set("heads", 0, "entropy", to="x"), "heads[0].entropy"),
        (_drop("heads", 2), None),
        (_drop("maps", 1), None),
        (_set("maps", to=None), None),
        (_set("maps", 0, 0, to=MAP[:3]), None),
        (_set("maps", 0, 0, 2, to=[1] * 5), None),
        (_set("maps", 0, 0, 2, to=[]), None),
        (_set("maps", 0, 0, 2, to="abc"), None),
        (_set("maps", 0, 0, 2, 1, to=101), None),
        (_set("maps", 0, 0, 2, 1, to=0.5), None),
        (_set("maps", 0, 0, 2, 1, to=None), None),
    ],
)
def test_damage_is_found_at_its_place(damage: Callable[[dict[str, Any]], None], where: str | None) -> None:
    lines = [copy.deepcopy(snapshot_to_dict(record(step))) for step in (0, 8)]
    assert len(snapshots_from_lines(lines)) == 2
    damage(lines[1])
    with pytest.raises(DamageError) as error:
        snapshots_from_lines(lines)
    assert error.value.code == "snapshot" and error.value.path == Path("heads.jsonl") and error.value.hint
    assert getattr(error.value.__cause__, "where", None) == where


def test_the_message_of_damage_has_a_hint() -> None:
    line = snapshot_to_dict(record(8))
    line["heads"][0]["lifts"]["previous"] = "high"
    with pytest.raises(DamageError) as error:
        snapshots_from_lines([line])
    assert str(error.value) == (
        "heads.jsonl is damaged at step 8: heads[0].lifts.previous is 'high', expected a number\n"
        "  delete that line to go on without it, or train the run again"
    )


def test_heads_may_not_change_within_a_run() -> None:
    with pytest.raises(DamageError):
        snapshots_from_lines([snapshot_to_dict(record(0)), snapshot_to_dict(record(2, heads=5))])


def test_the_maps_of_a_snapshot_are_full_and_out_of_one() -> None:
    maps = snapshot_maps(record(4), "copy", ["a", "b", "c", "d"])
    assert maps.tokens == ["a", "b", "c", "d"] and maps.step == 4 and maps.task == "copy"
    assert len(maps.weights) == 2 and [len(layer) for layer in maps.weights] == [3, 3]
    assert maps.weights[1][2] == [[1.0, 0, 0, 0], [0.25, 0.75, 0, 0], [0.1, 0.2, 0.7, 0], [0.01, 0.02, 0.03, 0.94]]
    assert [(head.layer, head.head, head.entropy) for head in maps.heads][4] == (1, 1, 0.9)
    assert snapshot_maps(record(4), "copy", ["a", "b"]).tokens == ["0", "1", "2", "3"]
    assert snapshot_maps(record(1), "copy", []).tokens == ["0", "2", "4", "6"]  # pooled by 2
