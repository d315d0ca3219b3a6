"""Generation: one token at a time, equal with a cache except at ties, sampled from the softmax."""

from __future__ import annotations

import re
from unittest import mock

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.model import generate as module
from mhsa_cli.core.model.generate import generate, sample
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.errors import UsageError
from tests.core.forms import MAX, Form, H, V, tokens
from tests.core.reference import draw, worst

FORMS = [Form("learned", "softmax", H, 1), Form("rope", "window", 1, 2), Form("alibi", "softmax", 2, 2)]
FORMS += [Form("sinusoidal", "linear", 2, 2), Form("none", "uniform", H, 2)]


def says(model: TransformerLM, length: int, steps: int, **settings: object) -> list[int]:
    return list(generate(model, tokens(length), steps, **settings))


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("settings", [{}, {"temperature": 0.7}, {"temperature": 2.0, "top_k": 5}], ids=str)
def test_the_cache_changes_no_token(form: Form, settings: dict[str, float]) -> None:
    """Greedy, and drawn with the same seed."""
    model = form.model()
    for seed in (0, 1, 2):
        cached, plain = (says(model, 3, MAX - 2, seed=seed, use_cache=use, **settings) for use in (True, False))
        assert cached == plain and len(cached) == MAX - 2


def test_greedy_is_the_likeliest_after_each_prefix() -> None:
    """Worked out by reading everything again and again."""
    model, ids = FORMS[0].model(), tokens(4)
    for token in generate(model, ids, MAX - 4 + 1):
        assert token == int(model(ids.unsqueeze(0))[0, -1].argmax())
        ids = torch.cat([ids, torch.tensor([token])])
    assert len(ids) == MAX + 1


@pytest.mark.parametrize("use_cache", [True, False])
def test_each_token_is_there_before_the_next_is_computed(use_cache: bool) -> None:
    """And nothing is computed before the first is asked for. With a cache only what is new is read."""
    model, read = FORMS[0].model(), []
    model.register_forward_pre_hook(lambda _, ids: read.append(ids[0].shape[1]))
    coming = generate(model, tokens(4), 5, use_cache=use_cache)
    assert read == []
    for n in range(1, 6):
        next(coming)
        assert len(read) == n
    assert read == ([4, 1, 1, 1, 1] if use_cache else [4, 5, 6, 7, 8])
    with pytest.raises(StopIteration):
        next(coming)
    assert len(read) == 5


def test_two_generations_at_once_do_not_know_each_other() -> None:
    model = FORMS[1].model()
    alone = [says(model, 2, 6, temperature=1.0, seed=s) for s in (1, 2)]
    both = [generate(model, tokens(2), 6, temperature=1.0, seed=s) for s in (1, 2)]
    together = [[next(one), next(other)] for _ in range(6) for one, other in [both]]
    assert [list(column) for column in zip(*together, strict=True)] == alone


def test_generating_changes_neither_the_model_nor_torchs_random_numbers() -> None:
    model = FORMS[0].model().train()
    weights, random = [p.clone() for p in model.parameters()], torch.get_rng_state()
    coming = generate(model, tokens(3), 4, temperature=1.0)
    next(coming)
    assert model.training
    list(coming)
    assert model.training and all(module.training for module in model.modules())
    assert all(torch.equal(p, w) and p.grad is None for p, w in zip(model.parameters(), weights, strict=True))
    assert torch.equal(torch.get_rng_state(), random)


def test_dropout_is_off() -> None:
    form = Form("learned", "softmax", H, 1)
    model = TransformerLM(form.config(dropout=0.5), vocab_size=V, max_seq_len=MAX)
    model.load_state_dict(form.model().state_dict())
    assert says(model.train(), 3, 9) == says(form.model(), 3, 9)


def test_a_seed_says_the_same_again_and_another_something_else() -> None:
    model = FORMS[0].model()
    first = says(model, 3, 10, temperature=1.5, seed=7)
    assert says(model, 3, 10, temperature=1.5, seed=7) == first
    assert any(says(model, 3, 10, temperature=1.5, seed=s) != first for s in range(8, 12))
    assert says(model, 3, 4, temperature=1.5, seed=7) == first[:4]
    assert len({tuple(says(model, 3, 10, seed=s)) for s in range(3)}) == 1  # greedy draws nothing


def counts(logits: Tensor, n: int = 1000, **settings: float) -> Tensor:
    """Draw n times; the share of each id."""
    generator = torch.Generator().manual_seed(3)
    drawn = [sample(logits, generator=generator, **settings) for _ in range(n)]
    return torch.bincount(torch.tensor(drawn), minlength=len(logits)) / n


@pytest.mark.parametrize("temperature", [0.5, 1.0, 3.0])
@pytest.mark.parametrize("top_k", [None, 3, 99])
def test_frequencies_approach_the_softmax(temperature: float, top_k: int | None) -> None:
    """Of the logits divided by the temperature, over the top_k likeliest alone."""
    logits = torch.tensor([0.3, -1.0, 1.4, 0.9, -0.2, 1.1])
    best = torch.tensor([2, 5, 3, 0, 4, 1][:top_k])
    wanted = torch.zeros(6)
    wanted[best] = (logits[best] / temperature).softmax(-1)
    found = counts(logits, temperature=temperature, top_k=top_k)
    assert worst(found, wanted) <= 4 * 0.5 / 1000**0.5  # four standard deviations at the most
    assert torch.equal(found > 0, wanted > 0)


def test_the_likeliest_one_alone_is_greedy_also_where_several_are_equal() -> None:
    generator = torch.Generator().manual_seed(0)
    for logits in (draw(V), torch.zeros(V), torch.tensor([0.0, 2.0, 1.0, 2.0, 2.0])):
        greedy = sample(logits, generator=generator)
        assert greedy == int((logits == logits.max()).nonzero()[0])
        for temperature in (0.3, 1.0, 100.0):
            assert sample(logits, temperature=temperature, top_k=1, generator=generator) == greedy
    two = counts(torch.tensor([2.0, 1.0, 2.0, 2.0]), 400, temperature=1.0, top_k=2)
    assert torch.equal(two > 0, torch.tensor([True, False, True, False]))


@pytest.mark.parametrize("temperature", [1e-9, 1e-300, 5e-324])
def test_a_cold_draw_is_greedy_and_a_hot_one_even(temperature: float) -> None:
    logits = torch.tensor([3.0, 800.0, -7.0, 799.9])
    assert counts(logits, 20, temperature=temperature).tolist() == [0, 1, 0, 0]
    assert worst(counts(logits, temperature=1e308), torch.full((4,), 0.25)) <= 0.07


def test_what_does_not_fit_is_refused_with_the_numbers_before_anything_is_said() -> None:
    model = FORMS[0].model()
    assert len(says(model, 5, MAX - 4)) == MAX - 4 and says(model, MAX, 0) == []
    for length, steps, words in (
        (5, MAX - 3, rf"prompt \(5\) \+ new tokens \({MAX - 3}\) exceed max_seq_len \({MAX}\)"),
        (5, MAX - 3, f"generate at most {MAX - 4} tokens"),
        (MAX, 2, "generate at most 1 token "),
        (MAX + 1, 1, "shorten the prompt, or train with a larger max_seq_len"),
        (0, 1, "the prompt is empty"),
    ):
        with mock.patch.object(module, "next_logits", side_effect=AssertionError), pytest.raises(UsageError) as caught:
            generate(model, tokens(length), steps)
        assert re.search(words, str(caught.value))
