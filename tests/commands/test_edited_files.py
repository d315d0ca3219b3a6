"""Files that somebody edited: a reason and an exit code, never a trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands.shell import mhsa, without_hashes

Edit = Callable[[dict[str, Any]], object]


def edit(file: Path, change: Edit) -> None:
    """Change a file of a run that an older version left, which lists no hashes."""
    without_hashes(file.parent)
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d["weights"][1][2][3].__setitem__(0, "x"),
        lambda d: d["weights"][1][2][3].__setitem__(0, None),
        lambda d: d["weights"][1][2][3].__setitem__(0, 10**400),
        lambda d: d["weights"][1][2].pop(),
        lambda d: d["weights"].pop(),
        lambda d: d["weights"][0].append([]),
        lambda d: d.update(weights=[], heads=[]),
        lambda d: d["tokens"].__setitem__(0, 5),
        lambda d: d.update(step="last"),
        lambda d: d.update(note=5),
        lambda d: d.update(task=[]),
        lambda d: d["heads"].reverse(),
        lambda d: d["heads"][0].update(entropy="z"),
        lambda d: d["heads"].__setitem__(0, 5),
        lambda d: d.pop("heads"),
    ],
)
@pytest.mark.parametrize("json_too", [[], ["--json"]])
def test_head_maps(change: Edit, json_too: list[str], tiny: Path) -> None:
    edit(tiny / "heads.json", change)
    said = mhsa("inspect-heads", "tiny", *json_too)
    assert (said.code, said.out) == (4, "")
    assert "heads.json is damaged" in said.err and "--tokens" in said.err
    assert mhsa("inspect-heads", "tiny", "--tokens", "3 1").code == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda d: d.update(final=5),
        lambda d: d.update(final={"eval_loss": "x", "eval_accuracy": [1]}),
        lambda d: d.update(final={"eval_loss": 10**400, "eval_accuracy": True}),
        lambda d: d.update(chance=5),
        lambda d: d.update(chance={"loss": "x"}),
        lambda d: d.update(seconds="long"),
        lambda d: d.update(step=[1], task={}, n_heads="\x1b[31m"),
        lambda d: d.update(status=5),
        lambda d: d.update(started=None),
        lambda d: d.update(status="\x1b[31m"),
        lambda d: [d.pop(key) for key in list(d) if key != "format"],
        lambda d: d.update(format=2),
        lambda d: d.pop("format"),
    ],
)
def test_run_json(change: Edit, tiny: Path) -> None:
    edit(tiny / "run.json", change)
    for command in (["runs"], ["runs", "--json"], ["curve", "tiny"], ["curve", "tiny", "--json"], ["inspect-heads"]):
        said = mhsa(*command)
        assert said.code in (0, 4) and (said.code == 0 or said.err.startswith("error: "))
        assert "\x1b" not in said.out + said.err
    for more in (["--json"], ["train.epochs=3"]):
        said = mhsa("train", "--resume", "tiny", *more)
        assert said.code in (0, 4), said.err


@pytest.mark.parametrize("count", ["three", None, [4], 2.5])
def test_a_count_of_dropped_records_that_is_no_number_counts_as_none(count: object, tiny: Path) -> None:
    edit(tiny / "run.json", lambda d: d.update(dropped_records=count))
    assert mhsa("curve", "tiny", "--json").json["runs"][0]["dropped_records"] == 0
    assert mhsa("train", "--resume", "tiny", "--json").json["dropped_records"] == 0
    assert mhsa("train", "--resume", "tiny", "train.epochs=3", "--json").json["dropped_records"] == 0


LINES = [
    "{",
    "[]",
    "NaN",
    "\x00",
    '{"kind": []}',
    '{"kind": {}}',
    '{"kind": "step"}',
    '{"kind": "epoch", "epoch": "x"}',
]


@pytest.mark.parametrize("line", LINES)
def test_metrics(line: str, tiny: Path) -> None:
    file = tiny / "metrics.jsonl"
    without_hashes(tiny)
    whole = file.read_text()
    file.write_text(line + "\n" + whole)
    for command in ("curve", "timeline"):
        said = mhsa(command, "tiny")
        assert (said.code, said.out) == (4, "") and said.err.startswith(f"error: {file}:1:")
    assert mhsa("verify", "tiny").code == 4
    file.write_text(whole + '{"kind": "st')  # torn by a crash: left out
    assert mhsa("curve", "tiny").code == 0
    file.write_text('{"kind": "of the future", "step": 1}\n' + whole)
    assert mhsa("curve", "tiny").code == 0
    file.unlink()
    assert mhsa("curve", "tiny").code == 0


@pytest.mark.parametrize("command", [["inspect-heads"], ["explain", "--json"], ["curve"], ["timeline", "--json"]])
def test_a_setting_that_was_changed_after_training_is_said(command: list[str], tiny: Path) -> None:
    before = mhsa(*command)
    config = tiny / "config.yaml"
    config.write_text(config.read_text().replace("seed: 8", "seed: 9"))
    said = mhsa(*command)
    assert (said.code, said.out) == (0, before.out)
    assert before.err == "" and "train.seed: 8 -> 9" in said.err
    config.write_text("# a comment\n" + config.read_text().replace("seed: 9", "seed: 8"))
    assert mhsa(*command).err == ""


def test_maps_that_were_measured_on_other_weights_are_refused(tiny: Path) -> None:
    edit(tiny / "heads.json", lambda d: d.update(weights_sha256="0" * 64))
    for command in ("inspect-heads", "explain", "verify"):
        assert mhsa(command, "tiny").code == 4
    edit(tiny / "heads.json", lambda d: d.pop("weights_sha256"))  # as older versions wrote it
    assert mhsa("explain", "tiny").code == 0


def test_maps_whose_weights_were_never_noted_are_measured_again(tiny: Path) -> None:
    """Broken off between heads.json and run.json: the maps may be of any weights."""
    wanted = mhsa("explain", "tiny", "--json").json
    edit(tiny / "heads.json", lambda d: d["heads"][0].update(label="induction"))
    edit(tiny / "run.json", lambda d: [d.pop(key) for key in ("weights_sha256", "final", "step")])
    found = mhsa("explain", "tiny", "--json").json
    assert [head.get("label") for head in found["heads"]] == [head.get("label") for head in wanted["heads"]]
