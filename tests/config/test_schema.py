from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import ValidationError

from mhsa_cli.config.early_stop import meant
from mhsa_cli.config.schema import MAX_STEPS, Config, ModelConfig, TrainConfig
from mhsa_cli.config.tasks import TASK_SCHEMAS
from tests.refusals import codes, faults

Load = Callable[..., Config]
Complain = Callable[..., str]


def test_the_defaults_are_the_lesson() -> None:
    assert Config().to_dict() == {
        "task": {"name": "repeat", "vocab_size": 64, "seq_len": 12},
        "model": {
            "d_model": 32, "n_heads": 4, "d_head": None, "n_kv_heads": None, "n_layers": 1, "encoder_layers": 0,
            "d_mlp": 0,
            "mlp": "gelu",
            "residual": False, "norm": "none", "positions": "sinusoidal", "rope_theta": 10000.0,
            "rope_layout": "interleaved", "attention": "softmax", "causal": True, "window": None, "bias": True,
            "init_std": None, "dropout": 0.0, "max_seq_len": None, "tie_embeddings": False,
        },
        "train": {
            "epochs": 3, "steps_per_epoch": 120, "batch_size": 16, "batch_stream": "seekable", "lr": 0.005,
            "schedule": "constant", "warmup_steps": 0, "min_lr": 0.0, "weight_decay": 0.0, "betas": [0.9, 0.999],
            "eps": 1e-8, "grad_clip": None, "init": None, "seed": 42,
            "device": "auto", "dtype": "float32", "threads": 1, "log_every": None, "eval_every": None,
            "eval_sequences": 512, "stop_at": None, "patience": None, "save_every": None, "keep": 2,
        },
    }  # fmt: skip


@pytest.mark.parametrize("name", TASK_SCHEMAS)
def test_every_task_is_a_part_of_the_union_and_takes_defaults(name: str, load: Load) -> None:
    path = {"text": ", path: a.txt", "rows": ", rows: a.txt, seq_len: 9"}.get(name, "")
    config = load(f"task: {{name: {name}{path}}}")
    assert config.task.name == name
    assert type(config.task) is TASK_SCHEMAS[name]


def test_a_config_is_frozen() -> None:
    config = Config()
    for section, key in ((config, "train"), (config.train, "lr"), (config.model, "d_model"), (config.task, "seq_len")):
        with pytest.raises(ValidationError, match="frozen"):
            setattr(section, key, 7)


def test_helpers_resolve_null(load: Load) -> None:
    config = load("task: {seq_len: 17}\ntrain: {epochs: 5, steps_per_epoch: 23}")
    assert (config.total_steps, config.max_seq_len) == (115, 17)
    assert load("model: {max_seq_len: 31}").max_seq_len == 31


def test_heads_that_do_not_divide_name_both_keys_and_the_nearest_numbers(complain: Complain) -> None:
    assert complain("model:\n  d_model: 1600\n  n_heads: 48\n") == (
        "c.yaml:3:12: `model.d_model` (1600) is not divisible by `model.n_heads` (48)\n"
        "      n_heads: 48\n"
        "               ^^\n"
        "  nearest n_heads that divide 1600: 40 and 50"
    )


def test_heads_that_do_not_divide_point_at_the_width_where_only_it_is_written(complain: Complain) -> None:
    assert complain("model: {d_model: 30}").startswith("c.yaml:1:18: `model.d_model` (30) is not divisible")


def test_rules_between_fields_fire_while_another_field_fails() -> None:
    assert codes(
        "task: {seq_len: 19, foo: 1}\nmodel: {n_layers: x, d_model: 34, max_seq_len: 11}\n"
        "train: {lr: abc, epochs: 2, steps_per_epoch: 5, warmup_steps: 13, seed: -1}\n"
    ) == ["unknown-setting", "value", "heads", "reach", "value", "warmup", "value"]


@pytest.mark.parametrize("value", [".nan", "1.0", "1.5", "-0.1", ".inf", "true", "'0.5'"])
def test_dropout_is_a_finite_share_below_one(value: str, complain: Complain) -> None:
    assert "wanted a finite number from 0, below 1" in complain(f"model: {{dropout: {value}}}")


@pytest.mark.parametrize("value", ["0", "-1e-3", ".nan", ".inf", "inf", "1e999", "99999999999", "abc", "true", "null"])
def test_lr_is_finite_and_positive(value: str, complain: Complain) -> None:
    assert "wanted a finite number above 0, at most 10,000" in complain(f"train: {{lr: {value}}}")


@pytest.mark.parametrize("value", ["1e-3", "1e3", "1E-3", "1.5e3", "5e-4", "2"])
def test_lr_in_any_spelling_is_a_number(value: str, load: Load) -> None:
    assert math.isclose(load(f"train: {{lr: {value}}}").train.lr, float(value))


