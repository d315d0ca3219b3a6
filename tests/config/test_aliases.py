from __future__ import annotations

from collections.abc import Callable

import pytest

from mhsa_cli.config.aliases import ALIASES, SENTENCES, normalise, suggest
from mhsa_cli.config.fields import all_keys

Complain = Callable[..., str]
KEYS = all_keys()


def test_every_alias_leads_to_a_key_that_exists() -> None:
    assert set(ALIASES) <= set(KEYS)


def test_no_name_is_alias_of_two_keys_or_alias_and_key() -> None:
    names = [name for aliases in ALIASES.values() for name in aliases.split()]
    assert len(names) == len(set(names))
    own = {key.rpartition(".")[2] for key in KEYS}
    assert not own & set(names)
    sentenced = {name for pattern in SENTENCES for name in pattern.split()}
    assert not sentenced & set(names)


@pytest.mark.parametrize("ours", ALIASES)
def test_each_alias_suggests_our_key(ours: str) -> None:
    section, _, name = ours.partition(".")
    for foreign in set(ALIASES[ours].split()) - {"warmup", "task"}:
        assert suggest(foreign, section, KEYS).text.startswith(f"did you mean `{name}")
        assert suggest(foreign, "", KEYS).text.endswith(f"under `{section}:`?")


@pytest.mark.parametrize(
    ("foreign", "ours"),
    [
        ("n_embd", "d_model"), ("n_head", "n_heads"), ("num_heads", "n_heads"), ("hidden_size", "d_model"),
        ("seq_length", "seq_len"), ("T", "seq_len"), ("V", "vocab_size"), ("d_vocab", "vocab_size"),
        ("lr_min", "min_lr"), ("adam_epsilon", "eps"), ("initializer_range", "init_std"),
        ("learning_rate", "lr"), ("optimizer.lr", "lr"), ("warmup_iters", "warmup_steps"), ("bs", "batch_size"),
        ("max_norm", "grad_clip"), ("wd", "weight_decay"), ("beta2", "betas"), ("resid_pdrop", "dropout"),
        ("eval_interval", "eval_every"), ("logging_steps", "log_every"), ("save_steps", "save_every"),
        ("save_total_limit", "keep"), ("system.seed", "seed"), ("accelerator", "device"), ("bf16", "dtype"),
        ("data.builder", "name"), ("dataset", "name"), ("max_epochs", "epochs"), ("num_train_epochs", "epochs"),
        ("n_ctx", "max_seq_len"), ("max_position_embeddings", "max_seq_len"), ("LEARNING-RATE", "lr"),
    ],
)  # fmt: skip
def test_names_seen_in_the_wild(foreign: str, ours: str) -> None:
    home = next(key for key in KEYS if key.endswith("." + ours)).split(".")[0]
    assert suggest(foreign, home, KEYS).text.startswith(f"did you mean `{ours}")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("max_iters", "steps are epochs x steps_per_epoch"), ("max_steps", "steps are epochs x steps_per_epoch"),
        ("steps", "steps are epochs x steps_per_epoch"), ("train_iters", "steps are epochs x steps_per_epoch"),
        ("warmup_ratio", "fraction x epochs x steps_per_epoch"), ("alpha_f", "is a ratio"),
        ("gradient_accumulation_steps", "`train.batch_size` = batch size x accumulation steps"),
        ("eval_iters", "`train.eval_sequences` = batches x batch size"), ("max_duration", "4800 batches"),
        ("wandb_project", "not supported: remove it"), ("deepspeed", "not supported: remove it"),
        ("lora_rank", "not supported: remove it"), ("tokenizer", "not supported: remove it"),
        ("output_dir", "command line"), ("run_name", "command line"), ("name", "command line"),
    ],
)  # fmt: skip
def test_names_without_a_key_get_a_sentence(name: str, words: str) -> None:
    assert suggest(name, "", KEYS).kind == "advice"
    assert words in suggest(name, "", KEYS).text


def test_block_size_suggests_both_of_its_meanings() -> None:
    assert "`task.seq_len`" in suggest("block_size", "model", KEYS).text
    assert "`model.max_seq_len`" in suggest("block_size", "model", KEYS).text


def test_warmup_depends_on_its_value() -> None:
    assert suggest("warmup", "train", KEYS, 100).text == "did you mean `warmup_steps`?"
    assert "fraction x epochs x steps_per_epoch" in suggest("warmup", "train", KEYS, 0.01).text
    assert "without a unit" in suggest("t_warmup", "train", KEYS, "100ba").text


@pytest.mark.parametrize("section", ["", "model"])
def test_a_known_key_in_the_wrong_place_is_sent_home(section: str) -> None:
    assert suggest("lr", section, KEYS).kind == "key"
    assert suggest("lr", section, KEYS).text == "`lr` belongs under `train:`"


def test_sections_in_the_wrong_place_or_case() -> None:
    assert suggest("Train", "", KEYS).text == "did you mean `train:`?"
    assert suggest("model", "train", KEYS).kind == "advice"


def test_misspellings_are_matched_last() -> None:
    assert suggest("leraning_rate", "train", KEYS).text == "did you mean `lr`?"
    assert suggest("n_haeds", "model", KEYS).text == "did you mean `n_heads`?"
    assert suggest("warmup_step", "train", KEYS).text == "did you mean `warmup_steps`?"


def test_a_name_like_nothing_gets_the_list_of_keys() -> None:
    assert suggest("zzz", "model", KEYS).kind == "keys" and suggest("zzz", "", KEYS).kind == "sections"
    assert suggest("zzz", "model", KEYS).text.startswith("keys of `model`: d_model, n_heads, d_head, ")
    assert suggest("zzz", "", KEYS).text.startswith("sections are `task`, `model` and `train`")


def test_normalise() -> None:
    assert [normalise(key) for key in ("N-Heads", "optimizer.lr", " data.Builder ")] == ["n_heads", "lr", "builder"]


def test_keys_inside_an_unknown_section_get_hints_too(complain: Complain) -> None:
    message = complain("optimizer:\n  lr: 2e-5\n  betas: [0.8, 0.9]\n")
    assert "inside it, `lr`: `lr` belongs under `train:`" in message
    assert "inside it, `betas`: `betas` belongs under `train:`" in message


def test_a_flat_config_of_another_project_gets_a_hint_per_line(complain: Complain) -> None:
    message = complain("n_layer: 6\nn_head: 6\nn_embd: 384\nblock_size: 256\ndropout: 0.2\nbias: false\n")
    assert message.count("unknown key") == 6
    for answer in ("`n_layers` under", "`n_heads` under", "`d_model` under", "`dropout` belongs", "`bias` belongs"):
        assert answer in message
