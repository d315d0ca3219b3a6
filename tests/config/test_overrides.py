from __future__ import annotations

from collections.abc import Callable

import pytest

from mhsa_cli.config.dump import dump_yaml
from mhsa_cli.config.load import load_config
from mhsa_cli.config.overrides import is_override, resolve_key
from mhsa_cli.config.problems import ConfigError, Mark, Source
from mhsa_cli.config.schema import Config
from tests.refusals import codes, faults

Load = Callable[..., Config]
Complain = Callable[..., str]
UNKNOWN = "unknown-key"


@pytest.mark.parametrize("value", ["1e-5", "1e-3", ".25", "2", "0.01"])
def test_a_value_means_the_same_as_in_the_file(value: str, load: Load) -> None:
    assert load("", f"train.lr={value}") == load(f"train: {{lr: {value}}}")


@pytest.mark.parametrize(
    "value", ["abc", "010", "'0.1'", ".nan", "true", "[1]", "null", "a: b", "${x}", "!!float 1", "1_0"]
)
def test_a_bad_value_fails_as_in_the_file(value: str, complain: Complain) -> None:
    def message(text: str) -> str:
        return text.splitlines()[0].removeprefix(f"train.lr={value}").removeprefix(f"c.yaml:2:{column}")

    column = 8 if value == "a: b" else 7  # this one fails at its colon
    assert message(complain("", f"train.lr={value}")) == message(complain(f"train:\n  lr: {value}"))


def test_the_place_of_an_override_is_its_text(complain: Complain) -> None:
    assert complain("", "train.lr=abc") == (
        "train.lr=abc: `train.lr`: found the text `abc`, wanted a finite number above 0, at most 10,000\n"
        "    train.lr=abc\n"
        "             ^^^"
    )
    assert complain("", "model.n_embd=8") == (
        "model.n_embd=8: unknown key `n_embd` in `model`\n"
        "    model.n_embd=8\n"
        "    ^^^^^^^^^^^^\n"
        "  did you mean `d_model`?"
    )


def test_syntax_errors_point_into_the_value(complain: Complain) -> None:
    assert complain("", "train.betas=[0.9, 0.5").splitlines()[1:3] == ["    train.betas=[0.9, 0.5", " " * 25 + "^"]
    assert "    lr=1\\x1b\n        ^^^^" in complain("", "lr=1\x1b")


def test_bare_names_that_only_one_section_has(load: Load) -> None:
    config = load("", "n_heads=8", "lr=0.125", "seq_len=20", "name=shift", "betas=[0.5, 0.75]")
    assert (config.model.n_heads, config.train.lr, config.task.seq_len, config.task.name) == (8, 0.125, 20, "shift")
    assert config.train.betas == (0.5, 0.75)


def test_a_bare_name_that_two_sections_have_is_refused_with_both() -> None:
    mark = Mark(Source("size=3", ["size=3"], override=True), 1, 1, 4)
    with pytest.raises(ConfigError) as caught:
        resolve_key("size", ["model.size", "train.size"], mark)
    (fault,) = caught.value.problems
    assert (fault.code, fault.message) == ("ambiguous", "`size` could be `model.size` or `train.size`")


@pytest.mark.parametrize(
    ("first", "again"),
    [("lr=0.25", "train.lr=0.125"), ("train.lr=0.25", "lr=0.25"), ("lr=1", "lr=1"), ("n_embd=8", "n_embd=16")],
)
def test_a_key_that_is_set_twice_is_refused_with_both(first: str, again: str) -> None:
    (fault,) = (fault for fault in faults("train: {lr: 0.5, seed: 3}", first, "seed=4", again) if fault.code != UNKNOWN)
    assert (fault.code, fault.file) == ("set-twice", again) and f"`{first}`" in fault.message


def test_overrides_win_over_the_file(load: Load) -> None:
    assert load("train: {lr: 0.5, seed: 3}", "lr=0.25").train.seed == 3


def test_an_override_can_mend_the_file(load: Load) -> None:
    assert load("model: {d_model: 30}", "n_heads=5").model.n_heads == 5
    assert load("train: {lr: abc}", "lr=0.5").train.lr == 0.5


def test_rules_between_fields_point_at_the_override() -> None:
    assert [(f.code, f.file) for f in faults("model: {d_model: 32}", "n_heads=7")] == [("heads", "n_heads=7")]


@pytest.mark.parametrize("text", ["task=copy", "model={d_model: 3}", "train="])
def test_an_override_of_a_section_is_refused(text: str) -> None:
    assert codes("", text) == ["section"]


@pytest.mark.parametrize("text", ["n_heads", "=3", "", " =3"])
def test_arguments_that_are_not_key_value(text: str) -> None:
    assert codes("", text) == ["override"]


def test_unknown_keys_are_answered_like_the_files(complain: Complain) -> None:
    assert "did you mean `d_model` under `model:`?" in complain("", "n_embd=8")
    assert {*codes("", "train.lr.x=3"), *codes("", "optimizer.lr=3"), *codes("", "max_iters=100")} == {UNKNOWN}


def test_a_broken_section_in_the_file_is_not_hidden_by_an_override() -> None:
    assert [(f.code, f.file) for f in faults("train: 3", "train.lr=0.5")] == [("section", "c.yaml")]


def test_all_problems_of_file_and_overrides_come_together() -> None:
    found = faults("model: {d_mlp: x}\ntrain: {lr: y}", "seed=z", "keep=w")
    assert [fault.place for fault in found] == ["c.yaml:1:16", "c.yaml:2:13", "seed=z", "keep=w"]


