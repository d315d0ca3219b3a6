"""mhsa train: a whole run folder, one JSON document, names, and weights that depend on nothing but seed and config."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

from mhsa_cli.config import threads
from mhsa_cli.config.load import load_config
from mhsa_cli.runs.commit import read_directory
from tests.commands.shell import environment, facts, metrics, mhsa, tree

TRAIN = ("train", "--config", "tiny.yaml")


def digest(*arguments: object) -> str:
    said = mhsa(*TRAIN, "--json", *arguments)
    assert said.code == 0, said.err
    return str(said.json["weights_sha256"])


def test_a_run_folder_is_complete(tiny: Path) -> None:
    assert load_config(str(tiny / "config.yaml")) == load_config("tiny.yaml")
    info = facts(tiny)
    wanted = {
        "format": 2,
        "status": "finished",
        "task": "shift",
        "n_heads": 3,
        "seed": 8,
        "device": "cpu",
        "threads": 1,
    }
    assert wanted.items() <= info.items()
    assert info["command"][:2] == ["mhsa", "train"] and info["command"][-2:] == ["--name", "tiny"]
    assert info["step"] == info["total_steps"] == info["final"]["step"] == 10
    heads = json.loads((tiny / "heads.json").read_text())
    assert (heads["step"], heads["run"], heads["task"]) == (10, "tiny", "shift")
    assert info["seconds"] > 0 and info["torch"] and info["mhsa"] and info["started"]
    assert sorted(path.name for path in tiny.iterdir()) == [
        *(".lock", "checkpoints", "config.yaml", "heads.json", "heads.jsonl", "metrics.jsonl", "run.json")
    ]
    for step in (5, 10):
        files = read_directory(tiny / "checkpoints" / f"step-{step:08d}")
        assert sorted(files) == ["model.safetensors", "optimizer.safetensors", "state.json"]
    assert len(list((tiny / "checkpoints").iterdir())) == 2


def test_metrics_have_every_step_once_and_evaluations_where_they_belong(tiny: Path) -> None:
    records = metrics(tiny)
    assert [r["step"] for r in records if r["kind"] == "step"] == list(range(1, 11))
    assert [r["step"] for r in records if r["kind"] == "eval"] == [0, 5, 10]
    epochs = [r for r in records if r["kind"] == "epoch"]
    assert [r["epoch"] for r in epochs] == [1, 2]
    losses = [r["loss"] for r in records if r["kind"] == "step"]
    assert epochs[1]["loss"] == pytest.approx(sum(losses[5:]) / 5, abs=1e-9)
    assert epochs[1]["eval_loss"] == facts(tiny)["final"]["eval_loss"] == records[-2]["loss"]


def test_json_is_one_document_of_the_promised_keys() -> None:
    said = mhsa(*TRAIN, "--json")
    document = said.json
    assert said.code == 0 and said.out.count("\n") == 1
    assert "step=10/10" in said.err
    kinds = {key: type(value) for key, value in document.items()}
    assert kinds == {
        "run": str,
        "steps": int,
        "parameters": int,
        "epochs": list,
        "final": dict,
        "eval_rows": int,
        "eval_rows_seen": int,
        "eval_rows_sha256": str,
        "dropped_records": int,
        "seconds": float,
        "weights_sha256": str,
    }
    for number, epoch in enumerate(document["epochs"], 1):
        assert epoch.keys() == {"epoch", "loss", "eval_loss", "eval_accuracy"} and epoch["epoch"] == number
        assert type(epoch["loss"]) is type(epoch["eval_loss"]) is type(epoch["eval_accuracy"]) is float
    assert (document["run"], document["steps"], len(document["epochs"])) == ("runs/shift-h3", 10, 2)
    last = document["epochs"][-1]
    assert document["final"] == {"eval_loss": last["eval_loss"], "eval_accuracy": last["eval_accuracy"]}
    assert len(document["weights_sha256"]) == 64 and document["parameters"] == 2739
    for command in ("inspect-heads", "runs", "curve"):  # the same word for the same run everywhere
        assert f'"run": "{document["run"]}"' in mhsa(command, "--json").out


def test_the_end_tells_curve_epochs_heads_files_and_the_next_command() -> None:
    said = mhsa(*TRAIN)
    assert said.code == 0
    sha = facts(Path("runs/shift-h3"))["weights_sha256"]
    expected = [
        "loss (nats)",
        "train loss",
        "2,739 parameters, 10 steps on cpu",
        "chance level: loss 2.3979 nats, accuracy 9.1%",
    ]
    expected += ["evaluation rows", f"weights sha256: {sha[:12]}...", "L1.H2", "wrote runs/shift-h3"]
    expected += ["next: mhsa explain shift-h3"]
    places = [said.out.find(text) for text in expected]
    assert -1 not in places, dict(zip(expected, places, strict=True))
    assert places == sorted(places)


def test_one_step_is_counted_as_one() -> None:
    said = mhsa(*TRAIN, "--name", "once", "train.epochs=1", "train.steps_per_epoch=1", "train.warmup_steps=0")
    assert (said.code, re.findall(r"\b1 steps?\b", said.out)) == (0, ["1 step"])


def test_the_weights_depend_on_seed_and_config_only(trained: Path) -> None:
    first = facts(trained / "runs" / "tiny")["weights_sha256"]
    assert digest() == first
    assert digest("--name", "another", "--runs", "elsewhere") == first
    often = ("train.log_every=3", "train.eval_every=2", "train.save_every=1", "train.keep=4")
    assert digest(*often) == digest("--set", "train.eval_sequences=31") == first
    assert digest("train.seed=9") != first
    command = [sys.executable, "-m", "mhsa_cli", *TRAIN, "--json"]
    root = Path(__file__).parents[2]
    process = environment(PYTHONHASHSEED="77", PYTHONPATH=str(root), OMP_NUM_THREADS="2", COLUMNS="33")
    done = subprocess.run(command, env=process, capture_output=True, text=True, check=False)
    assert done.returncode == 0 and first in done.stdout, done.stderr


def test_heads_change_the_maps_and_no_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    from mhsa_cli.core.training import lockstep

    seen: list[bytes] = []
    stacked = lockstep._stacked

    def watched(batches):  # type: ignore[no-untyped-def]
        seen.extend(bytes(rows.flatten().tolist()) for batch in batches for rows in batch)
        return stacked(batches)

    monkeypatch.setattr(lockstep, "_stacked", watched)
    found = []
    for heads in (1, 2, 3, 4):
        seen.clear()
        document = mhsa(*TRAIN, "--json", f"n_heads={heads}").json
        maps = mhsa("inspect-heads", document["run"], "--json").json
        found.append((sha256(b"".join(seen)).hexdigest(), document["parameters"], tuple(maps["tokens"])))
        assert [len(layer) for layer in maps["weights"]] == [heads, heads]
    assert len(seen) >= 4 and len(set(found)) == 1
    assert len({facts(run)["weights_sha256"] for run in Path("runs").glob("[!.]*")}) == 4


def test_auto_threads_become_a_number_that_a_resume_on_another_machine_keeps(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "MIN_FLOP", 1.0)
    monkeypatch.setattr(threads, "cores", lambda: 3)
    wanted = digest("threads=3", "--name", "three")
    said = mhsa(*TRAIN, "threads=auto", "--name", "auto", "--json")
    assert said.json["weights_sha256"] == wanted and "train.threads" not in said.err
    run = Path("runs/auto")
    assert facts(run)["threads"] == load_config(str(run / "config.yaml")).train.threads == 3
    assert "threads: 3\n" in (run / "config.yaml").read_text()
    monkeypatch.setattr(threads, "cores", lambda: 2)
    assert mhsa("train", "--resume", "auto", "epochs=3").code == 0 and facts(run)["threads"] == 3
    said = mhsa("train", "--resume", "auto", "epochs=4", "threads=auto")  # chosen anew: other bits
    assert said.code == 4 and "threads: 3 -> 2" in said.err and "--allow-inexact" in said.err


def test_more_threads_are_advised_where_the_rule_has_them_and_none_were_asked_for(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(threads, "cores", lambda: 3)
    assert "train.threads" not in mhsa(*TRAIN).err
    monkeypatch.setattr(threads, "MIN_FLOP", 1.0)
    assert "train.threads=3" in mhsa(*TRAIN).err and "train.threads" not in mhsa(*TRAIN, "threads=1").err


def test_names_are_found_and_never_taken_twice(tiny: Path) -> None:
    quick = ("train", "train.epochs=0", "task.vocab_size=5", "--json")
    assert [mhsa(*quick).json["run"] for _ in range(3)] == ["runs/repeat-h4", "runs/repeat-h4-2", "runs/repeat-h4-3"]
    assert mhsa(*quick, "n_heads=8", "task.name=copy").json["run"] == "runs/copy-h8"
    before = tree(Path("runs"))
    said = mhsa(*quick, "--name", "tiny")
    assert (said.code, said.out) == (2, "")
    assert "runs/tiny already exists" in said.err and "--resume" in said.err
    assert tree(Path("runs")) == before


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["n_head=3"], "n_heads"),
        (["model.n_heads=5"], "nearest n_heads"),
        (["train.lr=0"], "train.lr"),
        (["train.lr=nan"], "train.lr"),
        (["train.dropout=1.0"], "dropout"),
        (["task.name=copy", "task.seq_len=1"], "no target positions"),
        (["task.vocab_size=1"], "vocab_size"),
        (["train.device=cuda:9"], "train.device"),
        (["--config", "none.yaml"], "none.yaml"),
        (["task.name=text", "task.path=none.txt"], "none.txt"),
        (["configs/copy.yaml"], "--config configs/copy.yaml"),
        (["--name", "../up"], "--name"),
        (["--name", ".hidden"], "--name"),
    ],
)
def test_what_cannot_be_trained_leaves_no_folder(arguments: list[str], word: str, here: Path) -> None:
    said = mhsa("train", *arguments)
    assert (said.code, said.out) == (2, "")
    assert word in said.err and "Traceback" not in said.err
    assert not list(here.rglob("run.json"))


def test_no_epochs_save_the_untrained_model_and_say_so() -> None:
    said = mhsa(*TRAIN, "train.epochs=0", "train.warmup_steps=0")
    assert said.code == 0 and "untrained" in said.out
    assert [path.name for path in Path("runs/shift-h3/checkpoints").iterdir()] == ["step-00000000"]
    assert mhsa("inspect-heads").code == mhsa("curve").code == 0
    assert mhsa("train", "--resume", "newest", "train.epochs=2").code == 0
    assert [r["step"] for r in metrics(Path("runs/shift-h3")) if r["kind"] == "step"] == list(range(1, 11))


def test_a_disk_that_is_too_small_is_told_before_training(monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil
    from types import SimpleNamespace

    # 2,739 parameters of 12 bytes and four blocks, for those kept and the one being written: at most the 4 this run
    # saves, and one.
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=5 * (12 * 2739 + 4 * 4096) - 1))
    said = mhsa(*TRAIN, "train.keep=1000")
    assert said.code == 5 and "not enough space" in said.err and "240.5 KiB are needed" in said.err
    assert list(Path("runs").iterdir()) == []
    assert mhsa(*TRAIN, "train.keep=2", "--name", "small").code == 0