@pytest.mark.parametrize(
    "value", ["-1", "true", "1.0", "'1'", "18446744073709551616", "9223372036854775808", "null", "010"]
)
def test_seed_is_a_whole_number_that_fits(value: str) -> None:
    (fault,) = faults(f"train: {{seed: {value}}}")
    assert (fault.code, fault.col) == ("number" if value == "010" else "value", 15)


def test_the_largest_seed_is_taken(load: Load) -> None:
    assert load(f"train: {{seed: {2**63 - 1}}}").train.seed == 2**63 - 1


@pytest.mark.parametrize(
    "line",
    [
        "model: {n_heads: 1000000000000000000000000000000}", "model: {n_heads: 99999999}", "model: {n_heads: 0}",
        "model: {d_model: 2147483648}", "model: {d_model: 0}", "model: {n_layers: 0}", "model: {d_mlp: -1}",
        "task: {vocab_size: 1000000000000}", "task: {vocab_size: 1}", "task: {vocab_size: 0}", "task: {seq_len: 0}",
        "task: {seq_len: 100000}", "train: {steps_per_epoch: 0}", "train: {batch_size: 0}", "train: {epochs: -1}",
        "train: {keep: 0}", "train: {threads: 0}", "train: {log_every: 0}", "train: {eval_sequences: 0}",
        "train: {grad_clip: 0}", "train: {weight_decay: -0.1}", "train: {betas: [1, 0.5]}", "train: {betas: [0.5]}",
        "train: {betas: 0.9}", "train: {betas: [0.9, .nan]}", "train: {betas: [0.1, 0.2, 0.3]}", "model: {bias: 1}",
    ],
)  # fmt: skip
def test_bounds(line: str, complain: Complain) -> None:
    assert complain(line).startswith("c.yaml:1:")


def test_untrained_runs_are_allowed(load: Load) -> None:
    assert load("train: {epochs: 0}").total_steps == 0


def test_endless_runs_are_refused(complain: Complain) -> None:
    told = complain("train: {epochs: 100000, steps_per_epoch: 100000}")
    assert codes("train: {epochs: 100000, steps_per_epoch: 100000}") == ["steps"]
    assert "10,000,000,000" in told and "1,000,000,000" in told
    assert MAX_STEPS == 10**9


@pytest.mark.parametrize("warmup", [0, 1, 20, 21])
def test_warmup_may_last_as_long_as_the_run(warmup: int, load: Load) -> None:
    text = f"train: {{epochs: 3, steps_per_epoch: 7, schedule: cosine, warmup_steps: {warmup}}}"
    assert load(text).train.warmup_steps == warmup


@pytest.mark.parametrize("settings", ["lr: 0.1, min_lr: 0.2, schedule: cosine", "min_lr: 0.001", "min_lr: -1"])
def test_the_rate_of_the_last_step_is_at_most_the_peak_and_of_a_schedule(settings: str) -> None:
    assert codes(f"train: {{{settings}}}") == ["value" if "-1" in settings else "min-lr"]


@pytest.mark.parametrize("goal", ["accuracy=0.99", "loss=0.1", "loss=1e-3", " accuracy = 1"])
def test_a_goal_is_read_alike_from_a_file_and_the_command_line(goal: str, load: Load) -> None:
    assert load(f"train: {{stop_at: {goal}}}").train.stop_at == goal.strip()
    assert load("", f"stop_at={goal}").train.stop_at == goal.strip()
    assert load(f"train: {{stop_at: {goal}}}", "stop_at=null", "patience=null").train == Config().train


@pytest.mark.parametrize(
    "goal", ["accuracy>=0.9", "loss<0.1", "accuracy:0.9", "accuracy=1.5", "loss=0", "loss=nan", "0.9"]
)
def test_what_is_no_goal_is_refused_with_the_right_form_where_it_is_known(goal: str) -> None:
    (found,) = faults("", f"stop_at={goal}")
    assert found.code == "value"
    form = {"accuracy>=0.9": "accuracy=0.9", "loss<0.1": "loss=0.1", "accuracy:0.9": "accuracy=0.9"}.get(goal)
    assert (form is None) == (meant(goal) is None) and (form is None or form in str(found.hint))


def test_warmup_longer_than_the_run_is_refused() -> None:
    assert codes("train: {epochs: 3, steps_per_epoch: 7, warmup_steps: 22}") == ["warmup"]


def test_fraction_and_unit_get_the_conversion(complain: Complain) -> None:
    assert "a fraction x epochs x steps_per_epoch" in complain("train: {warmup_steps: 0.1}")
    assert "units such as `ba`" in complain("train: {steps_per_epoch: 4800ba}")
    assert "write 3" in complain("train: {epochs: 3.0}")
    assert "write 1000" in complain("train: {steps_per_epoch: 1_000}")
    assert "remove the quotes" in complain("train: {epochs: '3'}")


