"""A run's dtype holds in every command that loads it, and no command works with weights that are not the run's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save

from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.training.checkpoint import copy_into, digest, unpack, weights_sha256
from mhsa_cli.errors import RunError
from mhsa_cli.jobs import load_heads, trained_run
from mhsa_cli.runs.checkpoints import commit_checkpoint
from mhsa_cli.runs.run_dir import RunDir
from tests.commands.custom import TEXT
from tests.commands.shell import at_step, facts, mhsa, tree

HELD = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.float32}
WORKING = {  # what loads the model, or measures a fresh one
    "maps": ["inspect-heads", "r"],
    "maps on tokens": ["inspect-heads", "r", "--tokens", "3 1 4"],
    "a paper's score": ["inspect-heads", "r", "--scores", "--definition", "olsson2022"],
    "circuits": ["inspect-heads", "r", "--circuits"],
    "ablation": ["inspect-heads", "r", "--ablate", "L0"],
    "patches": ["inspect-heads", "r", "--patch", "L0.H1:L1.H2.k,L0.H1"],
    "lens": ["inspect-heads", "r", "--lens", "--direct"],
    "compare": ["compare", "r", "r"],
    "generate": ["generate", "r", "--prompt", "3 1"],
    "npz": ["export", "r", "--to", "npz", "-o", "r.npz"],
    "transformer-lens": ["export", "r", "--to", "transformer-lens", "-o", "lens"],
    "trace": ["trace", "--config", "runs/r/config.yaml"],
    "verify": ["verify", "r"],
    "resume": ["train", "--resume", "r", "train.epochs=3"],
}
NOT_LOADED = {"trace", "verify", "resume"}  # what builds its own model, or puts the checkpoint into a stack


@contextmanager
def watched() -> Iterator[tuple[set[str], set[torch.dtype]]]:
    """Collect the digests of the models that are loaded, and the types of the vectors that enter any model's blocks."""
    digests, met, real_load, real_embed = set[str](), set[torch.dtype](), trained_run.load_trained, TransformerLM.embed

    def loading(*given: Any, **named: Any) -> TransformerLM:
        model = real_load(*given, **named)
        digests.add(weights_sha256(model))
        return model

    def embed(self: TransformerLM, *given: Any) -> torch.Tensor:
        x = real_embed(self, *given)
        met.add(x.dtype)
        return x

    with mock.patch.object(trained_run, "load_trained", loading), mock.patch.object(TransformerLM, "embed", embed):
        yield digests, met


@pytest.mark.parametrize("dtype", HELD)
def test_every_command_works_with_the_weights_of_the_run(dtype: str, here: Path) -> None:
    """In the run's dtype; what is measured of its heads again is what was measured when it ended."""
    gpt = ["bias=false", "positions=sinusoidal", "max_seq_len=101"]
    said = mhsa("train", "--config", "tiny.yaml", *gpt, f"train.dtype={dtype}", "--name", "r")
    assert said.code == 0, said.err
    own, measured = facts(Path("runs/r"))["weights_sha256"], mhsa("inspect-heads", "r", "--json").json
    for what, command in WORKING.items() if dtype == "float64" else {"npz": WORKING["npz"]}.items():
        nothing_stored = mock.patch.object(load_heads, "stored_maps", lambda folder: None)
        with watched() as (digests, met), nothing_stored if what == "maps" else nullcontext():
            said = mhsa(*command, "--json")
        assert said.code == 0, f"{what}: {said.err}"
        assert digests == (set() if what in NOT_LOADED else {own}), what
        assert met == (set() if what in ("transformer-lens", "verify") else {HELD[dtype]}), f"{what} computes in {met}"
        if what == "maps":
            assert said.json == measured
    arrays = np.load("r.npz")
    weights = {key.removeprefix("model."): torch.tensor(arrays[key]) for key in arrays if key.startswith("model.")}
    assert digest(weights) == own and str(arrays["attention"].dtype) == str(HELD[dtype]).removeprefix("torch.")
    if dtype == "float64":
        assert {tensor.dtype for tensor in load_file("lens/model.safetensors").values()} == {torch.float64}


@pytest.mark.parametrize("given", [[], ["--attention", "mine.py:Mine"]], ids=["closed", "named"])
def test_a_block_of_ones_own_keeps_the_dtype_too(given: list[str], here: Path) -> None:
    (here / "mine.py").write_text(TEXT)
    settings = ["model.attention=mine.py:Mine", "train.dtype=float64", "epochs=1"]
    said = mhsa("train", "--config", "tiny.yaml", *settings, "--name", "r")
    assert said.code == 0, said.err
    assert mhsa("export", "r", "--to", "npz", *given).code == 0
    arrays = np.load("r.npz")
    weights = {key.removeprefix("model."): torch.tensor(arrays[key]) for key in arrays if key.startswith("model.")}
    assert digest(weights) == facts(Path("runs/r"))["weights_sha256"]


LOOKING = [
    ["inspect-heads", "tiny", "--tokens", "3 1"],
    ["generate", "tiny", "--prompt", "3 1"],
    ["compare", "tiny", "tiny"],
    ["export", "tiny", "--to", "npz"],
    ["train", "--resume", "tiny", "train.epochs=4"],
    ["train", "--resume", "tiny"],
    ["verify", "tiny"],
]


def other_weights(run: Path) -> None:
    """Put the checkpoint of the same training in another state where the run's last one was; whole in itself."""
    loaded = RunDir(run).load_checkpoint()
    files = dict(loaded.files)
    tensors = unpack(files, "model.safetensors")
    tensors["lm_head.weight"][0, 0] += 0.5
    files["model.safetensors"] = save(tensors)
    shutil.rmtree(run / f"checkpoints/step-{loaded.step:08d}")
    commit_checkpoint(run, loaded.step, files, 2)


@pytest.mark.parametrize("command", LOOKING, ids=" ".join)
def test_weights_of_another_training_are_refused(command: list[str], tiny: Path) -> None:
    other_weights(tiny)
    before = tree(tiny)
    said = mhsa(*command)
    assert said.code == 4, said.out
    assert tree(tiny) == before and not Path("tiny.npz").exists()


def test_a_checkpoint_of_another_dtype_is_refused() -> None:
    """As one of another shape is: a copy would round the weights and say nothing."""
    target = {"w": torch.zeros(2, 3)}
    with pytest.raises(RunError, match=r"w is float64, .* float32"):
        copy_into(target, {"w": torch.ones(2, 3, dtype=torch.float64)}, "model.safetensors")
    assert target["w"].sum() == 0


def test_what_an_earlier_end_told_is_forgotten_as_training_goes_on(tiny: Path) -> None:
    """A resumed run that breaks off leaves the checkpoint that it has, and no digest of another step."""

    def fail() -> None:
        raise KeyboardInterrupt

    with at_step(13, fail):
        assert mhsa("train", "--resume", "tiny", "train.epochs=3", "train.save_every=1").code == 130
    assert facts(tiny)["step"] == 12 and facts(tiny)["weights_sha256"] is None
    assert mhsa("verify", "tiny").code == 0
    assert mhsa("generate", "tiny", "--prompt", "3 1").code == 0
