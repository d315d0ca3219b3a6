"""What was lost is said, and odd file names are errors of usage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mhsa_cli.renderers.files import ENDINGS
from tests.commands.shell import facts, mhsa
from tests.commands.test_verify_command import states


def test_a_resume_without_its_metrics_says_so(tiny: Path) -> None:
    (tiny / "metrics.jsonl").unlink()
    said = mhsa("train", "--resume", "tiny", "train.epochs=9")
    assert said.code == 0 and "metrics.jsonl" in said.err


@pytest.mark.parametrize("name", ["", ".", "/", "a.gif", "png", ".png"])
def test_a_picture_needs_a_file_name(name: str, tiny: Path) -> None:
    for command in ("inspect-heads", "curve"):
        said = mhsa(command, "tiny", "-o", name)
        assert said.code == 2 and "--output" in said.err and all(f".{ending}" in said.err for ending in ENDINGS)


def test_speaking_beyond_the_trained_length_is_said(here: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "model.max_seq_len=40", "--name", "long").code == 0
    assert "6 tokens" in mhsa("generate", "long", "--prompt", "1", "--max-new-tokens", "39").err
    assert mhsa("generate", "long", "--prompt", "1", "--max-new-tokens", "1").err == ""


def test_generated_text_comes_back_as_text(here: Path) -> None:
    (here / "a.txt").write_text("ab\n " * 80)
    made = mhsa(
        "train", "task.name=text", "task.path=a.txt", "task.seq_len=7", "epochs=1", "steps_per_epoch=3", "--name", "t"
    )
    assert made.code == 0, made.err
    document = mhsa("generate", "t", "--prompt", "ab", "--max-new-tokens", "5", "--json").json
    assert len(document["text"]) == 5 and set(document["text"]) <= set("ab\n ")


def test_a_step_beyond_the_runs_end_is_said(tiny: Path) -> None:
    (tiny / "run.json").write_text(json.dumps({**facts(tiny), "step": 7}))
    assert "the checkpoint of step 7, the run's last, is missing" in mhsa("generate", "tiny", "--prompt", "1").err


@pytest.mark.parametrize("name", ["run.json", "config.yaml", "metrics.jsonl", "heads.json", "heads.jsonl"])
def test_a_part_that_is_no_file_is_refused_with_a_way_out(name: str, tiny: Path) -> None:
    (tiny / name).unlink()
    (tiny / name).mkdir()
    readers = {"config.yaml": "generate", "heads.json": "explain", "heads.jsonl": "timeline"}
    said = mhsa(readers.get(name, "curve"), "tiny", *(["--prompt", "1"] if name == "config.yaml" else []))
    assert said.code == 4 and f"mhsa verify {tiny}" in said.err
    assert states("tiny")[name] == "wrong"


def test_a_lock_that_is_no_file_is_named_with_the_way_out(tiny: Path) -> None:
    (tiny / ".lock").unlink()
    assert ".lock" not in states("tiny")
    (tiny / ".lock").mkdir()
    assert states("tiny")[".lock"] == "wrong"
    said = mhsa("train", "--resume", "tiny", "epochs=3")
    assert said.code == 4 and ".lock" in said.err


def test_what_is_measured_on_an_older_checkpoint_bears_its_step(tiny: Path) -> None:
    saved = tiny / "checkpoints/step-00000010/model.safetensors"
    saved.write_bytes(saved.read_bytes()[:-1] + b"\x7f")
    for option in (["--ablate", "L0"], ["--circuits"]):
        assert mhsa("inspect-heads", "tiny", *option).out.startswith("tiny, step 5 of 10\n")
        assert mhsa("inspect-heads", "tiny", *option, "--json").json["step"] == 5
    both = mhsa("inspect-heads", "tiny", "--scores", "--ablate", "L0")
    assert both.out.startswith("tiny, step 10\n") and "step 5, the newest whole checkpoint:\nablation of" in both.out
    document = mhsa("inspect-heads", "tiny", "--scores", "--ablate", "L0", "--json").json
    assert (document["step"], document["ablation"]["step"]) == (10, 5)
    refused = mhsa("inspect-heads", "tiny", "--scores", "--definition", "olsson2022")
    assert refused.code == 4 and "step 5" in refused.err and "step 10" in refused.err
    assert mhsa("inspect-heads", "tiny", "--tokens", "3 1").out.startswith("tiny, step 5 of 10\n")


def test_heads_matched_by_an_older_checkpoint_bear_its_step(tiny: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "train.seed=4", "--name", "other").code == 0
    assert "whole checkpoint" not in mhsa("compare", "tiny", "other").out
    saved = Path("runs/other/checkpoints/step-00000010/model.safetensors")
    saved.write_bytes(saved.read_bytes()[:-1] + b"\x7f")
    said = mhsa("compare", "tiny", "other")
    assert said.code == 0 and "the maps of other are of step 5, its newest whole checkpoint" in said.out
    assert "pattern" not in said.out
    document = mhsa("compare", "tiny", "other", "--json").json
    assert "of step 5" in document["matches_note"] and document["matches"]["pairs"]
