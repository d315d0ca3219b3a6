"""A training that explodes stops before the update: exit 3, and what was finite is kept."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from mhsa_cli.runs.checkpoints import list_checkpoints, load_checkpoint
from tests.commands.shell import facts, metrics, mhsa

EXPLODING = ("train.lr=1e4", "model.n_layers=3", "model.residual=true", "model.d_mlp=64", "train.save_every=1")


def test_a_rate_that_explodes_ends_with_exit_3_and_finite_weights() -> None:
    from safetensors.torch import load

    said = mhsa("train", *EXPLODING, "--name", "boom")
    assert (said.code, said.out) == (3, "")
    step = facts(Path("runs/boom"))["step"]
    assert f"step {step + 1}: " in said.err and "train.lr" in said.err and "train.grad_clip=1.0" in said.err
    assert facts(Path("runs/boom"))["status"] == "failed"
    assert list_checkpoints(Path("runs/boom"))[-1].step == step
    checkpoint = load_checkpoint(Path("runs/boom"))
    assert checkpoint.step == step
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert all(bool(torch.isfinite(tensor).all()) for tensor in load(checkpoint.files[name]).values())
    steps = [r for r in metrics(Path("runs/boom")) if r["kind"] == "step"]
    assert [r["step"] for r in steps[:step]] == list(range(1, step + 1))
    # Weights of 1e4 in three layers overflow any float32: the loss is the first, and on record, as null with its word.
    # Where it is a gradient, as below, no record has it.
    assert [(r["step"], r["loss"]) for r in steps[step:]] == [(step + 1, None)]
    assert steps[-1]["nonfinite"]["loss"] in ("nan", "inf")
    for command in (["inspect-heads"], ["curve"], ["runs"]):
        assert mhsa(*command).code == 0
    again = mhsa("train", "--resume", "boom")  # the same step, the same end
    assert (
        again.code == 3 and "in a new run: mhsa train --config runs/boom/config.yaml train.grad_clip=1.0" in again.err
    )
    assert "in a new run" not in said.err


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("step", [1, 3, 6])
def test_one_bad_number_at_any_step(step: int, value: float, monkeypatch: pytest.MonkeyPatch) -> None:
    from mhsa_cli.core.training.stack import Stack
    from tests.core.test_engine import poison_gradient

    original = Stack.step

    def poisoned(self, inputs, targets, lr, **more):  # type: ignore[no-untyped-def]
        compute = self.analytic
        if self.updates + 1 == step:
            poison_gradient(self, lambda: value)
        try:
            original(self, inputs, targets, lr, **more)
        finally:
            self.analytic = compute

    monkeypatch.setattr(Stack, "step", poisoned)
    said = mhsa("train", "--config", "tiny.yaml", "train.grad_clip=null")
    assert said.code == 3 and f"step {step}: " in said.err
    checkpoint = load_checkpoint(Path("runs/shift-h3"))
    assert checkpoint.step == facts(Path("runs/shift-h3"))["step"] == step - 1  # though none was due
    assert [r["step"] for r in metrics(Path("runs/shift-h3")) if r["kind"] == "step"] == list(range(1, step))


def test_figures_that_are_no_numbers_still_make_strict_json(tiny: Path) -> None:
    step = {"kind": "step", "step": 11, "loss": None, "accuracy": 0.0, "lr": 0.1, "nonfinite": {"loss": "nan"}}
    epoch = {"kind": "epoch", "epoch": 3, "step": 15, "loss": 1e30, "eval_loss": None, "eval_accuracy": 0.5}
    with (tiny / "metrics.jsonl").open("a") as file:
        file.write(json.dumps(step) + "\n")
        file.write(json.dumps({**epoch, "nonfinite": {"eval_loss": "inf"}}) + "\n")
    final = {"eval_loss": None, "eval_accuracy": 0.5, "step": 10}
    bad = {**facts(tiny), "final": final, "nonfinite": {"final/eval_loss": "nan"}}
    (tiny / "run.json").write_text(json.dumps(bad))
    document = mhsa("curve", "--json").json
    assert document["runs"][0]["series"][0]["loss"][-1] is None
    document = mhsa("train", "--resume", "tiny", "--json").json
    assert document["final"]["eval_loss"] is None and document["epochs"][-1]["eval_loss"] is None
    assert mhsa("runs", "--json").json[0]["eval_loss"] is None
    shown = mhsa("curve")
    assert shown.code == 0 and "NaN at step 11" in shown.out and "1e30" in shown.out
    assert "nan" in mhsa("runs").out
