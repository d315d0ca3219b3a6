"""The logit lens: by hand, and its last step is the model."""

from __future__ import annotations

import math

import pytest
import torch

from mhsa_cli.core.heads.logit_lens import logit_lens
from mhsa_cli.core.tasks import IGNORE, TASKS, Batch
from mhsa_cli.core.tasks.base import fixed_batch
from tests.core.forms import EVERY, Form, tokens
from tests.core.handmade import LOUD, induction
from tests.core.noise import Noise, small


def loss_of(logits: torch.Tensor, batch: Batch) -> tuple[float, float]:
    scored = batch.targets != IGNORE
    loss = torch.nn.functional.cross_entropy(logits[scored], batch.targets[scored])
    return float(loss), float((logits[scored].argmax(-1) == batch.targets[scored]).float().mean())


@pytest.mark.parametrize("form", EVERY[::13], ids=str)
@torch.no_grad()
def test_the_last_step_is_the_model_and_the_first_its_embedding(form: Form) -> None:
    model, batch = form.model(), Batch(tokens(5, 9), tokens(5, 9, seed=3).masked_fill(tokens(5, 9, seed=4) < 6, IGNORE))
    steps = logit_lens(model.train(), batch)
    assert model.training and [step.layer for step in steps] == [None, *range(form.n_layers)]
    model.eval()
    assert (steps[-1].loss, steps[-1].accuracy) == pytest.approx(loss_of(model(batch.inputs), batch), abs=1e-5)
    embedded = model.embed(batch.inputs, model.pos[:9])
    first = loss_of(model.lm_head(model.final_norm(embedded)), batch)
    assert (steps[0].loss, steps[0].accuracy) == pytest.approx(first, abs=1e-5)
    assert steps[0].loss != pytest.approx(steps[-1].loss, abs=1e-3)


@torch.no_grad()
def test_a_step_is_the_model_without_the_layers_above() -> None:
    model, batch = (
        small(4, n_layers=3, residual=True, norm="layernorm", d_mlp=7, dropout=0.5),
        fixed_batch(Noise(), 1, "x", 20),
    )
    steps = logit_lens(model.train(), batch)
    model.eval()
    for kept in (2, 1):
        model.blocks = torch.nn.ModuleList(list(model.blocks)[:kept])  # type: ignore[assignment]
        assert (steps[kept].loss, steps[kept].accuracy) == pytest.approx(loss_of(model(batch.inputs), batch), abs=1e-5)


def test_the_answer_of_an_induction_model_is_written_in_its_second_layer() -> None:
    task = TASKS["induction"](vocab_size=13, seq_len=16, min_period=3, max_period=8)
    embedding, marked, found = logit_lens(induction(), fixed_batch(task, 1, "x", 30))
    assert embedding.loss == pytest.approx(math.log(13)) == marked.loss  # nothing in the answer's block
    assert found.accuracy == 1 and found.loss == pytest.approx(12 * math.exp(-LOUD), abs=1e-9)
