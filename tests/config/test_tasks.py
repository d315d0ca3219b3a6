from __future__ import annotations

from collections.abc import Callable

import pytest

from mhsa_cli.config.load import Config

Load = Callable[..., Config]
Complain = Callable[..., str]


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_prefix_tasks_need_a_target(name: str, complain: Complain) -> None:
    assert f"found 1, which leaves task `{name}` no target positions" in complain(f"task: {{name: {name}, seq_len: 1}}")


@pytest.mark.parametrize("name", ["copy", "reverse"])
def test_prefix_tasks_are_even(name: str, complain: Complain, load: Load) -> None:
    message = complain(f"task: {{name: {name}, seq_len: 9}}")
    assert "found 9, wanted an even number" in message
    assert "8 and 10 are even" in message
    assert load(f"task: {{name: {name}, seq_len: 2, vocab_size: 3}}").task.seq_len == 2


def test_one_token_is_enough_where_it_is_its_own_answer(load: Load) -> None:
    assert load("task: {name: repeat, seq_len: 1, vocab_size: 2}").task.seq_len == 1


def test_specials_leave_two_symbols(complain: Complain, load: Load) -> None:
    assert complain("task: {name: copy, vocab_size: 2}").startswith(
        "c.yaml:1:32: `task.vocab_size` is 2, wanted 3 or more"
    )
    assert "wanted 4 or more" in complain("task: {name: reverse, vocab_size: 3, min_length: 2}")
    assert load("task: {name: reverse, vocab_size: 4, min_length: 2}").task.vocab_size == 4


def test_shortest_prefix_fits_in_half_a_row(complain: Complain, load: Load) -> None:
    assert "found 6, wanted at most 5, which is half of `task.seq_len` (10)" in complain(
        "task: {name: copy, seq_len: 10, min_length: 6}"
    )
    assert load("task: {name: copy, seq_len: 10, min_length: 5}")


def test_a_knob_of_another_task_is_given_back_to_it(complain: Complain) -> None:
    message = complain("task: {name: copy, path: a.txt}")
    assert "task `copy` has no knob `path`" in message
    assert "it is a knob of `text`; knobs of `copy`: name, vocab_size, seq_len, min_length" in message


def test_an_unknown_knob_lists_the_tasks_own(complain: Complain) -> None:
    message = complain("task: {name: text, path: a, seq_length: 9}")
    assert "task `text` has no knob `seq_length`" in message
    assert "did you mean `seq_len`?\n  knobs of `text`: name, path, seq_len, eval_fraction" in message


def test_text_takes_its_vocabulary_from_the_file(complain: Complain) -> None:
    assert "the vocabulary of `text` comes from its file" in complain("task: {name: text, path: a, vocab_size: 65}")


def test_text_needs_a_path(complain: Complain) -> None:
    assert complain("task: {name: text}").startswith("c.yaml:1:14: `task.path` is missing")
    assert "found an empty text" in complain("task: {name: text, path: ''}")
    assert "found a list of 1, wanted the path" in complain("task: {name: text, path: [3]}")
    assert "control character" in complain('task: {name: text, path: "a\\0b"}')


@pytest.mark.parametrize("value", ["0", "0.51", "-0.1", ".nan"])
def test_part_kept_for_evaluation(value: str, complain: Complain) -> None:
    assert "`task.eval_fraction`" in complain(f"task: {{name: text, path: a, eval_fraction: {value}}}")


@pytest.mark.parametrize("name", ["no", "3", "[copy]", "null", "2024-13-45", "Copy"])
def test_unknown_tasks_list_the_known_ones(name: str, complain: Complain) -> None:
    message = complain(f"task: {{name: {name}}}")
    assert "`task.name`: found" in message
    assert "wanted one of repeat, copy, reverse, induction, shift, text" in message


def test_a_misspelt_task_is_recognised(complain: Complain) -> None:
    assert "did you mean `reverse`?" in complain("task: {name: revers}")


def test_another_task_by_override_keeps_the_files_knobs_as_errors(complain: Complain, load: Load) -> None:
    text = "task: {name: copy, seq_len: 14, min_length: 3}"
    assert "task `shift` has no knob `min_length`" in complain(text, "task.name=shift")
    assert load(text, "task.name=reverse").task.name == "reverse"


def test_periods_of_induction_fit_the_row_and_the_vocabulary(complain: Complain, load: Load) -> None:
    assert "found 8, wanted at most 7: `task.seq_len` is 8" in complain(
        "task: {name: induction, seq_len: 8, max_period: 8}"
    )
    assert "periods from 5 to 4: the shortest is longer than the longest" in complain(
        "task: {name: induction, seq_len: 8, min_period: 5}"
    )
    message = complain("task: {name: induction, vocab_size: 6, seq_len: 18}")
    assert message.startswith("c.yaml:1:37: ") and "`task.vocab_size` is 6, wanted 9 or more" in message
    assert "`task.seq_len`" in complain("task: {name: induction, seq_len: 1}")
    task = load("task: {name: induction, vocab_size: 7, seq_len: 8, min_period: 7, max_period: 7}").task
    assert task.name == "induction" and load("task: {name: induction, seq_len: 2}").task.max_period is None