def test_without_a_file_everything_is_default() -> None:
    assert load_config(None) == Config()
    assert load_config(None, ["epochs=11"]).train.epochs == 11


def test_a_path_with_odd_bytes_is_accepted(load: Load) -> None:
    config = load("", "task.name=text", "task.path=caf\udce9.txt")
    assert config.to_dict()["task"]["path"] == "caf\udce9.txt"


def test_files_and_overrides_are_distinguished() -> None:
    assert [is_override(text) for text in ("lr=3", "train.lr=", "a.yaml", "./a=b.yaml", "dir/x=1", "=3")] == [
        True, True, False, False, False, False,
    ]  # fmt: skip


def test_nothing_of_a_replaced_value_is_left_to_point_at() -> None:
    assert [fault.place for fault in faults("train: {betas: [0.9, 0.8]}", "betas=[0.5]")] == ["betas=[0.5]"]


def test_an_unknown_section_of_an_override_is_reported_at_the_override(complain: Complain) -> None:
    told = complain("train: {lr: 0.1}", "optimizer.lr=3", "Model.n_heads=8")
    assert codes("train: {lr: 0.1}", "optimizer.lr=3", "Model.n_heads=8") == [UNKNOWN, UNKNOWN]
    assert told.startswith("optimizer.lr=3: ") and "\nModel.n_heads=8: " in told
    assert "    optimizer.lr=3\n    ^^^^^^^^^^^^" in told


@pytest.mark.parametrize(
    ("typed", "several"),
    [
        ("model.n_heads=[2, 4]", "model.n_heads=2,4"),
        ("lr=1e-3,5e-3", "lr=1e-3,5e-3"),
        ("bias=[true,false]", "bias=true,false"),
        ("norm=none,rmsnorm", "norm=none,rmsnorm"),
        ("name=copy,shift", "name=copy,shift"),
    ],
)
def test_several_values_for_one_run_are_pointed_to_a_sweep(typed: str, several: str, complain: Complain) -> None:
    told = complain("", typed)
    assert told.endswith(f"one run has one value; to train each of several: mhsa sweep {several}")


@pytest.mark.parametrize("typed", ["lr=1,000", "lr=[0.5]", "betas=[0.5,0.6,0.7]", "lr=a, b c", "lr={a: 1, b: 2}"])
def test_only_lists_of_single_values_suggest_a_sweep(typed: str, complain: Complain) -> None:
    assert "mhsa sweep" not in complain("", typed)


@pytest.mark.parametrize(
    ("typed", "way"),
    [
        (".lr=1", "train.lr=1"), ("train..lr=1e-2", "train.lr=1e-2"), (".n_heads=8", "model.n_heads=8"),
        ("..lr=1", "train.lr=1"), ("train.=1", "lr, "), (".n_embd=8", "model.d_model=8"), ("..=1", "train.lr=1e-3"),
        ("optimizer.=1", "train.lr=1e-3"), (".=1", "train.lr=1e-3"),
    ],
)  # fmt: skip
def test_a_missing_name_beside_a_dot_is_reported(typed: str, way: str, complain: Complain) -> None:
    told = complain("", typed)
    assert told.startswith(f"{typed}: ") and f"`{typed.partition('=')[0]}`" in told
    assert "``" not in told and way in told.splitlines()[-1]
    assert is_override(typed)


WORDS = ("2024", "695e0514", "0x10", "0b1", "007", "1e5", "true", "null", "~", "-1", "+1", ".5", ".inf", "1_0", "no")


@pytest.mark.parametrize("word", WORDS)
def test_a_key_of_kind_text_takes_the_text_as_written(word: str, load: Load) -> None:
    for config in (
        load("task: {name: text}", f"task.path={word}"),
        load("task: {name: text}", f"path='{word}'"),
        load(f"task: {{name: text, path: {word}}}"),
        load(f'task:\n  name: text\n  path: "{word}"'),
    ):
        assert config.to_dict()["task"]["path"] == word
        assert load(dump_yaml(config)) == config


@pytest.mark.parametrize("word", ["a #b.txt", "[draft].txt", "*.txt", "&x", "a: b", "- a", "%d", "it's", "a,b", "{x}"])
def test_only_quotes_mean_something_in_the_text_of_an_override(word: str, load: Load) -> None:
    assert load("task: {name: text}", f"task.path= {word} ").to_dict()["task"]["path"] == word


@pytest.mark.parametrize("key", ["train.device", "model.attention"])
def test_other_keys_of_kind_text_are_read_so_too(key: str, complain: Complain) -> None:
    section, name = key.split(".")
    for word in WORDS:
        assert f"the text `{word}`" in complain("", f"{key}={word}")
        assert f"the text `{word}`" in complain(f"{section}: {{{name}: {word}}}")


@pytest.mark.parametrize("typed", ["lr=695e0514", "n_heads=1e400", "lr=+1e999", "bias=1.50", "betas=[0.5, 2e0]"])
def test_a_refused_number_is_quoted_as_written(typed: str, complain: Complain) -> None:
    key, _, value = typed.partition("=")
    last = value.strip("[]").split()[-1]
    assert f"found `{last}`" in complain("", typed)
    section = "model" if key in ("n_heads", "bias") else "train"
    assert f"found `{last}`" in complain(f"{section}:\n  {key}: {value}")
    assert "inf`" not in complain("", typed)
