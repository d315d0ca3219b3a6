"""Generation: the model's own beliefs, one token at a time, never past its last position."""

from __future__ import annotations

from collections import Counter

import pytest
import torch

from mhsa_cli.core.generate import generate, next_logits, sample
from mhsa_cli.errors import UsageError
from tests.core.forms import MAX, Form, V, tokens

MODEL = Form("rope", "softmax", 2, 2).model()


def draws(n: int, **options: float | int) -> Counter[int]:
    generator = torch.Generator().manual_seed(1)
    logits = torch.tensor([1.0, 3.0, 2.0, -1.0])
    return Counter(sample(logits, generator=generator, **options) for _ in range(n))  # type: ignore[arg-type]


def test_the_likeliest_token_is_said_at_temperature_zero_and_with_one_to_choose_from() -> None:
    assert draws(20) == draws(20, temperature=2.0, top_k=1) == {1: 20}


def test_draws_approach_the_softmax_of_the_k_likeliest() -> None:
    for top_k, kept in ((None, [0, 1, 2, 3]), (2, [1, 2])):
        found = draws(4000, temperature=1.5, top_k=top_k)
        logits = torch.tensor([1.0, 3.0, 2.0, -1.0])[kept]
        for token, p in zip(kept, (logits / 1.5).softmax(0).tolist(), strict=True):
            assert found[token] / 4000 == pytest.approx(p, abs=0.03)
        assert set(found) <= set(kept)


def test_cached_and_full_computation_say_the_same_also_when_drawing() -> None:
    for temperature in (0.0, 1.3):
        cached, full = (
            list(generate(MODEL, tokens(3), 8, temperature=temperature, seed=5, use_cache=use)) for use in (True, False)
        )
        assert cached == full
    other = list(generate(MODEL, tokens(3), 8, temperature=1.3, seed=6))
    assert other != cached and all(0 <= token < V for token in other)


def test_every_token_is_the_likeliest_after_those_before() -> None:
    ids = tokens(4)
    for token in generate(MODEL, ids, 5):
        assert token == int(next_logits(MODEL, ids, None).argmax())
        ids = torch.cat([ids, torch.tensor([token])])


def test_tokens_come_one_by_one_and_not_ahead() -> None:
    calls = 0

    def count(*_: object) -> None:
        nonlocal calls
        calls += 1

    handle = MODEL.lm_head.register_forward_hook(count)
    said = generate(MODEL, tokens(2), 6)
    assert calls == 0
    next(said), next(said)
    assert calls == 2
    handle.remove()


def test_the_last_position_is_the_limit_and_the_numbers_are_said() -> None:
    prompt = tokens(5)
    assert len(list(generate(MODEL, prompt, MAX - 5 + 1))) == MAX - 5 + 1
    assert list(generate(MODEL, prompt, 0)) == []
    with pytest.raises(UsageError, match=f"a prompt of 5 and 10 more tokens do not fit into max_seq_len={MAX}"):
        generate(MODEL, prompt, 10)
    with pytest.raises(UsageError, match="the prompt is empty"):
        generate(MODEL, tokens(0), 1)