@pytest.mark.parametrize("name", ["auto", "cpu", "mps", "cuda", "cuda:0", "cuda:13"])
def test_devices(name: str, load: Load) -> None:
    assert load(f"train: {{device: {name}}}").train.device == name


@pytest.mark.parametrize("name", ["gpu", "'cuda:'", "cuda:01", "CPU", "cuda:-1", "0", "'cpu '"])
def test_other_devices_are_refused(name: str) -> None:
    assert [(fault.code, fault.col) for fault in faults(f"train: {{device: {name}}}")] == [("value", 17)]


def test_dtypes_are_answered_with_the_one_to_use(complain: Complain) -> None:
    for name in ("float16", "fp16", "half"):
        assert "float16 needs loss scaling; use bfloat16" in complain(f"train: {{dtype: {name}}}")
    assert "did you mean `bfloat16`?" in complain("train: {dtype: bf16}")
    assert codes("train: {device: mps, dtype: float64}") == ["dtype"]


def test_options_are_listed_and_the_nearest_named(complain: Complain) -> None:
    assert complain("train: {schedule: cosin}") == (
        "c.yaml:1:19: `train.schedule`: found the text `cosin`, wanted one of constant, cosine, linear\n"
        "    train: {schedule: cosin}\n"
        "                      ^^^^^\n"
        "  did you mean `cosine`?"
    )


def test_words_for_booleans_name_the_key_and_the_word(complain: Complain) -> None:
    assert "`model.residual`: found the text `yes`, wanted true or false" in complain("model: {residual: yes}")
    assert "write `false`" in complain("model: {bias: off}")


@pytest.mark.parametrize(
    ("key", "default"), [("model.attention", "softmax"), ("train.device", "auto"), ("train.dtype", "float32")]
)
def test_null_for_a_word_leads_to_the_default_too(key: str, default: str, complain: Complain) -> None:
    assert complain("", f"{key}=null").splitlines()[-1].endswith(f", {default}")
    section, name = key.split(".")
    assert complain(f"{section}: {{{name}: null}}").splitlines()[-1].endswith(f", {default}")


def test_null_names_the_key_and_its_default(complain: Complain) -> None:
    assert complain("train:\n  seed:\n  lr: 0.25\n") == (
        "c.yaml:2:3: `train.seed`: found nothing (null), wanted a whole number from 0 to 2**63 - 1\n"
        "      seed:\n"
        "      ^^^^\n"
        "  leave the line out for the default, 42"
    )


def test_unset_where_unset_means_something(load: Load) -> None:
    config = load("train: {log_every: null, eval_every: ~, save_every:, grad_clip: null}\nmodel: {max_seq_len: null}")
    assert config == Config()


def test_positions_must_reach_as_far_as_the_task(complain: Complain, load: Load) -> None:
    assert load("task: {seq_len: 29}\nmodel: {max_seq_len: 29}").max_seq_len == 29
    told = complain("task: {seq_len: 29}\nmodel: {max_seq_len: 15}")
    assert told.startswith("c.yaml:2:22: `model.max_seq_len`: found 15, wanted `task.seq_len` (29) or more\n")
    with pytest.raises(ValidationError) as caught:
        Config(model=ModelConfig(max_seq_len=7))
    assert [error["ctx"]["code"] for error in caught.value.errors()] == ["reach"]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("model: {d_model: 65536, n_heads: 64, n_layers: 100}", "parameters and their moments"),
        ("task: {seq_len: 65536}\ntrain: {batch_size: 64}", "for attention maps"),
        ("train: {batch_size: 1048576}\ntask: {vocab_size: 50000}", "for the other activations"),
    ],
)
def test_models_too_large_are_refused_with_their_sizes(line: str, words: str) -> None:
    (fault,) = faults(line)
    assert fault.code == "memory" and fault.line is not None
    assert words in fault.message and "16.0 GiB" in fault.message


@pytest.mark.parametrize("text", ["train: 3", "task: copy", "model: [1, 2]"])
def test_a_section_that_is_not_a_mapping(text: str) -> None:
    assert [(fault.code, fault.line) for fault in faults(text)] == [("section", 1)]


def test_every_field_has_a_description_and_expected_values() -> None:
    from mhsa_cli.config.fields import expected

    for schema in (ModelConfig, TrainConfig, *TASK_SCHEMAS.values()):
        for name, field in schema.model_fields.items():
            assert field.description, name
            assert expected(field), name


@pytest.mark.parametrize("value", [True, 3.0, "3", None, [3]])
def test_code_is_held_to_the_same_rules_as_files(value: Any) -> None:
    with pytest.raises(ValidationError):
        TrainConfig(epochs=value)
