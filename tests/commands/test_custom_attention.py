"""model.attention: FILE.py:Class in commands: trained and resumed like ours, and imported only where it is named."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from mhsa_cli.check.build import load_block
from mhsa_cli.config.tasks import TASK_SCHEMAS
from mhsa_cli.core.heads import random_baseline
from mhsa_cli.core.model.custom import Sizes
from mhsa_cli.errors import UsageError
from tests.check.kinds import FUSED, written
from tests.commands.custom import Marker, write
from tests.commands.shell import TINY, Said, at_step, facts, metrics, mhsa

MINE = "model.attention=mine.py:Mine"
NAMED = ("--attention", "mine.py:Mine")
RUN = Path("runs/own")


@pytest.fixture(scope="module", autouse=True)
def few_untrained_heads() -> Iterator[None]:
    """Labels are not asked here, and those of a file's block are measured anew after every training."""
    with mock.patch.object(random_baseline, "HEADS", 8), mock.patch.object(random_baseline, "RANDOM_HEADS", 8):
        yield


@pytest.fixture
def marker(here: Path) -> Marker:
    """What tells whether mine.py was run."""
    return write()


@pytest.fixture(scope="module")
def trained_own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was trained with a block of one's own, in a folder of its own."""
    place = tmp_path_factory.mktemp("own")
    marker = write(place)
    (place / "tiny.yaml").write_text(TINY)
    with contextlib.chdir(place):
        said = train("Mine")
    assert said.code == 0, said.err
    assert marker.exists()
    return place / RUN


@pytest.fixture
def own(trained_own: Path, marker: Marker) -> Path:
    """A copy of that run, and nothing imported since."""
    shutil.copytree(trained_own, RUN)
    marker.unlink()
    return RUN


def train(name: str, *more: str) -> Said:
    return mhsa("train", "--config", "tiny.yaml", f"model.attention=mine.py:{name}", "--name", "own", *more)


def test_it_is_trained_measured_and_recorded_as_ours_is(marker: Marker) -> None:
    said = train("Mine")
    assert said.code == 0, said.err
    assert "mhsa check mine.py:Mine" in said.err
    assert "custom attention" in said.out and "effect:" not in said.out
    info = facts(RUN)
    assert info["status"] == "finished" and info["attention"]["name"] == "Mine"
    assert len(info["attention"]["sha256"]) == 64
    assert {"eval", "step", "epoch"} <= {line["kind"] for line in metrics(RUN)}
    assert (RUN / "heads.jsonl").read_text().count("\n") > 3


def test_it_learns(marker: Marker) -> None:
    settings = ("task.name=shift", "model.dropout=0", "train.epochs=2", "train.steps_per_epoch=60", "seq_len=6")
    said = mhsa("train", MINE, *settings, "--name", "one")
    assert said.code == 0, said.err
    assert facts(Path("runs/one"))["final"]["eval_accuracy"] > 0.9


def test_the_same_seed_gives_the_same_bits(own: Path) -> None:
    digests = [facts(own)["weights_sha256"]]
    for name, seed in (("two", 8), ("other", 5)):
        settings = ("--config", "tiny.yaml", MINE, f"train.seed={seed}", "--name", name)
        assert mhsa("train", *settings).code == 0
        digests.append(facts(Path("runs", name))["weights_sha256"])
    assert digests[0] == digests[1] != digests[2]


@pytest.mark.parametrize("step", [1, 7])
def test_stopped_and_resumed_it_is_as_never_stopped(step: int, own: Path) -> None:
    whole, curve, heads = facts(own), (own / "metrics.jsonl").read_bytes(), (own / "heads.json").read_text()
    with at_step(step, lambda: os.kill(os.getpid(), signal.SIGINT)):
        assert mhsa("train", "--config", "tiny.yaml", MINE, "--name", "again").code == 130
    said = mhsa("train", "--resume", "again", *NAMED)
    assert said.code == 0, said.err
    again = Path("runs/again")
    assert facts(again)["weights_sha256"] == whole["weights_sha256"]
    assert (again / "metrics.jsonl").read_bytes() == curve
    assert (again / "heads.json").read_text().replace("again", "own") == heads


def test_the_resume_check_goes_through_it(marker: Marker) -> None:
    said = mhsa("verify", "--resume-check", "tiny.yaml", MINE)
    assert said.code == 0 and "equal, bit for bit" in said.out, said.out + said.err


READ = [
    ("inspect-heads", "own"), ("explain", "own"), ("curve", "own"), ("timeline", "own"), ("runs",), ("verify", "own"),
    ("compare", "own", "own"), ("export", "own", "--to", "npz"), ("export", "own", "--to", "csv"),
]  # fmt: skip
NEED = [
    ("generate", "own", "--prompt", "3"), ("inspect-heads", "own", "--tokens", "1 2"),
    ("train", "--resume", "own", "train.epochs=3"),
]  # fmt: skip


