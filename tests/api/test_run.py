"""A run in Python is the run of the commands: two roads to one result."""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

import mhsa_cli as mhsa
from mhsa_cli.api import progress
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.training import StepRecord
from mhsa_cli.runs.heads import maps_from_dict
from mhsa_cli.runs.run_dir import RunDir
from tests.api.conftest import QUICK, TINY


def rows(table: Any) -> list[dict[str, Any]]:
    """Read a table, with pandas or without."""
    return table if isinstance(table, list) else table.to_dict("records")


def test_a_training_is_that_of_the_command(place: Path) -> None:
    words = [f"{key}={json.dumps(value)}" for key, value in {**TINY, "n_heads": 3, **QUICK}.items()]
    command = [sys.executable, "-m", "mhsa_cli", "train", "task.name=copy", *words, "--name", "typed", "--json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    run = mhsa.load("tiny", runs=place / "runs")
    assert json.loads(done.stdout)["weights_sha256"] == run.info["weights_sha256"]
    assert mhsa.load(place / "runs" / "typed").config == run.config
    assert run.info["command"] == ["mhsa", "train", "task.name=copy", *words]


def test_metrics_are_the_curve(tiny: mhsa.Run) -> None:
    found = rows(tiny.metrics)
    lines = [json.loads(line) for line in (tiny.path / "metrics.jsonl").read_text().splitlines()]
    assert [(row["kind"], row["step"], row["loss"]) for row in found] == [
        (line["kind"], line["step"], line["loss"]) for line in lines
    ]
    assert [row["step"] for row in found if row["kind"] == "epoch"] == [9, 18]


def test_heads_and_claims_are_those_of_heads_json(tiny: mhsa.Run) -> None:
    maps = maps_from_dict(RunDir(tiny.path).read_heads())
    assert maps.report is not None
    heads = rows(tiny.heads)
    assert [row["name"] for row in heads] == [f"L{layer}.H{head}" for layer in (0, 1) for head in (0, 1, 2)]
    for row, head in zip(heads, maps.report.heads, strict=True):
        assert row["uniform_delta_nats"] == head.uniform_delta_nats and row["text"]
        assert row["label_id"] == (None if head.label is None else head.label.id)
    claims = rows(tiny.claims)
    assert len(claims) == len(maps.report.verdict.claims) + sum(len(head.evidence) for head in maps.report.heads)
    assert {row["subject"] for row in claims} <= {"model", *(row["name"] for row in heads)}


def test_attention_is_that_of_the_model_on_any_tokens(tiny: mhsa.Run) -> None:
    stored, found = tiny.attention(), tiny.attention([3, 1, 4, 2])
    assert isinstance(found, HeadMaps) and stored.report is not None and found.report is None
    ids = torch.tensor([[3, 1, 4, 2]])
    _, weights = tiny.model(ids, return_weights=True)
    for layer, of_layer in enumerate(weights):
        assert torch.allclose(of_layer[0], torch.tensor(found.weights[layer]), atol=1e-6)
    assert tiny.attention("3 1 4 2") == found
    again = tiny.attention(" ".join(stored.tokens))
    for layer, heads in enumerate(stored.weights):
        assert torch.allclose(torch.tensor(again.weights[layer]), torch.tensor(heads), atol=1e-5)


def test_ablating_a_head_costs_what_its_row_says(tiny: mhsa.Run) -> None:
    for spelled in ("L1.H2", [(1, 2)], ["L1.H2"]):
        found = {row["way"]: row for row in rows(tiny.ablate(spelled))}
        assert list(found) == ["none", "uniform", "zero", "mean", "resample"] and found["none"]["delta_nats"] == 0
    head = rows(tiny.heads)[5]
    assert math.isclose(found["uniform"]["delta_nats"], head["uniform_delta_nats"], abs_tol=1e-6)
    two = {row["way"]: row["loss"] for row in rows(tiny.ablate("L0.H0,L1.H2"))}
    assert two == {row["way"]: row["loss"] for row in rows(tiny.ablate([(0, 0), (1, 2)]))} != found


def test_what_a_run_does_not_have_is_an_error(tiny: mhsa.Run) -> None:
    asked = (lambda: tiny.ablate("L7.H0"), lambda: tiny.ablate([]), lambda: tiny.attention([99]))
    for ask in (*asked, lambda: tiny.attention("")):
        with pytest.raises(mhsa.MhsaError) as raised:
            ask()
        assert raised.value.exit_code == 2


def test_a_run_that_is_not_there_is_an_error(place: Path) -> None:
    for ask in (mhsa.load, mhsa.load_sweep):
        with pytest.raises(mhsa.MhsaError) as raised:
            ask("missing", runs=place / "runs")
        assert raised.value.exit_code == 4


def test_tables_are_lists_without_pandas(tiny: mhsa.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with_pandas = tiny.heads
    monkeypatch.setitem(sys.modules, "pandas", None)
    found = mhsa.load(tiny.path).heads
    assert isinstance(found, list) and list(found[0]) == list(with_pandas.columns)
    assert [row["name"] for row in found] == list(with_pandas["name"])


def test_nothing_is_printed_and_the_program_stays_as_it_was(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    torch.set_num_threads(2)
    try:
        torch.manual_seed(5)
        wanted = torch.rand(3)
        torch.manual_seed(5)
        run = mhsa.train("copy", TINY, n_heads=2, **QUICK)
        run.ablate("L0.H0")
        assert torch.equal(torch.rand(3), wanted) and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == handlers
    assert capfd.readouterr() == ("", "") and run.name == "copy-h2"


def test_messages_are_warnings(tmp_path: Path) -> None:
    copied = mhsa.train("copy", TINY, n_heads=2, runs=tmp_path / "runs", quiet=True, **QUICK)
    newest = max((copied.path / "checkpoints").iterdir())
    (newest / "model.safetensors").write_bytes(b"")
    with pytest.warns(mhsa.MhsaWarning, match="note"):
        assert mhsa.load(copied.path).model is not None


def test_an_error_of_training_is_raised(tmp_path: Path) -> None:
    with pytest.raises(mhsa.MhsaError) as raised:
        mhsa.train("copy", TINY, n_heads=2, lr=1e4, runs=tmp_path / "runs", **{**QUICK, "epochs": 40})
    assert raised.value.exit_code == 3


def test_ctrl_c_saves_the_step_and_raises(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def add(self: object, record: object) -> None:
        if isinstance(record, StepRecord) and record.step == 9:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(progress.TrainingLine, "add", add)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt, match="--resume"), warnings.catch_warnings():
            warnings.simplefilter("error")
            mhsa.train("copy", TINY, n_heads=2, runs=tmp_path / "runs", name="cut", **QUICK)
    finally:
        signal.signal(signal.SIGINT, before)
    run = mhsa.load("cut", runs=tmp_path / "runs")
    assert run.info["status"] == "stopped" and 9 <= run.info["step"] < 18
    assert repr(run).endswith("stopped>") and run.model is not None


def test_a_run_outside_the_main_thread_trains(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        run = pool.submit(lambda: mhsa.train("copy", TINY, n_heads=2, runs=tmp_path / "runs", **QUICK)).result()
    assert run.info["status"] == "finished"


def test_progress_is_one_line_that_is_gone_in_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[str] = []
    monkeypatch.setattr(progress, "_writer", lambda: written.append)
    monkeypatch.setattr(progress, "PAUSE", 0)
    mhsa.train("copy", TINY, n_heads=2, runs=tmp_path / "runs", quiet=True, **QUICK)
    assert written == []
    mhsa.train("copy", TINY, n_heads=2, runs=tmp_path / "runs", **QUICK)
    assert written[-1] == "" and written[-2].startswith("step 18/18  loss ") and max(map(len, written)) < 80


def test_an_evaluation_is_that_of_the_command(tiny: mhsa.Run, place: Path) -> None:
    found = rows(tiny.evaluate(seq_len=[4, 6], rows=20))
    command = [sys.executable, "-m", "mhsa_cli", "evaluate", "tiny", "seq_len=4,6", "--rows", "20", "--json"]
    done = subprocess.run(command, cwd=place, capture_output=True, text=True, check=True)
    wanted = json.loads(done.stdout)["results"]
    assert [row["seq_len"] for row in found] == [6, 4, 6]
    for row, one in zip(found, wanted, strict=True):
        keys = ("loss", "loss_se", "accuracy", "exact_match", "seen", "positions")
        assert [row[key] for key in keys] == [one[key] for key in keys]
    assert tiny.info["final"]["eval_loss"] == rows(tiny.evaluate())[0]["loss"]
    with pytest.raises(mhsa.MhsaError) as caught:
        tiny.evaluate(vocab_size=10)
    assert caught.value.code == "ids"
