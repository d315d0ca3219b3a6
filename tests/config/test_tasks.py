from __future__ import annotations

from collections.abc import Callable

import pytest

from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import TASK_SCHEMAS, PrefixTask
from tests.refusals import codes, faults

Load = Callable[..., Config]
Complain = Callable[..., str]

PREFIXED = [name for name, schema in TASK_SCHEMAS.items() if issubclass(schema, PrefixTask)]


@pytest.mark.parametrize("name", PREFIXED)
def test_prefix_tasks_need_a_target(name: str) -> None:
    assert codes(f"task: {{name: {name}, seq_len: 1}}") == ["targets"]


@pytest.mark.parametrize("name", PREFIXED)
def test_prefix_tasks_are_even(name: str, load: Load) -> None:
    (fault,) = faults(f"task: {{name: {name}, seq_len: 9}}")
    assert (fault.code, fault.hint) == ("even", "8 and 10 are even")
    assert load(f"task: {{name: {name}, seq_len: 2, vocab_size: 3}}").task.seq_len == 2


def test_one_token_is_enough_where_it_is_its_own_answer(load: Load) -> None:
    assert load("task: {name: repeat, seq_len: 1, vocab_size: 2}").task.seq_len == 1


def test_specials_leave_two_symbols(complain: Complain, load: Load) -> None:
    assert complain("task: {name: copy, vocab_size: 2}").startswith(
        "c.yaml:1:32: `task.vocab_size` is 2, wanted 3 or more"
    )
    assert codes("task: {name: reverse, vocab_size: 3, min_length: 2}") == ["vocabulary"]
    assert load("task: {name: reverse, vocab_size: 4, min_length: 2}").task.vocab_size == 4


def test_shortest_prefix_fits_in_half_a_row(complain: Complain, load: Load) -> None:
    assert "found 6, wanted at most 5, which is half of `task.seq_len` (10)" in complain(
        "task: {name: copy, seq_len: 10, min_length: 6}"
    )
    assert load("task: {name: copy, seq_len: 10, min_length: 5}")
    assert load("task: {name: copy, seq_len: 11, separator: false}").task.seq_len == 11
    assert codes("task: {name: copy, seq_len: 10, min_length: 5, separator: false}") == ["prefix"]


def test_a_setting_of_another_task_is_named_as_such() -> None:
    (fault,) = faults("task: {name: copy, path: a.txt}")
    settings = (
        "it is a setting of `text`; settings of `copy`: name, vocab_size, separator, seq_len, min_length, loss_on"
    )
    assert (fault.code, fault.hint) == ("unknown-setting", settings)


def test_an_unknown_setting_lists_those_of_the_task() -> None:
    (fault,) = faults("task: {name: text, path: a, seq_length: 9}")
    settings = "did you mean `seq_len`?\nsettings of `text`: name, path, seq_len, eval_fraction"
    assert (fault.code, fault.hint) == ("unknown-setting", settings)


def test_text_takes_its_vocabulary_from_the_file() -> None:
    assert codes("task: {name: text, path: a, vocab_size: 65}") == ["unknown-setting"]


def test_text_needs_a_path() -> None:
    assert [(fault.code, fault.col) for fault in faults("task: {name: text}")] == [("missing", 14)]
    for text, code in (("''", "path"), ("[3]", "value"), ('"a\\0b"', "path")):
        assert [(fault.code, fault.col) for fault in faults(f"task: {{name: text, path: {text}}}")] == [(code, 26)]


@pytest.mark.parametrize("value", ["0", "0.51", "-0.1", ".nan"])
def test_part_kept_for_evaluation(value: str) -> None:
    assert codes(f"task: {{name: text, path: a, eval_fraction: {value}}}") == ["value"]


@pytest.mark.parametrize("name", ["no", "3", "[copy]", "null", "2024-13-45", "Copy"])
def test_unknown_tasks_list_the_known_ones(name: str) -> None:
    (fault,) = faults(f"task: {{name: {name}}}")
    assert (fault.code, fault.col) == ("unknown-task", 14)
    assert fault.message.endswith(f"{', '.join(TASK_SCHEMAS)}, or FILE.py:Name")


def test_a_misspelt_task_is_recognised(complain: Complain) -> None:
    assert "did you mean `reverse`?" in complain("task: {name: revers}")


def test_another_task_by_override_makes_other_settings_unknown(load: Load) -> None:
    text = "task: {name: copy, seq_len: 14, min_length: 3}"
    assert codes(text, "task.name=shift") == ["unknown-setting"]
    assert load(text, "task.name=reverse").task.name == "reverse"


def test_a_block_of_equal_symbols_may_be_longer_than_the_vocabulary(load: Load) -> None:
    periods = "vocab_size: 5, seq_len: 16, min_period: 6, max_period: 9"
    assert codes(f"task: {{name: induction, {periods}}}") == ["vocabulary"]
    task = load(f"task: {{name: induction, {periods}, distinct: false, period_per: batch, loss_on: all}}").task
    assert task.name == "induction" and not task.distinct
    for key, value in (("period_per", "run"), ("loss_on", "answer"), ("distinct", "1")):
        assert codes(f"task: {{name: induction, {key}: {value}}}") == ["value"]


def test_periods_of_induction_fit_the_row_and_the_vocabulary(complain: Complain, load: Load) -> None:
    for key, col in (("max_period: 8", 49), ("min_period: 5", 49)):
        found = faults(f"task: {{name: induction, seq_len: 8, {key}}}")
        assert [(fault.code, fault.col) for fault in found] == [("periods", col)]
    message = complain("task: {name: induction, vocab_size: 6, seq_len: 18}")
    assert message.startswith("c.yaml:1:37: `task.vocab_size` is 6, wanted 9 or more: ")
    assert codes("task: {name: induction, seq_len: 1}") == ["value"]
    task = load("task: {name: induction, vocab_size: 7, seq_len: 8, min_period: 7, max_period: 7}").task
    assert task.name == "induction" and load("task: {name: induction, seq_len: 2}").task.max_period is None
