"""A number that is not finite, at any place of any step: training stops before a weight or a checkpoint takes it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.row import Place, Row

SITES = ["inputs", "embeddings", "qkv", "scores", "logits", "loss", "gradient", "weights"]
STEPS = [1, 2, 5, 6, 10]  # the first, an ordinary one, the last of an epoch, the first of the next, the last of all
VALUES = ["nan", "inf", "-inf"]
RUN = ["epochs=2", "steps_per_epoch=5", "eval_sequences=9", "log_every=1", "batch_size=3"]
# A model that has its gradient written out is trained by autograd only where a test asks for it.
SMALL = ["vocab_size=11", "seq_len=6", "d_model=12", "n_heads=3"]
PATHS = {
    "by hand": [*SMALL, "positions=learned"],
    "by autograd": [*SMALL, "n_layers=2", "residual=true", "d_mlp=10", "dropout=0.1"],
}
EXPLODING = ["lr=1e4", "n_layers=20", "residual=true", "d_mlp=64", "save_every=1", "seq_len=6", "vocab_size=11"]
RESUMED_AT = 6


class Case(NamedTuple):
    """Where and when the number appears, and what is computed with; `explosion` is a training that breaks by itself."""

    site: str
    step: int
    value: str
    dtype: str


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every site at every step, in float32 and then in the other widths."""
    every = [(site, step) for step in STEPS for site in SITES]
    made = []
    for number, dtype in enumerate(("float32", "bfloat16", "float64")):
        made += [
            Case(site, step, VALUES[(at + at // 8 + number + seed) % 3], dtype) for at, (site, step) in enumerate(every)
        ]
        made.append(Case("explosion", 0, "", dtype))
    yield from made[:count]


def poison(patch: pytest.MonkeyPatch, site: str, step: int, value: str, path: str) -> None:
    """Put the number there once, in the middle of that step, whichever way the gradient is computed."""
    import torch

    from mhsa_cli.core.model import attention, layers, transformer
    from mhsa_cli.core.training import stack
    from mhsa_cli.core.training.analytic import attention as by_hand
    from mhsa_cli.core.training.analytic import gradient, loss, parts
    from mhsa_cli.core.training.stack import Stack

    if path == "by autograd":
        patch.setattr(stack, "has_analytic_gradient", lambda *_: False)
    bad, armed = float(value), [False]

    def spoil(number: Any) -> None:
        if armed[0] and number is not None:
            armed[0] = False
            with torch.no_grad():
                number.fill_(bad)

    def after(owner: Any, name: str, where: Callable[..., Any]) -> None:
        real = getattr(owner, name)

        def instead(self: Any, *given: Any, **named: Any) -> Any:
            result = real(self, *given, **named)
            spoil(where(self, result))
            return result

        patch.setattr(owner, name, instead)

    real_step = Stack.step

    def step_instead(self: Stack, *given: Any, **more: Any) -> None:
        armed[0] = self.updates + 1 == step
        if site == "weights":
            spoil(self.weights[7])
        try:
            real_step(self, *given, **more)
        finally:
            armed[0] = False

    patch.setattr(Stack, "step", step_instead)
    if site == "inputs":
        after(parts.Embedding, "forward", lambda self, _: self.x[0, 0])
        after(transformer.TransformerLM, "embed", lambda _, x: x.view(-1)[0])
    elif site == "embeddings":
        after(layers.Embedding, "forward", lambda _, x: x.view(-1)[0])
        real_embed = parts.Embedding.forward

        def embed(self: Any) -> None:
            vector = self.table[int(self.flat_ids[0])]
            kept = vector.clone()
            spoil(vector[0])
            real_embed(self)
            vector.copy_(kept)

        patch.setattr(parts.Embedding, "forward", embed)
    elif site == "qkv":
        after(layers.Linear, "forward", lambda s, y: y.view(-1)[0] if y.size(-1) == 3 * s.weight.size(-1) else None)
        after(parts.Linear, "forward", lambda s, _: s.y[0, 0, 0] if s.y.size(-1) == 3 * s.x.size(-1) else None)
    elif site == "scores":  # of the first query, which has one key only: minus infinity elsewhere only hides a key
        real_scores = attention.attention_scores

        def scores(*given: Any) -> Any:
            found = real_scores(*given).clone()
            spoil(found[..., 0, 0])
            return found

        patch.setattr(attention, "attention_scores", scores)
        real_attend = by_hand._Softmax.forward

        def attend(self: Any) -> None:
            spoil(self.mask[0, 0, 0])
            real_attend(self)
            self.mask[0, 0, 0] = 0.0

        patch.setattr(by_hand._Softmax, "forward", attend)
    elif site == "logits":  # at an answer: minus infinity there leaves the gradient finite
        real_answers = loss.CrossEntropy.__call__

        def answer(self: Any, logits: Any, targets: Any) -> Any:
            spoil(logits[0, 0, int(targets.view(-1)[0])])
            return real_answers(self, logits, targets)

        patch.setattr(loss.CrossEntropy, "__call__", answer)
    elif site == "loss":
        after(loss.CrossEntropy, "__call__", lambda _, figures: figures[0][0])
    elif site == "gradient":
        after(gradient.AnalyticGradient, "__call__", lambda self, _: self.gradients["lm_head.bias"].view(-1)[0])
        after(Stack, "by_autograd", lambda self, _: self.gradients[5])


def nobody_looks(patch: pytest.MonkeyPatch) -> None:
    """The mutant: every number passes for a finite one before the update."""
    from types import SimpleNamespace

    from mhsa_cli.core.training import stack

    patch.setattr(stack, "math", SimpleNamespace(isfinite=lambda _: True, pi=math.pi, cos=math.cos))


def check(case: Case, place: Place) -> None:
    """Break a training, by both ways of computing its gradient, and look at what is left."""
    if case.site == "explosion":
        argv = ["train", *RUN[1:], *EXPLODING, "epochs=40", f"dtype={case.dtype}", "--name", "r"]
        done = place.server.run(argv, place.path, place.mutant)
        left_behind(done, place.path / "runs/r", None)
        return
    for path, settings in PATHS.items():
        if path == "by hand" and case.dtype == "bfloat16":
            continue  # it is never computed so
        cwd = place.path / path.replace(" ", "-")
        cwd.mkdir()
        argv = ["train", *RUN, *settings, f"dtype={case.dtype}", "--name", "r"]
        fault = ["tests.faults.rows.nonfinite:poison", case.site, case.step, case.value, path]
        done = place.server.run(argv, cwd, [fault, *place.mutant])
        left_behind(done, cwd / "runs/r", case.step)
        if case.step == RESUMED_AT:
            done = place.server.run(["train", "--resume", "r"], cwd, place.mutant)
            assert done.code == 0, f"{path}: it cannot be resumed: {done.err}"


def left_behind(done: Any, run: Path, step: int | None) -> None:
    """Exit 3 at that step; the checkpoint, the curve and run.json tell of finite steps before it."""
    import torch
    from safetensors.torch import load

    from mhsa_cli.runs.checkpoints import load_checkpoint

    assert done.code == 3, f"exit code {done.code}: {done.err[-500:]}"
    last = json.loads((run / "run.json").read_text())
    assert last["status"] == "failed", last["status"]
    step = last["step"] + 1 if step is None else step
    assert f"error: step {step}: " in done.err and "not finite" in done.err, done.err[-500:]
    checkpoint = load_checkpoint(run)
    assert not checkpoint.notes
    assert checkpoint.step <= step - 1, f"a checkpoint of step {checkpoint.step}"
    assert last["step"] == checkpoint.step, f"run.json says step {last['step']}, the checkpoint is of {checkpoint.step}"
    for name in ("model.safetensors", "optimizer.safetensors"):
        for key, tensor in load(checkpoint.files[name]).items():
            assert bool(torch.isfinite(tensor).all()), f"{key} in {name} is not finite"

    def refuse(text: str) -> None:
        raise AssertionError(f"{text} in the curve")

    for line in (run / "metrics.jsonl").read_text().splitlines():
        record = json.loads(line, parse_constant=refuse)
        assert record["step"] <= step
        if record["step"] < step and record["kind"] == "step":
            assert record["loss"] is not None


ROW = Row(
    fault="NaN and infinities at 8 sites x 5 steps, by hand and by autograd, and an explosion",
    promise="P5",
    quick=41,
    long=123,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.nonfinite:nobody_looks",
)
