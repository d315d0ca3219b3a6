"""Parts of a run or of a sweep swapped, trained on or brought in from elsewhere: a name proves nothing."""

from __future__ import annotations

import atexit
import os
import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mhsa_cli.runs import disk
from mhsa_cli.runs.json_file import dump_sealed
from mhsa_cli.runs.listing import load_info
from tests.commands.shell import Said, mhsa, tree
from tests.faults.row import Place, Row
from tests.settings import later_wins

HERE = "tests.faults.rows.parts"
SIZES = ["task.name=shift", "vocab_size=7", "seq_len=4", "d_model=6", "batch_size=3", "eval_sequences=5"]
SHORT = [*SIZES, "epochs=2", "steps_per_epoch=2"]
TRIALS = [f"n_heads={heads}_seed={seed}" for heads in (1, 2) for seed in (42, 43)]
LAST = "checkpoints/step-00000004"
READERS = [["generate", "a", "--prompt", "1 2"], ["train", "--resume", "a", "epochs=3"], ["verify", "a"]]


class Case(NamedTuple):
    """What is done, and from which draw."""

    how: str
    seed: int


@cache
def trained() -> Path:
    """Two sweeps of one grid and runs of one shape; copies of them are mixed up."""
    folder = Path(tempfile.mkdtemp(prefix="fault-parts-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    runs = ["--runs", folder / "runs"]
    for name, more in (("s", []), ("other", ["lr=0.004"])):
        assert mhsa("sweep", *SHORT, *more, "n_heads=1,2", "--seeds", 2, "--name", name, *runs).code == 0
    for name, more in (("a", []), ("seed", ["seed=9"]), ("rate", ["lr=0.004"]), ("longer", ["epochs=4"])):
        assert mhsa("train", *later_wins(*SHORT, "n_heads=2", "train.keep=9", *more), "--name", name, *runs).code == 0
    return folder / "runs"


@cache
def undisturbed() -> dict[str, Any]:
    """The report of the sweep, by trial."""
    report = mhsa("sweep", "--resume", "s", "--json", "--runs", trained()).json
    return {Path(row["run"]).name: row for row in report["runs"]}


def _swap(first: Path, second: Path) -> None:
    aside = first.with_name("aside")
    for source, target in ((first, aside), (second, first), (aside, second)):
        source.rename(target)


def swapped(draw: random.Random) -> list[str]:
    """The folders of two trials, each under the other's name."""
    two = draw.sample(TRIALS, 2)
    _swap(Path("runs/s", two[0]), Path("runs/s", two[1]))
    return two


def swapped_info(draw: random.Random) -> list[str]:
    """The run.json of two trials."""
    two = draw.sample(TRIALS, 2)
    _swap(Path("runs/s", two[0], "run.json"), Path("runs/s", two[1], "run.json"))
    return two


def continued(draw: random.Random) -> list[str]:
    """A trial that was trained on, or watched otherwise."""
    name = draw.choice(TRIALS)
    more = draw.choice(["train.epochs=3", "train.epochs=5"])
    assert mhsa("train", "--resume", f"runs/s/{name}", more).code == 0
    return [name]


def imported(draw: random.Random) -> list[str]:
    """A run, or a trial of another sweep, under a trial's name."""
    name = draw.choice(TRIALS)
    source = draw.choice([*(f"runs/other/{trial}" for trial in TRIALS), "runs/seed", "runs/rate", "runs/longer"])
    shutil.rmtree(Path("runs/s", name))
    shutil.copytree(source, Path("runs/s", name))
    return [name]


def stopped(draw: random.Random) -> list[str]:
    """An unfinished training of other settings under a trial's name: it must not be deleted."""
    name = draw.choice(TRIALS)
    folder = Path("runs/s", name)
    shutil.rmtree(folder)
    shutil.copytree("runs/longer", folder)
    info = load_info(folder)
    (folder / "run.json").write_bytes(dump_sealed({**info, "status": draw.choice(["stopped", "running"]), "step": 4}))
    return [name]


def retrained(draw: random.Random) -> list[str]:
    """A trial of the right config with other weights than those the report was made of."""
    name = draw.choice(TRIALS)
    path = Path("runs/s", name, "run.json")
    (path).write_bytes(dump_sealed({**load_info(path.parent), "weights_sha256": f"{draw.getrandbits(256):064x}"}))
    return [name]


def replaced(draw: random.Random) -> list[str]:
    """Something else under a trial's name: a sweep, a run among notes, a file."""
    name = draw.choice(TRIALS)
    folder = Path("runs/s", name)
    shutil.rmtree(folder)
    if (what := draw.choice(["sweep", "notes", "file"])) == "file":
        folder.write_text("notes")
        return [name]
    shutil.copytree("runs/other" if what == "sweep" else "runs/seed", folder if what == "sweep" else folder / "inside")
    return [name]


def disguised(draw: random.Random) -> list[str]:
    """A training of other settings, broken off or ended, with the plan's config.yaml or with none."""
    name = draw.choice(TRIALS)
    folder = Path("runs/s", name)
    config = (folder / "config.yaml").read_bytes()
    shutil.rmtree(folder)
    shutil.copytree(draw.choice(["runs/longer", f"runs/other/{name}"]), folder)
    if draw.random() < 0.5:
        (folder / "config.yaml").write_bytes(config)
    else:
        (folder / "config.yaml").unlink()
    facts = {key: value for key, value in load_info(folder).items() if key not in ("files", "sweep", "seed")}
    (folder / "run.json").write_bytes(dump_sealed({**facts, "status": draw.choice(["stopped", "finished"])}))
    return [name]


SWEEPS: dict[str, Callable[[random.Random], list[str]]] = {
    "trials swapped": swapped,
    "trial continued": continued,
    "trial imported": imported,
    "trial stopped elsewhere": stopped,
    "trial retrained": retrained,
    "run.json of trials swapped": swapped_info,
    "something else in a trial's place": replaced,
    "a stranger with the plan's config": disguised,
}


def checkpoint_of(source: str, step: str) -> Callable[[random.Random], None]:
    """A checkpoint of another run, in place of the last one or beside it."""

    def put(draw: random.Random) -> None:
        shutil.rmtree(Path("runs/a", step), ignore_errors=True)
        shutil.copytree(Path("runs", source, step), Path("runs/a", step))

    return put


def maps_of(draw: random.Random) -> None:
    """The maps of another run of this shape, with the list of hashes made to fit."""
    run = Path("runs/a")
    shutil.copy(Path("runs", draw.choice(["seed", "rate"]), "heads.json"), run / "heads.json")
    info = load_info(run)
    info["files"]["heads.json"] = disk.digest([(run / "heads.json").read_bytes()])
    (run / "run.json").write_bytes(dump_sealed(info))


RUNS: dict[str, tuple[Callable[[random.Random], None], list[list[str]]]] = {
    "checkpoint of another seed": (checkpoint_of("seed", LAST), READERS),
    "checkpoint of another rate": (checkpoint_of("rate", LAST), READERS),
    "checkpoint of a longer run": (checkpoint_of("longer", LAST), READERS),
    "later checkpoint of a longer run": (checkpoint_of("longer", "checkpoints/step-00000008"), READERS),
    "maps of another run": (maps_of, [["inspect-heads", "a"], ["explain", "a"], ["verify", "a"]]),
}


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every kind in turn, each time from another draw."""
    draw, kinds = random.Random(seed), [*SWEEPS, *RUNS, "trial ended by hand"]
    for number in range(count):
        yield Case(kinds[number % len(kinds)], draw.getrandbits(30))


def check(case: Case, place: Place) -> None:
    """Mix the parts up; what does not belong is refused, or left out of the figures, and never changed."""
    shutil.copytree(trained(), place.path / "runs")
    os.chdir(place.path)
    draw = random.Random(case.seed)
    if case.how in SWEEPS:
        check_sweep(SWEEPS[case.how](draw))
    elif case.how in RUNS:
        mix, readers = RUNS[case.how]
        mix(draw)
        before = tree(Path("runs/a"))
        for command in readers:
            said = mhsa(*command)
            assert said.code == 4, f"{command}: exit code {said.code}: {said.err}"
        assert tree(Path("runs/a")).keys() - {".lock"} == before.keys() - {".lock"}, "something was written"
    else:
        check_ended_by_hand(draw)


def content() -> dict[str, Any]:
    """What the trials hold."""
    places = [Path("runs/s", name) for name in TRIALS]
    return {place.name: tree(place) if place.is_dir() else place.read_bytes() for place in places}


def rows(said: Said) -> dict[str, Any]:
    """The trials of a report, by name."""
    return {Path(row["run"]).name: row for row in said.json["runs"]}


def check_sweep(strangers: list[str]) -> None:
    """The strangers have no figure in the report and stay as they are; all others have theirs."""
    before = content()
    said = mhsa("sweep", "--resume", "s", "--json")
    assert said.code == 4, f"exit code {said.code}: {said.err}"
    for name, row in rows(said).items():
        if name in strangers:
            assert row["status"] == "excluded" and row["final_loss"] is row["steps_to_goal"] is None, row
        else:
            assert {**row, "run": undisturbed()[name]["run"]} == undisturbed()[name]
    counted = sum(group["success"]["n"] for group in said.json["groups"])
    assert counted == len(TRIALS) - len(strangers), f"{counted} trials counted"
    assert content() == before, "a trial was changed"
    found = {check["name"]: check["state"] for check in document("s")}
    assert [name for name in TRIALS if found.get(name) == "wrong"] == sorted(strangers), found


def document(sweep: str) -> list[dict[str, Any]]:
    """What verify found in a sweep that is not what it was."""
    said = mhsa("verify", sweep, "--json")
    assert said.code == 4, said
    found: list[dict[str, Any]] = said.json["checks"]
    return found


def check_ended_by_hand(draw: random.Random) -> None:
    """A trial that was broken off and brought to its end by `mhsa train --resume` is the plan's: it counts."""
    name = draw.choice(TRIALS)
    shutil.rmtree(Path("runs/s", name))
    heads, seed = (part.partition("=")[2] for part in name.split("_seed"))
    settings = [f"n_heads={heads}", f"seed={seed}"]
    assert mhsa("train", *SHORT, *settings, "--name", name, "--runs", "runs/s").code == 0
    said = mhsa("sweep", "--resume", "s", "--json")
    assert said.code == 0, said.err
    ignored = {"run": "", "seconds": 0.0}
    assert {**rows(said)[name], **ignored} == {**undisturbed()[name], **ignored}
    assert mhsa("verify", "s").code == 0


def believe_names(patch: pytest.MonkeyPatch) -> None:
    """The mutant: a trial is what its folder is called."""
    patch.setattr("mhsa_cli.jobs.sweep.membership.why_not_planned", lambda *_: None)


ROW = Row(
    fault="parts swapped, trained on, brought in: trials, checkpoints, maps",
    promise="P13",
    quick=14,
    long=180,
    cases=cases,
    check=check,
    mutant=f"{HERE}:believe_names",
)
