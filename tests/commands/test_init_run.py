"""Runs that begin with the weights of a file: complete folders, and models made elsewhere that nobody calls trained."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from tests.commands.shell import Said, facts, mhsa

SETTINGS = ["-c", "tiny.yaml", "train.steps_per_epoch=4"]
FILE = "elsewhere/model.safetensors"


def run(*arguments: str, code: int = 0) -> Said:
    said = mhsa(*arguments)
    assert said.code == code, said.err
    return said


@pytest.fixture
def made(here: Path) -> dict[str, Any]:
    """Write a model in the layout of TransformerLens; returns the facts of the run that it came from."""
    run("train", *SETTINGS, "--name", "source")
    run("export", "source", "--to", "transformer-lens", "-o", "elsewhere")
    return facts(here / "runs" / "source")


def weights(*arguments: str) -> dict[str, Any]:
    """The weights that a command exports."""
    run("export", *arguments, "--to", "npz", "-o", "out.npz")
    with np.load("out.npz") as found:
        kept = {name: found[name] for name in found.files if name.startswith("model.")}
    Path("out.npz").unlink()
    return kept


def test_what_is_exported_comes_back_and_nothing_speaks_of_training(made: dict[str, Any], here: Path) -> None:
    told = run("train", *SETTINGS, "train.epochs=0", f"train.init={FILE}", "--name", "m")
    assert "W_K" in told.err and "-> blocks.*.attn.qkv_proj.weight (36, 12)" in told.err
    found = facts(here / "runs" / "m")
    assert found["weights_sha256"] == made["weights_sha256"] and found["init"]["file"] == FILE
    assert found["eval_rows_seen"] is None
    said = [
        told,
        *(
            run(*command.split(), "m")
            for command in (
                "explain",
                "inspect-heads",
                "runs",
                "verify",
                "inspect-heads --circuits",
                "evaluate",
                "compare source",
            )
        ),
        run("explain", "m", "--why", "--step", "0"),
        run("generate", "m", "--prompt", "1 2 3", "--step", "last"),
        *(run(command, "m", code=2) for command in ("curve", "timeline")),
        run("train", "--resume", "m"),
    ]
    shown = "\n".join(one.out + one.err for one in said[:7] + said[8:])
    rest = re.sub(
        r"untrained heads|^untrained .*|next: mhsa train.*|to train it: .*|training, .*", "", shown, flags=re.MULTILINE
    )
    assert not re.search(r"trained|learn|step 0 of|0 steps on|, step 0", rest), rest
    assert f"a model from {FILE}" in told.out
    documents = [run(*command, "--json").json for command in (("runs", "m"), ("train", "--resume", "m"))]
    assert (documents[0]["origin"], documents[0]["step"], documents[1]["eval_rows_seen"]) == (FILE, None, None)
    assert run("evaluate", "m", "--json").json["results"][0]["seen"] is None
    assert run("runs", "source", "--json").json["origin"] is None


def test_step_0_is_the_file_that_the_folder_keeps(made: dict[str, Any], here: Path) -> None:
    run("train", *SETTINGS, "train.keep=1", f"train.init={FILE}", "--name", "m")
    shutil.rmtree("elsewhere")
    first, source = weights("m", "--step", "0"), weights("source")
    assert all(np.array_equal(first[name], source[name]) for name in source)
    assert not np.array_equal(weights("m")["model.lm_head.weight"], source["model.lm_head.weight"])
    assert run("verify", "m").out.count("init.safetensors") == 1
    run("train", "--resume", "m", "epochs=3")
    copy = here / "runs" / "m" / "init.safetensors"
    copy.write_bytes(copy.read_bytes().replace(b"embed.W_E", b"embed.W_F"))
    assert "damaged: init.safetensors\n" in run("verify", "m", code=4).err
    assert "init.safetensors" in run("export", "m", "--step", "0", "--to", "npz", "-o", "o.npz", code=4).err
    weights("m")


def test_a_resume_is_exact_and_every_trial_begins_alike(made: dict[str, Any], here: Path) -> None:
    given = [*SETTINGS, f"train.init={FILE}"]
    run("verify", "--resume-check", "tiny.yaml", f"train.init={FILE}")
    said = run("sweep", *given, "dropout=0.1", "--seeds", "2", "--name", "s")
    assert FILE in said.err
    for seed in (8, 9):
        run("train", *given, "dropout=0.1", f"seed={seed}", "--name", f"alone{seed}")
        alone, trial = (facts(here / "runs" / path) for path in (f"alone{seed}", f"s/seed={seed}"))
        assert alone["weights_sha256"] == trial["weights_sha256"] != made["weights_sha256"]
        assert alone["init"] == trial["init"]
    first = [weights(f"s/seed={seed}", "--step", "0") for seed in (8, 9)]
    assert all(np.array_equal(first[0][name], first[1][name]) for name in first[0])


def test_a_sweep_over_files_names_the_trials_of_each(made: dict[str, Any], here: Path) -> None:
    named = f"train.init={FILE}"
    for value, some in ((FILE, False), (f"{FILE},null", True)):
        said = run("sweep", *SETTINGS, f"train.init={value}", "--seeds", "1", "--dry-run")
        assert (named in said.err) is some and FILE in said.err


def test_a_resumed_sweep_finds_the_file_in_a_trial(made: dict[str, Any], here: Path) -> None:
    run("sweep", *SETTINGS, f"train.init={FILE}", "--seeds", "2", "--name", "s")
    trial = here / "runs" / "s" / "seed=9"
    before = facts(trial)["weights_sha256"]
    shutil.rmtree(trial)
    shutil.rmtree("elsewhere")
    run("sweep", "--resume", "s")
    assert facts(trial)["weights_sha256"] == before


@pytest.mark.parametrize("name", ["a.pt", "a.pth", "none.safetensors", "text.safetensors"])
def test_another_file_is_refused_before_there_is_a_run(name: str, here: Path) -> None:
    torch.save({}, "a.pt")
    Path("text.safetensors").write_text("no tensors")
    for command in ("train", "sweep"):
        said = run(command, "train.epochs=1", f"train.init={name}", code=2)
        assert name in said.err and said.out == ""
    assert not list(here.glob("runs/*"))


def test_a_trace_follows_the_weights_of_the_file(made: dict[str, Any]) -> None:
    file, drawn = (run("trace", *SETTINGS, *more, "--json").json for more in ([f"train.init={FILE}"], []))
    assert (file["init"], drawn["init"]) == (FILE, None) and file["loss"] != drawn["loss"]
    assert f"weights of {FILE}" in run("trace", *SETTINGS, f"train.init={FILE}").out


def test_settings_that_do_not_fit_are_told(made: dict[str, Any], here: Path) -> None:
    assert load_file(FILE)["unembed.W_U"].shape == (12, 11)
    said = run("train", *SETTINGS, "n_layers=3", "n_heads=2", f"train.init={FILE}", code=2)
    assert "model.n_heads=3" in said.err and "model.n_layers=2" in said.err
    assert "blocks.0.attn.W_Q for blocks.0.attn.qkv_proj.weight: found 3 heads, wanted 2" in said.err
    assert [path.name for path in here.glob("runs/[!.]*")] == ["source"]
