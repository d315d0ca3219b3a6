"""A near name is suggested only if it has the same meaning."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from mhsa_cli.config.aliases import ALIASES, setting, suggest
from mhsa_cli.config.fields import all_keys
from mhsa_cli.config.spelling import nearest

Complain = Callable[..., str]
KEYS = all_keys()
NAMES = [key.rpartition(".")[2] for key in KEYS]


def leads_to(name: str, section: str = "") -> set[str]:
    """The keys of ours that the hint for an unknown name offers; the list of all keys of a section offers none."""
    hint = suggest(name, section, KEYS)
    if hint.kind in ("keys", "sections"):
        return set()
    forms = {key: rf"`({re.escape(key)}|{key.rpartition('.')[2]})\b" for key in KEYS}
    return {key for key, form in forms.items() if re.search(form, hint.text)}


@pytest.mark.parametrize(
    "name",
    [
        # looks like a name that is called something else
        "max_tokens", "max_new_tokens", "model_type", "interval", "type", "log_level", "batch_idx", "eval_strategy",
        "top_k", "temperature", "momentum", "rope_dim", "vocab_file", "sequence",
        "n_hreads",  # n_heads or n_threads
        # a section in front that makes another thing of it
        "eval.batch_size", "val.batch_size", "eval.seed", "eval.dropout", "logging.level", "generate.seq_len",
        "tokenizer_config.vocab_size", "ema.window", "lora.dropout", "discriminator.lr",
    ],
)  # fmt: skip
def test_a_name_of_another_meaning_gets_no_key_suggested(name: str) -> None:
    for section in ("", "task", "model", "train"):
        assert leads_to(name, section) == set(), suggest(name, section, KEYS)


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("n_haeds", "model.n_heads"), ("n_heds", "model.n_heads"), ("nheads", "model.n_heads"),
        ("n-heads", "model.n_heads"), ("N_Heads", "model.n_heads"), ("head", "model.n_heads"),
        ("layer", "model.n_layers"), ("leraning_rate", "train.lr"), ("learningrate", "train.lr"),
        ("batchSize", "train.batch_size"), ("warmup_step", "train.warmup_steps"), ("epoch", "train.epochs"),
        ("vocab_sizes", "task.vocab_size"), ("d_modell", "model.d_model"), ("postions", "model.positions"),
        ("eval.interval", "train.eval_every"), ("eval.every", "train.eval_every"), ("log.interval", "train.log_every"),
        ("checkpoint.interval", "train.save_every"), ("attention.dropout", "model.dropout"),
        ("optimizer.lr", "train.lr"), ("data.builder", "task.name"), ("system.seed", "train.seed"),
        ("trainer.max_epochs", "train.epochs"), ("model.dim", "model.d_model"),
    ],
)  # fmt: skip
def test_a_slip_or_another_spelling_leads_to_the_key(name: str, key: str) -> None:
    assert leads_to(name) == {key}
    if "." not in name:
        assert key in leads_to(name, key.partition(".")[0])


def test_two_neighbours_swapped_never_lead_to_another_key() -> None:
    for name in {name for name in [*NAMES, *" ".join(ALIASES.values()).split()] if len(name) > 7}:
        right = setting(name, KEYS)
        for at in range(len(name) - 1):
            slip = name[:at] + name[at + 1] + name[at] + name[at + 2 :]
            assert leads_to(slip) <= {right}, slip
        assert leads_to(name[:2] + name[3:]) <= {right}, name


def test_the_section_of_an_override_counts(complain: Complain) -> None:
    assert "`eval_every`" in complain("", "eval.interval=7")
    assert "log_every" not in complain("", "eval.interval=7")
    told = complain("eval: {interval: 7, batch_size: 3}\n")
    assert "`eval_every`" in told and "train_batch_size" not in told and "`batch_size` belongs" not in told


def test_where_nothing_is_near_the_keys_are_listed(complain: Complain) -> None:
    told = complain("", "max_tokens=7")
    assert all(name in told for name in NAMES)


@pytest.mark.parametrize(
    ("word", "known", "meant"),
    [
        ("trian", ["train", "trace"], "train"), ("inspect_heads", ["inspect-heads", "inspect"], "inspect-heads"),
        ("tain", ["train"], "train"), ("traiin", ["train"], "train"), ("runss", ["runs"], "runs"),
        ("run", ["runs"], "runs"), ("lr", ["lc"], None), ("n_mlp", ["d_mlp"], None), ("silu", ["gelu"], None),
        ("gelo", ["gelu"], "gelu"), ("nope", ["none", "rope"], "none"), ("none1", ["none"], "none"),
        ("cart", ["carp", "card"], None), ("", ["a"], None),
    ],
)  # fmt: skip
def test_nearest(word: str, known: list[str], meant: str | None) -> None:
    assert nearest(word, known) == meant


@pytest.mark.parametrize(
    ("line", "other"),
    [("norm: groupnorm", "rmsnorm"), ("mlp: silu", "gelu"), ("mlp: geglu", "gelu"), ("attention: sparse", "softmax")],
)
def test_an_unsupported_option_is_not_taken_for_a_similar_one(line: str, other: str, complain: Complain) -> None:
    told = complain(f"model: {{{line}}}")
    assert "did you mean" not in told and f"did you mean `{other}`" not in told
