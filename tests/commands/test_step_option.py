"""`--step`: a run at an earlier checkpoint is the run that ended there, and its files stay as they are."""

from __future__ import annotations

import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from mhsa_cli.errors import RunError
from mhsa_cli.jobs.steps import find_step
from mhsa_cli.records.training import EvalRecord
from mhsa_cli.runs.listing import METRICS
from mhsa_cli.runs.metrics import record_to_dict
from mhsa_cli.runs.run_dir import RunDir
from tests.commands import custom
from tests.commands.shell import codes_without_torch, metrics, mhsa, tree


def arrays(name: str, *more: str) -> dict[str, np.ndarray]:
    path = Path("out.npz")
    path.unlink(missing_ok=True)
    said = mhsa("export", name, "--to", "npz", "-o", path, *more)
    assert said.code == 0, said.err
    with np.load(path) as found:
        return {key: found[key] for key in found.files if key != "config"}


def assert_same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> None:
    assert one.keys() == other.keys()
    for key in one:
        assert np.array_equal(one[key], other[key]), key


def test_a_run_at_a_step_is_the_run_that_ended_there(tiny: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "epochs=1", "--name", "half").code == 0
    assert mhsa("explain", "half", "--more").code == 0  # kept in the run, as at the end of the other it would be
    before = tree(Path("runs"))
    assert_same(arrays("tiny", "--step", "5"), arrays("half"))
    assert not np.array_equal(arrays("tiny")["attention"], arrays("half")["attention"])
    prompt = ["--prompt", "3 1 4", "--temperature", 9]
    for command, *more in (["inspect-heads", "--tokens", "3 1 4"], ["inspect-heads", "--lens"], ["generate", *prompt]):
        whole = mhsa(command, "tiny", *more, "--step", 5, "--json").json
        assert whole["step"] == 5 and {**whole, "run": ""} == {**mhsa(command, "half", *more, "--json").json, "run": ""}
    whole = mhsa("explain", "tiny", "--more", "--step", "first", "--json").json
    assert whole["step"] == 5 and {**whole, "run": ""} == {**mhsa("explain", "half", "--json").json, "run": ""}
    assert mhsa("explain", "tiny", "--step", "first").code == 0
    assert tree(Path("runs")) == before
    shutil.rmtree("runs/half")
    assert mhsa("train", "--config", "tiny.yaml", "epochs=1", "--name", "half").code == 0
    assert [mhsa("export", *more, "--to", "csv").code for more in (["tiny", "--step", 5], ["half"])] == [0, 0]
    assert Path("tiny-step-5-csv/heads.csv").read_text() == Path("half-csv/heads.csv").read_text()


@pytest.mark.parametrize("made_by", ["seed", "own"])
def test_step_0_is_the_untrained_model_kept_or_not(trained: Path, made_by: str) -> None:
    custom.write()
    more, named = ([], []) if made_by == "seed" else (["attention=mine.py:Mine"], ["--attention", "mine.py:Mine"])
    for name, keep in (("few", 1), ("all", 9)):
        assert mhsa("train", "--config", "tiny.yaml", f"keep={keep}", "--name", name, *more).code == 0
    assert len(list(Path("runs/all/checkpoints").iterdir())) == 3
    assert_same(arrays("few", "--step", "0", *named), arrays("all", "--step", "first", *named))
    assert mhsa("explain", "few", "--step", 0, *named, "--json").json["step"] == 0


def test_a_step_that_is_not_kept_is_refused_with_those_that_are(tiny: Path) -> None:
    commands = [["explain"], ["inspect-heads"], ["generate", "--prompt", 1], ["export", "--to", "npz"]]
    for command, *more in (*commands, ["compare", "tiny"]):
        said = mhsa(command, "tiny", *more, "--step", 7)
        assert (said.code, said.out) == (4, "")
        assert all(text in said.err for text in ("5, 10", "train.keep", "train.save_every"))
        assert mhsa(command, "tiny", *more, "--step", "soon").code == 2
    assert mhsa("export", "tiny", "--to", "tensorboard", "--step", 5).code == 2
    assert mhsa("compare", "tiny", "tiny", *["--step", "5"] * 3).code == 2
    shutil.rmtree("runs/tiny/checkpoints")
    for step in ("first", "best", "7"):
        assert mhsa("explain", "tiny", "--step", step).code == 4


def test_a_damaged_checkpoint_is_not_replaced_by_another_step(tiny: Path) -> None:
    (tiny / "checkpoints/step-00000010/model.safetensors").write_bytes(b"x")
    said = mhsa("generate", "tiny", "--prompt", 1, "--json")
    assert (said.code, said.json["step"]) == (0, 5)
    assert mhsa("generate", "tiny", "--prompt", 1, "--step", 10).code == 4


def test_the_end_of_a_run_needs_no_torch(tiny: Path) -> None:
    steps = ["last", "10"]
    assert codes_without_torch(*(["explain", "tiny", "--step", step] for step in steps)) == [0, 0]
    assert codes_without_torch(["inspect-heads", "tiny", "--step", "7"], ["explain", "tiny", "--step", "x"]) == [4, 2]


def test_the_best_step_is_that_of_the_lowest_evaluation_loss_among_those_kept(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    losses = {0: 0.1, 5: 3.0, 10: 2.0, 15: 2.0, 20: math.nan}
    with RunDir.create(here / "runs", "hand") as run:
        run.append(METRICS, [record_to_dict(EvalRecord(step, loss, 0.5)) for step, loss in losses.items()])
        for step in (5, 10, 15, 20, 25):
            run.commit_checkpoint(step, {"state.json": b"{}"}, keep=5)
        found = {name: find_step(run, name) for name in ("best", "first", "last", "15", "0")}
        assert found == {"best": 10, "first": 5, "last": None, "15": 15, "0": 0}
        assert "20, 25" in capsys.readouterr().err  # those without a loss
        run.update(status="stopped", step=25, final={"step": 25, "eval_loss": 1.0, "eval_accuracy": 0.9})
        assert find_step(run, "best") == 25
        run.truncate_after(0)
        run.update(final=None)
        with pytest.raises(RunError) as refused:
            find_step(run, "best")
        assert refused.value.code == "no-evaluation"


def test_a_run_is_compared_with_itself_at_another_step(tiny: Path) -> None:
    said = mhsa("compare", "tiny", "tiny", "--step", "first", "--step", "last", "--json").json
    evaluated = {r["step"]: (r["loss"], r["accuracy"]) for r in metrics(tiny) if r["kind"] == "eval"}
    for final, step in zip(said["final"], (5, 10), strict=True):
        assert final["steps"] == step and (final["eval_loss"], final["eval_accuracy"]) == evaluated[step]
    assert said["final"][0]["seconds"] is None and said["matches"]["cost"] > 0
    both = mhsa("compare", "tiny", "tiny", "--step", "5", "--json").json
    assert both["matches"]["cost"] == 0 and [final["steps"] for final in both["final"]] == [5, 5]
    assert "tiny at 5" in mhsa("compare", "tiny", "tiny", "--step", "5", "--step", "last").out