@pytest.mark.parametrize("command", READ, ids=" ".join)
@pytest.mark.parametrize("gone", [False, True])
def test_what_only_reads_a_run_neither_imports_nor_needs_the_file(
    command: tuple[str, ...], gone: bool, own: Path
) -> None:
    if gone:
        Path("mine.py").unlink()
    said = mhsa(*command)
    assert said.code == 0, said.err
    assert not Marker().exists()


@pytest.mark.parametrize("command", NEED, ids=" ".join)
def test_what_needs_the_model_asks_to_have_it_named_and_then_works(command: tuple[str, ...], own: Path) -> None:
    refused = mhsa(*command)
    assert refused.code == 2 and not Marker().exists()
    assert "--attention mine.py:Mine" in refused.err
    said = mhsa(*command, *NAMED)
    assert said.code == 0, said.err
    assert Marker().exists()


def test_another_block_or_a_name_for_ours_is_refused(own: Path) -> None:
    other = mhsa("generate", "own", "--prompt", "3", "--attention", "mine.py:Quiet")
    assert other.code == 2 and "mine.py:Mine" in other.err and not Marker().exists()
    assert mhsa("train", "--config", "tiny.yaml", "--name", "ours").code == 0
    ours = mhsa("generate", "ours", "--prompt", "3", *NAMED)
    assert ours.code == 2 and "softmax" in ours.err and "--attention" in ours.err and not Marker().exists()
    new = mhsa("train", *NAMED)
    assert new.code == 2 and "model.attention=mine.py:Mine" in new.err


def test_a_changed_file_is_refused_at_resume_and_noted_elsewhere(own: Path) -> None:
    with Path("mine.py").open("a") as file:
        file.write("# better\n")
    refused = mhsa("train", "--resume", "own", "train.epochs=3", *NAMED)
    assert refused.code == 4 and "mine.py" in refused.err and "--allow-inexact" in refused.err
    assert "--allow-inexact" in refused.err and facts(own)["step"] == 10
    noted = mhsa("generate", "own", "--prompt", "3", *NAMED)
    assert noted.code == 0 and "mine.py" in noted.err
    assert mhsa("train", "--resume", "own", "train.epochs=3", "--allow-inexact", *NAMED).code == 0
    assert facts(own)["step"] == 15


def test_a_block_without_weights_is_trained_and_no_map_is_shown(marker: Marker) -> None:
    said = train("Quiet")
    assert said.code == 0, said.err
    assert "mine.py:Quiet" in said.out
    assert not (RUN / "heads.json").exists() and facts(RUN)["final"]["eval_loss"] > 0
    for command in ("inspect-heads", "explain", "timeline"):
        refused = mhsa(command, "own")
        assert refused.code == 2 and "mine.py:Quiet" in refused.err, command
    assert mhsa("verify", "own").code == 0
    assert mhsa("curve", "own").code == 0
    assert mhsa("export", "own", "--to", "npz").code == 0
    assert mhsa("train", "--config", "tiny.yaml", "--name", "ours").code == 0
    beside = mhsa("compare", "own", "ours")
    assert beside.code == 0 and "own has no maps of heads" in beside.out.replace("\n", " ")


def test_weights_that_are_not_given_are_recovered_from_its_projections(marker: Marker) -> None:
    assert train("Mine").code == 0
    assert mhsa("train", "--config", "tiny.yaml", "model.attention=mine.py:Silent", "--name", "silent").code == 0
    assert facts(Path("runs/silent"))["weights_sha256"] == facts(RUN)["weights_sha256"]
    given, found = (json.loads(Path("runs", run, "heads.json").read_text()) for run in ("own", "silent"))
    flat = [[p for a in h["weights"] for b in a for c in b for p in c] for h in (given, found)]
    assert flat[1] == pytest.approx(flat[0], abs=1e-5)


def test_heads_are_matched_with_ours_where_the_block_is_named(own: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "--name", "ours").code == 0
    without = mhsa("compare", "own", "ours", "--json").json
    assert without["matches"] is None and "--attention mine.py:Mine" in without["matches_note"]
    assert without["differences"] == {"model.attention": ["mine.py:Mine", "softmax"]}
    assert not Marker().exists()
    with_it = mhsa("compare", "own", "ours", "--json", *NAMED).json
    assert len(with_it["matches"]["pairs"]) == 6
    assert (with_it["matches"]["status"], with_it["matches"]["untested"]) == ("not measured", "custom")


