"""mhsa runs: sorting, filtering and deleting."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from mhsa_cli.commands import runs
from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.config.load import load_config
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.runs.names import RESERVED
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.selection import SORTS, STATUSES
from mhsa_cli.text import byte_size
from tests.commands.shell import mhsa

FIGURES = {  # name: order, seconds, loss, accuracy, status, settings
    "alpha": (5, 3.5, 0.7, 0.5, "finished", "n_heads=1"),
    "beta-2": (6, 11.0, 0.05, 0.99, "finished", "n_heads=2"),
    "gamma": (7, 0.5, float("nan"), 0.25, "failed", "n_heads=4"),
    "delta-2": (8, 7.0, None, None, "stopped", "n_heads=2"),
}


@pytest.fixture
def many(here: Path) -> Path:
    """Four runs whose figures order them in four ways, and a damaged one."""
    for name, (order, seconds, loss, accuracy, status, settings) in FIGURES.items():
        with RunDir.create(Path("some"), name) as run:
            run.write_config(dump_yaml(load_config(None, [settings])))
            final = {} if loss is None else {"final": {"eval_loss": loss, "eval_accuracy": accuracy}}
            run.update(status=status, order=order, seconds=seconds, **final)
    (here / "some" / "torn").mkdir()
    return here / "some"


def names(*arguments: str) -> list[str]:
    said = mhsa("runs", *arguments, "--runs", "some", "--json")
    assert said.code == 0, said.err
    return [Path(row["run"]).name for row in said.json]


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("by", "wanted", "unknown"),
    [
        ("started", ["delta-2", "gamma", "beta-2", "alpha"], ["torn"]),
        ("name", ["alpha", "beta-2", "delta-2", "gamma", "torn"], []),
        ("loss", ["beta-2", "alpha"], ["delta-2", "gamma", "torn"]),
        ("accuracy", ["beta-2", "alpha", "gamma"], ["delta-2", "torn"]),
        ("seconds", ["beta-2", "delta-2", "alpha", "gamma"], ["torn"]),
    ],
)
def test_a_sort_is_newest_best_longest_or_a_first_with_the_unknown_last(
    by: str, wanted: list[str], unknown: list[str]
) -> None:
    assert names("--sort", by) == wanted + unknown
    assert names("--sort", by, "--reverse") == wanted[::-1] + unknown


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        ("--filter -2", {"beta-2", "delta-2"}), ("--filter *a", {"alpha", "gamma"}), ("--filter nothing", set()),
        ("--filter [ag]*", {"alpha", "gamma"}), ("--filter a --filter m", {"gamma"}),
        ("--filter n_heads=2", {"beta-2", "delta-2"}),
        ("--filter model.n_heads=4,1", {"alpha", "gamma"}), ("--filter n_heads=2 --filter be", {"beta-2"}),
        ("--filter n_heads=2 --filter n_heads=4", set()), ("--status finished", {"alpha", "beta-2"}),
        ("--status failed --status stopped", {"gamma", "delta-2"}), ("--status damaged", {"torn"}),
        ("--status finished --filter n_heads=2", {"beta-2"}), ("--status running", set()),
    ],
)  # fmt: skip
def test_filters_hold_together_and_statuses_are_alternatives(arguments: str, wanted: set[str]) -> None:
    assert set(names(*arguments.split())) == wanted
    said = mhsa("runs", *arguments.split(), "--runs", "some")
    assert said.code == 0 and all((name in said.out) == (name in wanted) for name in (*FIGURES, "torn"))


@pytest.mark.usefixtures("many")
@pytest.mark.parametrize(
    ("arguments", "wanted", "says"),
    [
        ("", ["delta-2", "gamma"], "the first 2 of 5 runs; --all shows the rest"),
        ("--reverse", ["alpha", "beta-2"], "the first 2 of 5 runs; --all shows the rest"),
        ("--sort loss", ["beta-2", "alpha"], "the first 2 of 5 runs; --all shows the rest"),
        ("--filter a", ["delta-2", "gamma"], "the first 2 of 4 that match, of 5 runs; --all shows the rest"),
        ("--filter n_heads=2", ["delta-2", "beta-2"], "2 of 5 runs"),
        ("--status finished", ["beta-2", "alpha"], "2 of 5 runs"),
        ("--all", ["delta-2", "gamma", "beta-2", "alpha", "torn"], ""),
    ],
)  # fmt: skip
def test_the_first_are_shown_and_the_others_counted(arguments: str, wanted: list[str], says: str) -> None:
    with mock.patch.object(runs, "SHOWN", 2):
        said = mhsa("runs", *arguments.split(), "--runs", "some")
        rows, _, end = said.out.partition("\n\n")
        _, *shown = rows.splitlines()
        assert [line.split()[0] for line in shown[: len(wanted)]] == wanted
        assert shown[len(wanted) :] == ([says] if says else [])
        assert end.startswith("next: mhsa inspect-heads")
        assert len(names()) == 5  # a document has all


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--sort los", "--sort loss"), ("--status finshed", "--status finished"), ("--filter n_heds=2", "`n_heads`"),
        ("copy --sort loss", "RUN"), ("a b", "one"), ("--yes", "rm"), ("rm", "RUN..."), ("rm a --sort loss", "rm"),
    ],
)  # fmt: skip
def test_what_the_list_does_not_take_is_refused_with_the_way_out(typed: str, meant: str) -> None:
    said = mhsa("runs", *typed.split())
    assert (said.code, said.out) == (2, "") and meant in said.err


def answered(text: str) -> Any:
    """A terminal at which somebody types."""
    keyboard = io.StringIO(text)
    keyboard.isatty = lambda: True  # type: ignore[method-assign]
    return mock.patch.object(sys, "stdin", keyboard)


def test_deleting_asks_once_for_all_and_says_what_goes(many: Path) -> None:
    size = sum(path.stat().st_size for path in (many / "alpha").rglob("*"))
    for answer in ("\n", "", "n\n", "yo\n"):
        with answered(answer):
            said = mhsa("runs", "rm", "alpha", "gamma", "alpha", "--runs", "some")
        assert (said.code, said.out) == (7, "") and said.err.count("?") == 1 and len(names()) == 5
        assert byte_size(size) in said.err and "2 runs" in said.err
    with answered("y\n"):
        said = mhsa("runs", "rm", "alpha", "gamma", "--runs", "some")
    assert said.code == 0 and said.out.count("deleted some/") == 2 and names() == ["delta-2", "beta-2", "torn"]


def test_a_script_deletes_with_yes_alone_and_gets_a_document(many: Path) -> None:
    assert mhsa("runs", "rm", "alpha", "--runs", "some").code == 2 and (many / "alpha").exists()
    said = mhsa("runs", "rm", "alpha", "--yes", "--runs", "some", "--json")
    assert [row["run"] for row in said.json["deleted"]] == ["some/alpha"] and not (many / "alpha").exists()


def test_where_one_is_refused_none_is_deleted(many: Path) -> None:
    with RunDir.open(many, "beta-2", write=True):
        for name, code in (("beta-2", 6), ("torn", 4), ("nothing", 4)):
            said = mhsa("runs", "rm", "alpha", name, "--yes", "--runs", "some")
            assert (said.code, said.out) == (code, "") and name in said.err
    assert len(names()) == 5


def test_no_task_and_no_option_of_runs_has_a_word_in_place_of_a_name() -> None:
    assert not set(RESERVED) & {*TASK_SCHEMAS, *SORTS, *STATUSES}
