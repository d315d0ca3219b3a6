"""A sweep where a run is taken: its trials counted by hand, the report's own statistics, and nothing written."""

from __future__ import annotations

import csv
import json
import shlex
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.commands.shell import SMALL, facts, mhsa, tree
from tests.commands.walk import commands, values

SETTINGS = ["task.name=copy", "vocab_size=12", "seq_len=6", "d_model=16", "n_heads=1,2", "epochs=4", "keep=2"]
SETTINGS += ["steps_per_epoch=60", "batch_size=16", "lr=0.02", "eval_sequences=32"]
KEY, SEEDS = "model.n_heads", 5
SHOWN = {"curve", "explain", "timeline", "inspect-heads", "compare"}  # and `export`


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sweep of two settings, trained once."""
    place = tmp_path_factory.mktemp("swept")
    said = mhsa("sweep", *SETTINGS, "--seeds", SEEDS, "--name", "s", "--runs", place / "runs")
    assert said.code == 0, said.err
    return place


@pytest.fixture
def sweep(swept: Path, here: Path) -> Path:
    """A copy of the sweep in ./runs."""
    shutil.copytree(swept / "runs", here / "runs")
    return Path("runs/s")


def trials(sweep: Path, heads: int) -> list[Path]:
    return sorted(sweep.glob(f"n_heads={heads}_seed=*"))


def labels(trial: Path) -> list[str]:
    found = json.loads((trial / "heads.json").read_text())["heads"]
    return [head["label_id"] for head in found if head.get("label_id")]


def test_shares_of_labels_are_those_of_the_models(sweep: Path) -> None:
    shown = mhsa("explain", "s", "--json").json["groups"]
    assert [group["overrides"] for group in shown] == [{KEY: "1"}, {KEY: "2"}]
    for heads, group in enumerate(shown, 1):
        own = [labels(trial) for trial in trials(sweep, heads)]
        counts = Counter(label for one in own for label in set(one))
        counts |= Counter({None: sum(not one for one in own)})
        found = {share["label_id"]: share["models"] for share in group["labels"] if not share["circuit"]}
        assert found == +counts and {share["of"] for share in group["labels"]} == {SEEDS} == {group["models"]}
        assert all(low <= s["models"] / s["of"] <= high for s in group["labels"] for low, high in [s["wilson95"]])
        sets = Counter(tuple(sorted(one)) for one in own)
        assert Counter({tuple(sorted(s["label_ids"])): s["models"] for s in group["sets"]}) == sets
    assert any(share["label_id"] for group in shown for share in group["labels"])


def test_onsets_and_differences_are_those_of_the_report(sweep: Path) -> None:
    report = mhsa("sweep", "show", "s", "--json").json
    found = mhsa("timeline", "s", "--json").json["groups"]
    assert [group["formed"] for group in found] == [group["formed"] for group in report["groups"]]
    assert any(group["formed"] for group in found)
    assert mhsa("compare", "s", "--json").json["pairs"] == report["pairs"] != []
    assert mhsa("inspect-heads", "s", "--json").json["runs"] == report["runs"]


def test_the_curve_of_a_setting_is_that_of_the_run_it_names(sweep: Path) -> None:
    groups = mhsa("curve", "s", "--json").json["groups"]
    medians = mhsa("inspect-heads", "s", "--json").json["median_runs"]
    for heads, group in enumerate(groups, 1):
        ends = sorted((facts(trial)["final"]["eval_loss"], trial.name) for trial in trials(sweep, heads))
        name = ends[SEEDS // 2][1]
        assert Path(group["run"]).name == name and medians[heads - 1] == group["run"]
        curve = facts(sweep / name)["sweep"]["curve"]
        assert [list(point) for point in zip(group["steps"], group["loss"], strict=True)] == curve
        assert name in mhsa("curve", "s").out
    text = mhsa("curve", "s", "--json", "-o", "a.svg")
    assert text.code == 0 and text.json and "wrote a.svg" in text.err


def rows(path: str) -> list[dict[str, str]]:
    with Path(path).open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def known(row: dict[str, str], without: tuple[str, ...] = ()) -> dict[str, str]:
    return {key: value for key, value in row.items() if value and key not in without}


def test_an_exported_sweep_is_its_trials_exported_one_by_one(sweep: Path) -> None:
    assert mhsa("export", "s", "--to", "csv").code == mhsa("export", "s", "--to", "json").code == 0
    table = (sweep / "sweep.csv").read_text().splitlines()
    assert [line.split(",", 1)[1] for line in Path("s-csv/trials.csv").read_text().splitlines()] == [
        line.split(",", 1)[1] for line in table
    ]
    document: dict[str, Any] = json.loads(Path("s.json").read_text())
    assert document["report"]["groups"] == mhsa("sweep", "show", "s", "--json").json["groups"]
    tables = {name: rows(f"s-csv/{name}.csv") for name in ("metrics", "heads")}
    for trial, one in zip([*trials(sweep, 1), *trials(sweep, 2)], document["trials"], strict=True):
        assert mhsa("export", trial, "--to", "csv", "-o", "one").code == 0
        for name, table in tables.items():
            own = [row for row in table if row["run"] == str(trial)]
            assert {(row[KEY], row["seed"]) for row in own} == {(trial.name[8], trial.name[-2:])}
            assert [known(row, ("run", KEY, "seed")) for row in own] == [known(row) for row in rows(f"one/{name}.csv")]
        assert mhsa("export", trial, "--to", "json", "-o", "one.json").code == 0
        whole = json.loads(Path("one.json").read_text())
        assert {**whole, "run": str(trial), KEY: trial.name[8], "seed": int(trial.name[-2:])} == one
        shutil.rmtree("one")
        Path("one.json").unlink()


def test_what_needs_one_model_names_a_trial(sweep: Path) -> None:
    kept = {"--json", "--runs", "--output", "--as", "--width", "--theme", "--only", "--log", "--to"}
    refused = 0
    for command in commands():
        for option in command.options if str(command) in {*SHOWN, "export"} else ():
            needed = ("--to", "csv") if str(command) == "export" else ()
            for given in values(command, option):
                if given[0] in kept:
                    continue
                said = mhsa(*command.words, "s", *needed, *given)
                assert (said.code, said.out) == (2, "") and "s/n_heads=1_seed=42" in said.err, (command, given)
                refused += 1
    assert refused > 25
    for to in ("npz", "transformer-lens", "tensorboard"):
        said = mhsa("export", "s", "--to", to)
        assert said.code == 2 and f"s/n_heads=1_seed=42 --to {to}" in said.err
    trial = "s/n_heads=2_seed=42"
    for words in (["curve", "s", trial], ["compare", "s", trial], ["generate", "s", "--prompt", 1]):
        said = mhsa(*words)
        assert said.code in (2, 4) and not said.out and "s/n_heads=1_seed=42" in said.err
    assert mhsa("explain", trial).code == 0


@pytest.mark.parametrize("command", sorted(SHOWN))
def test_a_look_writes_nothing_and_offers_a_trial(command: str, sweep: Path) -> None:
    before = tree(Path("runs"))
    for name in ("s", "runs/s"):
        said = mhsa(command, name)
        assert said.code == 0 and f"{SEEDS * 2} of {SEEDS * 2}" in said.out and "n_heads" in said.out
        offered = said.out.splitlines()[-1].removeprefix("next: mhsa ").split()
        assert offered[0] == command and all((Path("runs") / run).is_dir() for run in offered[1:])
    assert tree(Path("runs")) == before


def test_trials_that_are_lost_or_damaged_are_left_out_and_counted(sweep: Path) -> None:
    shutil.rmtree(sweep / "n_heads=2_seed=43")
    (sweep / "n_heads=2_seed=44/run.json").write_text("x")
    for command in sorted(SHOWN):
        assert f"{SEEDS * 2 - 2} of {SEEDS * 2}" in mhsa(command, "s").out
    assert [group["models"] for group in mhsa("explain", "s", "--json").json["groups"]] == [SEEDS, SEEDS - 2]
    assert mhsa("export", "s", "--to", "csv").code == 0
    assert len({row["run"] for row in rows("s-csv/metrics.csv")}) == SEEDS * 2 - 2
    assert [row["status"] for row in rows("s-csv/trials.csv")][6:8] == ["missing", "damaged"]
    for trial in sweep.glob("*seed=*"):
        shutil.rmtree(trial)
    for command in sorted(SHOWN - {"compare"}):
        said = mhsa(command, "s")
        assert (said.code, said.out) == (4, "") and "sweep show s" in said.err


def test_a_sweep_of_one_setting_has_nothing_to_compare() -> None:
    assert mhsa("sweep", *SMALL, "eval_sequences=9", "--seeds", 2, "--name", "s").code == 0
    said = mhsa("compare", "s")
    assert (said.code, said.out) == (2, "") and "s/seed=42 s/seed=43" in said.err
    for command in sorted(SHOWN - {"compare", "timeline"}):
        assert mhsa(command, "s").code == 0


@pytest.mark.parametrize(
    "given",
    [
        ("timeline", "--target", "previous"),
        ("inspect-heads", "--step", "240"),
        ("explain", "--score", "a b/own.py:reach"),
    ],
)
def test_the_way_out_of_what_is_for_one_run_is_a_command(given: tuple[str, ...], sweep: Path) -> None:
    Path("a b").mkdir()
    shutil.copy(Path(__file__).parents[2] / "examples/my_scores.py", "a b/own.py")
    command, *asked = given
    said = mhsa(command, "s", *asked)
    way = shlex.split(said.err.strip().rpartition("mhsa ")[2])
    assert said.code == 2 and way == [command, f"s/{trials(sweep, 1)[0].name}", *asked]
    again = mhsa(*way)
    assert again.code == 0, again.err