@pytest.mark.parametrize("option", ["--circuits", "--ablate=L0.H0", "--patch=L0.H0", "--direct"])
def test_what_changes_or_reads_its_inside_is_not_measured(option: str, own: Path) -> None:
    said = mhsa("inspect-heads", "own", option)
    assert said.code == 2 and "model.attention is mine.py:Mine" in said.err and not Marker().exists()


@pytest.mark.parametrize("command", ["trace", "bench"])
def test_commands_about_our_block_say_so(command: str, marker: Marker) -> None:
    said = mhsa(command, MINE)
    assert said.code == 2 and "mhsa check mine.py:Mine" in said.err and not marker.exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("Future", "sees the future: token 1 changes the output at token 0"),
        ("Narrow", "gives the shape (2, 6, 11) for an input of the shape (2, 6, 12)"),
        ("Infinite", "gives NaN or infinity"),
        ("Unbuilt", "RuntimeError: no such width"),
        ("Raises", "ValueError: what is this?"),
        ("Counting", "changes its buffer"),
        ("Detached", "without a gradient"),
    ],
)
def test_a_block_that_cannot_be_trained_is_refused_before_a_run_begins(name: str, words: str, marker: Marker) -> None:
    said = train(name)
    assert said.code == 2 and words in said.err and f"mine.py:{name}" in said.err, said.err
    assert not RUN.exists()


def test_the_line_that_is_blamed_is_in_its_own_file_and_not_in_one_of_the_same_name(here: Path) -> None:
    narrow = "x = torch.nn.functional.softmax(x, dim=9 if x.size(-1) == 12 else -1)"  # torch has a functional.py too
    text = written(FUSED, ("# flat", narrow))
    Path("functional.py").write_text(text)
    place = mock.Mock(return_value="there")
    with pytest.raises(UsageError):
        replace(load_block("functional.py:Block"), place=place).findings(Sizes(12, 3, 8, 0.0, True))
    place.assert_called_once_with(1 + text.splitlines().index(f"        {narrow}"))


def test_what_a_plain_list_hides_from_training_is_told(marker: Marker) -> None:
    said = train("Listed")
    assert said.code == 0, said.err
    assert "last.0.weight" in said.err
    assert "untrained" not in train("Mine", "--name=other").err


def test_a_block_of_one_length_is_trained_and_speaks(marker: Marker) -> None:
    assert train("Fixed").code == 0
    said = mhsa("generate", "own", "--prompt", "3", "--attention", "mine.py:Fixed", "--json")
    assert said.code == 0 and len(said.json["tokens"]) == 6, said.err


@pytest.mark.parametrize("task", TASK_SCHEMAS)
def test_every_task_trains_it(task: str, marker: Marker) -> None:
    Path("words.txt").write_text("to be or not to be, that is the question\n" * 20)
    Path("rows.txt").write_text("1 -> 2\n3 4 -> 5\n6 -> 1\n")
    more = {"text": ["task.path=words.txt"], "rows": ["task.rows=rows.txt"]}.get(task, ["vocab_size=11"])
    short = [
        "seq_len=8",
        "d_model=12",
        "n_heads=3",
        "epochs=1",
        "steps_per_epoch=3",
        "batch_size=5",
        "eval_sequences=6",
    ]
    said = mhsa("train", MINE, f"task.name={task}", *more, *short, "--name", "own")
    assert said.code == 0, said.err


@pytest.mark.parametrize("dtype", ["float64", "bfloat16"])
def test_other_numbers_train_it(dtype: str, marker: Marker) -> None:
    assert train("Mine", f"train.dtype={dtype}").code == 0


def test_config_check_reads_the_file_and_never_runs_it(marker: Marker) -> None:
    assert mhsa("config", "check", "tiny.yaml", MINE).code == 0
    wrong = mhsa("config", "check", "tiny.yaml", "model.attention=mine.py:Nobody")
    assert wrong.code == 2 and "mine.py has no `Nobody`" in wrong.err and "classes in it: Mine, " in wrong.err
    assert mhsa("config", "check", "tiny.yaml", "model.attention=gone.py:Mine").code == 2
    assert not marker.exists()


def test_the_commands_of_a_file_with_a_space_can_be_copied(here: Path) -> None:
    (here / "a b").mkdir()
    write(here / "a b")
    (here / "tiny.yaml").write_text(TINY)
    block = "a b/mine.py:Mine"
    said = mhsa("train", "-c", "tiny.yaml", f"model.attention={block}", "--name", "own")
    assert said.code == 0 and f"mhsa check '{block}'" in said.err
    assert f"--attention '{block}'" in mhsa("generate", "own", "--prompt", "3").err
