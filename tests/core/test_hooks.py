"""A forward pass split at its heads equals the model itself in every form; with uniform weights, the uniform model."""

from __future__ import annotations

import pytest
import torch

from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.model.attention import uniform_weights
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.training.stack import stack_models
from tests.core.forms import EVERY, FORMS, MAX, B, Form, H, T, V, tokens
from tests.core.reference import acted, worst


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_without_action_it_is_the_model(form: Form) -> None:
    model, ids = form.model(), tokens(B, T)
    logits, weights = model(ids, return_weights=True)
    seen = run_with_activations(model, ids)
    assert worst(seen.logits, logits.detach()) < 1e-5
    assert len(seen.weights) == len(seen.values) == len(seen.outputs) == form.n_layers
    for found, wanted, v, z in zip(seen.weights, weights, seen.values, seen.outputs, strict=True):
        assert worst(found, wanted.detach()) < 1e-5 and found.shape == (B, H, T, T)
        assert worst(z, found @ v) < 1e-5


@pytest.mark.parametrize("form", EVERY[::3], ids=str)
def test_in_a_stack_it_is_each_of_its_models(form: Form) -> None:
    models, ids = [form.model(seed) for seed in (0, 1)], torch.stack([tokens(B, T), tokens(B, T, seed=2)])
    seen = run_with_activations(stack_models(models), ids)
    for slot, model in enumerate(models):
        alone = run_with_activations(model, ids[slot])
        assert worst(seen.logits[slot], alone.logits) < 1e-5
        assert worst(seen.logits[slot], model(ids[slot]).detach()) < 1e-5
        for layer in range(form.n_layers):
            assert worst(seen.weights[layer][slot], alone.weights[layer]) < 1e-5
            assert worst(seen.outputs[layer][slot], alone.outputs[layer]) < 1e-5


@pytest.mark.parametrize("form", [form for form in EVERY if form.kind in ("softmax", "linear")][::2], ids=str)
def test_with_uniform_weights_it_is_the_model_of_frozen_uniform_attention(form: Form) -> None:
    model, ids = form.model(), tokens(B, T)
    frozen = TransformerLM(form.config(attention="uniform"), vocab_size=V, max_seq_len=MAX).eval()
    frozen.load_state_dict(model.state_dict())
    even = uniform_weights(model.attention[0].visible[:T, :T], torch.float32)
    logits = acted(model, ids, lambda layer, A, v: even @ v)
    assert worst(logits, frozen(ids).detach()) < 1e-5
    assert worst(logits, model(ids).detach()) > 1e-3  # or nothing was shown


@pytest.mark.parametrize("training", [True, False])
def test_it_keeps_the_mode_and_sees_through_dropout(training: bool) -> None:
    model = TransformerLM(FORMS[0].config(dropout=0.5), vocab_size=V, max_seq_len=MAX).train(training)
    model.blocks[0].eval()  # a part of a model may be in another mode than the whole
    modes = [part.training for part in model.modules()]
    seen = run_with_activations(model, tokens(B, T))
    assert [part.training for part in model.modules()] == modes and model.training is training
    assert torch.equal(seen.logits, run_with_activations(model, tokens(B, T)).logits)  # dropout would draw anew
