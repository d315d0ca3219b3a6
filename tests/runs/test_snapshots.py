"""Snapshots through heads.jsonl and back, and every kind of damage in words."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.errors import RunError
from mhsa_cli.records import HeadSnapshot, SnapshotRecord
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.snapshots import snapshot_maps, snapshot_to_dict, snapshots_from_lines

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
        assert snapshots_from_lines(run.read_head_scores()) == []
        run.append_head_scores([snapshot_to_dict(one) for one in records[:1]])
        run.append_head_scores([snapshot_to_dict(one) for one in records[1:]])
    assert snapshots_from_lines(RunDir.open(tmp_path / "runs", "one").read_head_scores()) == records


def test_a_lift_that_could_not_be_measured_comes_back_as_nan(tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "runs", "one") as run:
        run.append_head_scores([snapshot_to_dict(record(0, lift=math.nan))])
        line = json.loads((run.path / "heads.jsonl").read_text())
        assert line["heads"][0]["lifts"]["previous"] is None and line["kind"] == "heads"
        back = snapshots_from_lines(run.read_head_scores())[0]
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
    ("damage", "said"),
    [
        (_drop("heads"), "step 8: heads is missing"),
        (_drop("maps"), "step 8: maps is missing"),
        (_drop("heads", 1, "lifts"), "step 8: lifts is missing"),
        (_drop("step"), "snapshot 2: step is missing"),
        (_set("step", to=-1), "snapshot 2: step and pool should be whole"),
        (_set("step", to=True), "snapshot 2: step and pool should be whole"),
        (_set("pool", to=0), "step 8: step and pool should be whole"),
        (_set("heads", to=[]), "it holds no head"),
        (_set("heads", to=7), "of the wrong kind"),
        (_set("heads", 0, to="x"), "of the wrong kind"),
        (_set("heads", 0, "layer", to=1.5), "layer, head and distance"),
        (_set("heads", 0, "distance", to="3"), "layer, head and distance"),
        (_set("heads", 0, "lifts", "previous", to="high"), "lifts should be numbers"),
        (_set("heads", 0, "lifts", "previous", to=True), "lifts should be numbers"),
        (_set("heads", 0, "lifts", to=[0.1]), "of the wrong kind"),
        (_set("heads", 0, "entropy", to="x"), "figures should be numbers"),
        (_drop("heads", 2), "maps and heads do not fit"),
        (_drop("maps", 1), "maps and heads do not fit"),
        (_set("maps", to=None), "of the wrong kind"),
        (_set("maps", 0, 0, to=MAP[:3]), "equally large"),
        (_set("maps", 0, 0, 2, to=[1] * 5), "equally large"),
        (_set("maps", 0, 0, 2, to=[]), "equally large"),
        (_set("maps", 0, 0, 2, to="abc"), "equally large"),
        (_set("maps", 0, 0, 2, 1, to=101), "0 to 100"),
        (_set("maps", 0, 0, 2, 1, to=0.5), "0 to 100"),
        (_set("maps", 0, 0, 2, 1, to=None), "0 to 100"),
    ],
)
def test_damage_is_said_in_words_with_a_way_out(damage: Callable[[dict[str, Any]], None], said: str) -> None:
    lines = [copy.deepcopy(snapshot_to_dict(record(step))) for step in (0, 8)]
    assert len(snapshots_from_lines(lines)) == 2
    damage(lines[1])
    with pytest.raises(RunError) as error:
        snapshots_from_lines(lines)
    assert said in error.value.message and "heads.jsonl" in error.value.message
    assert error.value.hint and "delete that line" in error.value.hint and error.value.exit_code == 4


def test_heads_may_not_change_within_a_run() -> None:
    with pytest.raises(RunError, match="step 2: it has other heads"):
        snapshots_from_lines([snapshot_to_dict(record(0)), snapshot_to_dict(record(2, heads=5))])


def test_the_maps_of_a_snapshot_are_full_and_out_of_one() -> None:
    maps = snapshot_maps(record(4), "copy", ["a", "b", "c", "d"])
    assert maps.tokens == ["a", "b", "c", "d"] and maps.step == 4 and maps.task == "copy"
    assert len(maps.weights) == 2 and [len(layer) for layer in maps.weights] == [3, 3]
    assert maps.weights[1][2] == [[1.0, 0, 0, 0], [0.25, 0.75, 0, 0], [0.1, 0.2, 0.7, 0], [0.01, 0.02, 0.03, 0.94]]
    assert [(head.layer, head.head, head.entropy) for head in maps.heads][4] == (1, 1, 0.9)
    assert snapshot_maps(record(4), "copy", ["a", "b"]).tokens == ["0", "1", "2", "3"]
    assert snapshot_maps(record(1), "copy", []).tokens == ["0", "2", "4", "6"]  # pooled by 2
