"""Files of format 1, written by hand with every key that was renamed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.errors import DamageError
from mhsa_cli.records.heads import HeadMaps, HeadScore
from mhsa_cli.records.labels import SHAPES, TARGETS, Label, Role
from mhsa_cli.runs.heads import FIGURES, maps_from_dict, maps_to_dict, parse_heads
from mhsa_cli.runs.json_file import dump_sealed
from mhsa_cli.runs.listing import load_info
from mhsa_cli.runs.older_keys import LABEL_PARTS, rename_heads, rename_plan, rename_run
from mhsa_cli.runs.sweep_dir import SweepDir

# The labels of format 1: id, words, and the id of today.
LABELS = [
    ("spread", "spread", "near-uniform"),
    ("sharp", "sharp, unnamed", "focused"),
    ("undecided", "undecided", "unclear"),
    ("previous:named", "previous token", "previous:shown"),
    ("self:looks", "looks like itself", "self:pattern"),
    ("first:idle", "looks like first token, but idle", "first:no-effect"),
    ("offset:12:idle", "looks like offset 12, but idle", "offset:12:no-effect"),
    ("duplicate:named", "duplicate token", "duplicate:shown"),
    ("induction:stand-ins", "looks like induction, with stand-ins", "induction:redundant"),
]


def score(lift: float) -> dict[str, Any]:
    return {"mass": 0.5, "chance": 0.2, "lift": lift, "distance": None, "null": 0.1}


def head(number: int, label: str | None, target: str | None, **more: Any) -> dict[str, Any]:
    measured = dict.fromkeys(("trained_gaps", "unseen_gaps", "duplicate_gaps"), {"3": 0.25})
    deltas = ["uniform_delta_nats", "uniform_delta_se", "zero_delta_nats", "mean_delta_nats", "resample_delta_nats"]
    measured |= {name: 0.5 + at for at, name in enumerate([*deltas, "shapley_nats", "shapley_se"])}
    figures = {name: 0.1 * at for at, name in enumerate(FIGURES)}
    return {
        "layer": 0,
        "head": number,
        "entropy": 0.75,
        "source_weight": 0.6,
        "source_chance": 0.3,
        "label": label,
        "target": target,
        "closest": "previous",
        "lift": 0.375,
        "chance": 0.2,
        "scores": {"previous": score(0.375), "offset": {**score(0.3), "distance": 4}, **figures},
        **measured,
        "evidence": "its weight lies there; it goes by position",
        **more,
    }


def heads_json(*heads: dict[str, Any]) -> dict[str, Any]:
    verdict = {"pattern_matters": True, "joint_delta_nats": 2.0, "joint_delta_se": 0.1, "loss_nats": 0.5}
    verdict |= {"text": "It matters.", "inputs": "7 rows", "try_task": None, "withheld": "some shares are negative"}
    verdict |= {"redundancy": 0.5, "effective_heads": None}
    weights = [[[[1.0, 0.0], [0.5, 0.5]]] * len(heads)]
    content = {"format": 1, "run": "old", "step": 3, "task": "copy", "note": "", "tokens": ["a", "b"]}
    return {**content, "weights": weights, "verdict": verdict, "heads": list(heads)}


def read(content: dict[str, Any]) -> HeadMaps:
    return maps_from_dict(parse_heads(json.dumps(content).encode(), {}, Path("heads.json")))


def test_every_key_of_a_heads_json_of_format_1_is_read() -> None:
    words = head(0, "previous token", "previous")
    parts = head(
        1, "looks like offset 4, with stand-ins", "offset", label_id="offset:4:stand-ins", evidence_parts=["x"]
    )
    none = head(2, None, None)
    maps = read(heads_json(words, parts, none))
    assert maps.report is not None and maps.report.verdict.withheld is not None
    assert [(h.answer_weight, h.answer_uniform, h.entropy) for h in maps.heads] == [(0.6, 0.3, 0.75)] * 3
    assert [h.label for h in maps.report.heads] == [
        Label("previous", Role.SHOWN), Label("offset", Role.REDUNDANT, 4), None,
    ]  # fmt: skip
    first: HeadScore = maps.report.heads[0]
    assert {name: (s.uniform, s.lift, s.distance) for name, s in first.scores.items()} == {
        "previous": (0.2, 0.375, None), "offset": (0.2, 0.3, 4),
    }  # fmt: skip
    assert [getattr(first, name) for name in FIGURES] == [0.0, 0.1, 0.2, 0.1 * 3]
    assert (first.uniform_delta_nats, first.shapley_se, first.trained_gaps) == (0.5, 6.5, {3: 0.25})
    assert [claim.evidence["text"] for claim in first.evidence] == ["its weight lies there", "it goes by position"]
    assert [claim.evidence["text"] for claim in maps.report.heads[1].evidence] == ["x"]
    (plain,) = rename_heads({"heads": [words]})["heads"]  # as exports have it
    assert plain["uniform"] == plain["scores"]["offset"]["uniform"] == 0.2
    assert read({"format": 2, **maps_to_dict(maps)}) == maps  # and is written in the keys of today


@pytest.mark.parametrize(("old_id", "words", "new_id"), LABELS)
def test_every_label_of_format_1_is_read_by_its_id_or_its_words(old_id: str, words: str, new_id: str) -> None:
    (by_id,) = rename_heads({"heads": [{"label": "whatever", "label_id": old_id}]})["heads"]
    (by_words,) = rename_heads({"heads": [{"label": words}]})["heads"]
    assert by_id["label_id"] == by_words["label_id"] == new_id
    assert (label := Label.from_id(new_id)) is not None and by_id["label"] == by_words["label"] == label.text
    assert rename_run({"sweep": {"labels": [words]}})["sweep"]["label_ids"] == [new_id]
    assert rename_run({"sweep": {"labels": ["?"], "label_ids": [old_id]}})["sweep"]["label_ids"] == [new_id]


def test_the_table_of_labels_is_complete_and_leaves_the_ids_of_today() -> None:
    today = {*TARGETS, *SHAPES, *Role}
    then = {*SHAPES, *Role} - {"dead", Role.HARMFUL, Role.SUPPRESSES, Role.CANCELS, Role.OUTPUT}
    assert set(LABEL_PARTS.values()) == then and not LABEL_PARTS.keys() & today
    first = {"previous", "self", "first", "offset", "duplicate", "induction", "near-uniform", "focused", "unclear"}
    assert {new.split(":")[0] for _, _, new in LABELS} == first <= {*TARGETS, *SHAPES}


@pytest.mark.parametrize(
    "words", ["offset", "looks like offset x", "offset #", "previous token 7", "nose", 7, ["spread"]]
)
def test_words_that_are_no_label_are_damage(words: Any) -> None:
    with pytest.raises(DamageError) as error:
        read(heads_json(head(0, words, None)))
    assert error.value.code == "heads"


def test_the_keys_of_a_trial_and_of_a_plan_are_read(tmp_path: Path) -> None:
    trial = {"cell": 0, "seed": 7, "steps_to_target": 40, "labels": ["spread"], "curve": [[1, 2.5]]}
    (tmp_path / "run.json").write_bytes(dump_sealed({"format": 1, "status": "finished", "sweep": trial}))
    assert load_info(tmp_path)["sweep"] == {
        "cell": 0, "seed": 7, "steps_to_goal": 40, "labels": ["spread"], "label_ids": ["near-uniform"],
        "curve": [[1, 2.5]],
    }  # fmt: skip
    (tmp_path / "sweep.json").write_bytes(dump_sealed({"format": 1, "target": 0.99, "cells": []}))
    assert SweepDir(tmp_path).read() == {"format": 1, "goal": 0.99, "cells": []}


@pytest.mark.parametrize("heads", [7, ["x", {"scores": [1]}], [{"scores": {"self": 3}}]])
def test_content_of_another_kind_is_left_to_the_reader(heads: Any) -> None:
    assert rename_heads({"heads": heads}) == {"heads": heads}
    assert rename_run({"sweep": 3}) == {"sweep": 3} and rename_run({}) == {} == rename_plan({})
