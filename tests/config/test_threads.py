"""train.threads: a number, or auto, a rule of the size of a step and of the cores."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from mhsa_cli.config import threads
from mhsa_cli.config.estimate import step_flop
from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config

Complain = Callable[..., str]
SMALL = ["vocab_size=7", "seq_len=5", "batch_size=3", "d_model=6", "n_heads=3"]
SIZES = ["seq_len=64", "d_model=64", "n_heads=8", "n_layers=2", "d_mlp=256"]
LARGE = [*SIZES, "batch_size=128"]


@pytest.fixture(autouse=True)
def five_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(5)), raising=False)


def flop(*settings: str) -> float:
    config = load_config(None, [*SMALL, *settings])
    return step_flop(config.task, config.model, config.train)


def test_the_size_of_a_step_by_hand() -> None:
    """Two operations for each weight and token, and twice that backward; scores and contexts over 5 keys."""
    tokens, block, head, maps = 3 * 5, 6 * 18 + 6 * 6, 6 * 7, 2 * 5 * 6
    assert flop() == 6 * tokens * (block + head + maps)
    assert flop("tie_embeddings=true", "positions=learned") == flop()  # tables are read; the output map is a product
    assert flop("n_layers=2") == 6 * tokens * (2 * (block + maps) + head)
    assert flop("d_mlp=4", "mlp=swiglu") == 6 * tokens * (block + maps + head + 3 * 6 * 4)
    assert flop("model.window=2") == 6 * tokens * (block + head + 2 * 2 * 6)
    assert flop("model.attention=linear") == 6 * tokens * (block + head + 2 * 2 * 6)  # sums of d_head x d_head
    assert flop("n_kv_heads=1") == 6 * tokens * (6 * (6 + 4) + 6 * 6 + head + maps)


def test_auto_is_one_thread_for_a_small_step_and_every_core_for_a_large_one() -> None:
    def chosen(*settings: str) -> int:
        return load_config(None, [*settings, "threads=auto"]).train.threads

    assert chosen() == chosen("batch_size=64") == 1  # the lesson
    assert chosen(*LARGE) == 5
    assert chosen(*LARGE, "device=cuda") == chosen(*LARGE, "device=mps") == 1
    assert load_config(None, LARGE).train.threads == Config().train.threads == 1  # the default is no rule
    config = load_config(None, LARGE)
    just = config.train.batch_size * threads.MIN_FLOP / step_flop(config.task, config.model, config.train)
    assert chosen(*SIZES, f"batch_size={int(just)}") == 1 and chosen(*SIZES, f"batch_size={int(just) + 1}") == 5


def test_what_is_kept_is_the_number() -> None:
    config = load_config(None, [*LARGE, "threads=auto"])
    again = Config.model_validate(config.to_dict() | {"train": {**config.to_dict()["train"], "betas": (0.9, 0.999)}})
    assert config.to_dict()["train"]["threads"] == again.train.threads == 5


@pytest.mark.parametrize("value", ["0", "-1", "1025", "0.0", "1.0", "false", "true", "null", "AUTO", "all", "[auto]"])
def test_anything_else_is_refused(value: str, complain: Complain) -> None:
    assert "wanted a whole number from 1 to 1,024, or auto" in complain(f"train: {{threads: {value}}}")
