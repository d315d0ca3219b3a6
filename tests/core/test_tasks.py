"""Tasks: laws that hold for every entry of TASKS, and each task by hand.

A new task is tested by the laws as soon as its entry is written; its answers have a test by hand.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Generator

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import TASK_SCHEMAS, PrefixTask
from mhsa_cli.core.heads.probe import build_probe
from mhsa_cli.core.tasks import IGNORE, TASKS, Batch, Task, TrainBatches, build_task, drawn, fixed_batch
from mhsa_cli.core.tasks.base import BLOCK, counted_chance, stream_generator
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.overlap import seen_in_training
from mhsa_cli.errors import UsageError
from mhsa_cli.records.task_examples import EXAMPLES
from tests.settings import small_task

LENGTHS: dict[str, Callable[[], Task]] = {
    f"{name}, lengths": partial(TASKS[name], vocab_size=9, seq_len=8, min_length=1)
    for name, schema in TASK_SCHEMAS.items()
    if issubclass(schema, PrefixTask)
}

PERIODS = ("induction, equal symbols", "induction, per batch")  # of OTHERS


def row(task: Task, seed: int = 3) -> tuple[list[int], list[int]]:
    batch = task.sample(stream_generator(seed, "test", 0), 1)
    return batch.inputs[0].tolist(), batch.targets[0].tolist()


def test_every_task_has_its_settings() -> None:
    assert list(TASKS) == list(TASK_SCHEMAS) == list(EXAMPLES)  # one order on every screen


@pytest.mark.parametrize("name", TASKS)
def test_a_task_is_built_from_its_settings_and_has_an_example(name: str, tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        write(tmp_path, b"to be or not to be, that is the question" * 3, "text.txt")
        write(tmp_path, b"1 -> 2 3\n4 -> 5", "rows.txt")
        task = build_task(load_config(None, small_task(name)).task)
    assert type(task) is TASKS[name] and TASKS[name].name == name
    example = EXAMPLES[name]  # shown without torch
    assert drawn(TASKS[name].small()) == replace(
        example,
        chance_loss=pytest.approx(example.chance_loss, abs=1e-6),
        chance_accuracy=pytest.approx(example.chance_accuracy, abs=1e-6),
    )


@pytest.mark.parametrize("name", TASKS)
def test_rows_are_drawn_from_the_generator_alone_and_stay_in_the_vocabulary(name: str) -> None:
    task = TASKS[name].small()
    first, again, other = (task.draw(300, stream_generator(seed, "test", 0)) for seed in (5, 5, 6))
    assert torch.equal(first.inputs, again.inputs) and torch.equal(first.targets, again.targets)
    assert not torch.equal(first.inputs, other.inputs)
    for ids in (first.inputs, first.targets):
        assert ids.shape == (300, task.seq_len) and ids.dtype == torch.int64 and ids.is_contiguous()
    for ids in (first.inputs, first.targets[first.targets != IGNORE]):
        assert int(ids.min()) >= 0 and int(ids.max()) < task.vocab_size
    assert len(task.symbols(range(task.vocab_size))) == task.vocab_size
    assert all(isinstance(task.write(i), str) for i in range(task.vocab_size))


@pytest.mark.parametrize("name", [*TASKS, *LENGTHS, *PERIODS])
def test_the_source_holds_the_answer(name: str) -> None:
    """Where a task names the keys that hold its answers: of every answer all of them, one of them before it."""
    task = OTHERS[name]() if name in OTHERS else TASKS[name].small()
    batch = task.draw(300, stream_generator(4, "test", 0))
    source = task.source(batch.inputs)
    if source is None:
        return
    scored = batch.targets != IGNORE
    assert scored.any() and torch.equal(source.tril().any(-1), scored)
    holds = batch.inputs.unsqueeze(1) == batch.targets.unsqueeze(2)
    assert torch.equal(source, holds)
    anything = torch.randint(task.vocab_size, (50, task.seq_len + 3), generator=stream_generator(4, "any", 0))
    found = task.source(anything)  # rows that are not of this task are asked too, and of another length
    assert found is not None and found.shape == (*anything.shape, anything.size(1)) and found.dtype == torch.bool


@pytest.mark.parametrize("name", [*TASKS, *LENGTHS, *PERIODS, "induction, every symbol"])
def test_corrupted_rows_fit_their_batch(name: str) -> None:
    """They have its shape and its answers, at some of its places; the rows are others, scored at the same places."""
    task = OTHERS[name]() if name in OTHERS else TASKS[name].small()
    batch = task.draw(60, stream_generator(4, "test", 0))
    kept = Batch(batch.inputs.clone(), batch.targets.clone())
    found, again, other = (task.corrupt(batch, stream_generator(seed, "corrupt", 0)) for seed in (5, 5, 6))
    assert torch.equal(found.inputs, again.inputs) and torch.equal(found.targets, again.targets)
    assert torch.equal(batch.inputs, kept.inputs) and torch.equal(batch.targets, kept.targets)
    for ids, clean in ((found.inputs, batch.inputs), (found.targets, batch.targets)):
        assert ids.shape == clean.shape and ids.dtype == torch.int64
    assert int(found.inputs.min()) >= 0 and int(found.inputs.max()) < task.vocab_size
    scored = found.targets != IGNORE
    assert torch.equal(found.targets[scored], batch.targets[scored]) and scored.any()
    rows = scored.any(1)
    assert ((found.inputs != batch.inputs).any(1) == rows).all()  # a row that is not scored has no partner
    assert rows.float().mean() > 0.5 or name == "induction, every symbol"
    assert not torch.equal(other.inputs, found.inputs)


def test_a_corrupted_row_is_another_of_the_batch_scored_at_the_same_places() -> None:
    task = OTHERS["copy, lengths"]()
    batch = task.draw(40, stream_generator(4, "test", 0))
    found = task.corrupt(batch, stream_generator(1, "corrupt", 0))
    places = {tuple(row): t for row, t in zip(batch.inputs.tolist(), (batch.targets != IGNORE).tolist(), strict=True)}
    for row, targets, own in zip(found.inputs.tolist(), found.targets.tolist(), batch.targets.tolist(), strict=True):
        if set(targets) != {IGNORE}:
            assert targets == own and places[tuple(row)] == [t != IGNORE for t in own]
    # A row without a partner stays as it is and is not scored.
    alone = Batch(torch.tensor([[1, 2, 3], [4, 5, 6], [6, 5, 4], [1, 2, 3]]), torch.tensor([[0, 0, 0], [-100, 7, 8], [-100, 8, 7], [0, 0, 0]]))  # fmt: skip # noqa: E501
    found = task.corrupt(alone, stream_generator(1, "corrupt", 0))
    assert found.inputs.tolist() == [[1, 2, 3], [6, 5, 4], [4, 5, 6], [1, 2, 3]]
    assert found.targets.tolist() == [[-100] * 3, [-100, 7, 8], [-100, 8, 7], [-100] * 3]


def test_repeat_is_one_id_over_and_over() -> None:
    inputs, targets = row(TASKS["repeat"](vocab_size=11, seq_len=5))
    assert len(set(inputs)) == 1 and inputs == targets and len(inputs) == 5


def test_shift_counts_upwards_and_wraps_around() -> None:
    task = TASKS["shift"](vocab_size=7, seq_len=4)
    for seed in range(20):
        inputs, targets = row(task, seed)
        assert inputs == [(inputs[0] + i) % 7 for i in range(4)]
        assert targets == [*inputs[1:], (inputs[-1] + 1) % 7]


def test_copy_says_the_prefix_again_after_the_separator() -> None:
    inputs, targets = row(TASKS["copy"](vocab_size=9, seq_len=6))
    a, b, c = inputs[:3]
    assert inputs == [a, b, c, 8, a, b]
    assert targets == [IGNORE, IGNORE, IGNORE, a, b, c]


def test_reverse_says_the_prefix_backwards() -> None:
    inputs, targets = row(TASKS["reverse"](vocab_size=9, seq_len=6))
    a, b, c = inputs[:3]
    assert inputs == [a, b, c, 8, c, b]
    assert targets == [IGNORE, IGNORE, IGNORE, c, b, a]


def test_lengths_vary_within_their_range_and_padding_is_never_scored() -> None:
    task = TASKS["copy"](vocab_size=12, seq_len=10, min_length=2)
    batch = task.sample(stream_generator(1, "test", 0), 300)
    lengths = (batch.inputs == 11).int().argmax(1)
    assert set(lengths.tolist()) == {2, 3, 4, 5}
    for inputs, targets, length in zip(batch.inputs.tolist(), batch.targets.tolist(), lengths.tolist(), strict=True):
        prefix = inputs[:length]
        full = [*prefix, 11, *prefix] + [10] * (11 - 2 * length - 1)
        assert inputs == full[:10]
        assert targets == [IGNORE] * length + prefix + [IGNORE] * (10 - 2 * length)
    assert batch.inputs.min() >= 0 and task.symbols([11, 10, 3]) == ["|", "_", "3"]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("copy", {"seq_len": 10}),
        ("reverse", {"seq_len": 10, "min_length": 2}),
        ("induction", {"seq_len": 9}),
        ("induction", {"seq_len": 13, "distinct": False, "period_per": "batch"}),
    ],
)
def test_a_loss_on_all_tokens_trains_on_the_same_rows_and_evaluates_the_answers(
    name: str, settings: dict[str, int]
) -> None:
    plain, every = (TASKS[name](vocab_size=12, loss_on=on, **settings) for on in ("answers", "all"))
    drawn, full = (task.sample(stream_generator(1, "test", 0), 90) for task in (plain, every))
    assert torch.equal(drawn.inputs, full.inputs)
    scored = drawn.targets != IGNORE
    assert torch.equal(drawn.targets[scored], full.targets[scored]) and not scored.all()
    following, padding = full.inputs[:, 1:], 10 if "min_length" in settings else -1
    assert torch.equal(full.targets[:, :-1], following.masked_fill(following == padding, IGNORE))
    held, answers = (task.held_out(stream_generator(1, "test", 0), 90) for task in (every, plain))
    assert torch.equal(held.inputs, answers.inputs) and torch.equal(held.targets, answers.targets)
    assert (every.chance_loss, every.chance_accuracy) == (plain.chance_loss, plain.chance_accuracy)


def constant_guess(answers: list[list[int]]) -> tuple[float, float]:
    """Entropy and accuracy of the best guess at each position, from every answer met there; unscored ones left out."""
    met = [Counter(column) for column in zip(*answers, strict=True)]
    for counts in met:
        del counts[IGNORE]
    total = sum(counts.total() for counts in met)
    entropy = -sum(c * math.log(c / counts.total()) for counts in met for c in counts.values()) / total
    return entropy, sum(max(counts.values(), default=0) for counts in met) / total


OTHERS: dict[str, Callable[[], Task]] = {
    **LENGTHS,
    "induction, one period": lambda: TASKS["induction"](vocab_size=5, seq_len=7, min_period=3, max_period=3),
    "induction, equal symbols": lambda: TASKS["induction"](
        vocab_size=9, seq_len=14, min_period=5, max_period=5, distinct=False
    ),
    "induction, per batch": lambda: TASKS["induction"](
        vocab_size=9, seq_len=11, min_period=2, max_period=7, period_per="batch"
    ),
    "induction, every symbol": lambda: TASKS["induction"](vocab_size=5, seq_len=8, min_period=2, max_period=5),
    "shift, few symbols": lambda: TASKS["shift"](vocab_size=3, seq_len=7),
}


@pytest.mark.parametrize("name", [*(name for name in TASKS if name not in ("text", "rows")), *OTHERS])
def test_chance_is_what_guessing_by_position_scores(name: str) -> None:
    """Over many rows, with what the task says of itself, and with what is counted for a task that says nothing."""
    task = OTHERS[name]() if name in OTHERS else TASKS[name].small()
    rows = task.held_out(stream_generator(2, "test", 0), 10_000).targets.tolist()
    loss, accuracy = constant_guess(rows)
    assert loss == pytest.approx(task.chance_loss, abs=0.01) and accuracy == pytest.approx(
        task.chance_accuracy, abs=0.02
    )
    assert counted_chance(task) == pytest.approx((task.chance_loss, task.chance_accuracy), abs=0.01)


def test_chance_on_text_is_guessing_by_character_frequency(tmp_path: Path) -> None:
    """Position adds nothing: rows begin anywhere. Counted by position, both parts being drawn from one distribution."""
    letters = torch.multinomial(torch.tensor([5.0, 3, 1, 1]), 8000, True, generator=torch.Generator().manual_seed(1))
    task = text(write(tmp_path, "".join("abc "[i] for i in letters.tolist()).encode()))
    assert counted_chance(task) == pytest.approx((task.chance_loss, task.chance_accuracy), abs=0.03)
    p = [0.5, 0.3, 0.1, 0.1]
    assert task.chance_loss == pytest.approx(-sum(x * math.log(x) for x in p), abs=0.05)


class Ordered(Task):
    """L random symbols, a separator, and the same symbols in order. Its chance level is counted."""

    def __init__(self, n_symbols: int, length: int) -> None:
        self.vocab_size, self.seq_len, self.length = n_symbols + 1, 2 * length, length

    def sample(self, generator: Generator, rows: int) -> Batch:
        drawn = torch.randint(self.vocab_size - 1, (rows, self.length), generator=generator)
        ids = torch.cat([drawn, torch.full((rows, 1), self.vocab_size - 1), drawn.sort(1).values], 1)
        targets = ids[:, 1:].clone()
        targets[:, : self.length] = IGNORE
        return Batch(ids[:, :-1], targets)


@pytest.mark.parametrize(("n_symbols", "length"), [(5, 3), (2, 4), (7, 2)])
def test_chance_knows_the_position(n_symbols: int, length: int) -> None:
    """Sorted symbols, enumerated: small ones are mostly first and large ones last, though all are equally frequent."""
    every = [sorted(row) for row in itertools.product(range(n_symbols), repeat=length)]
    loss, accuracy = constant_guess(every)
    task = Ordered(n_symbols, length)
    assert (task.chance_loss, task.chance_accuracy) == pytest.approx((loss, accuracy), abs=0.005)
    assert accuracy > 1.3 / n_symbols and loss < 0.95 * math.log(n_symbols)  # what position alone tells


@pytest.mark.parametrize("part", ["inputs", "targets"])
@pytest.mark.parametrize("wrong", [-1, IGNORE - 1, 7, 2**40])
def test_a_task_of_ones_own_is_refused_where_it_leaves_the_vocabulary(part: str, wrong: int) -> None:
    """When its rows are drawn, before a device sees one. IGNORE is the only target below 0."""

    class Own(Task):
        vocab_size, seq_len = 7, 3

        def sample(self, generator: torch.Generator, rows: int) -> Batch:
            ids = {"inputs": torch.full((rows, 3), 6), "targets": torch.tensor([0, IGNORE, 6]).expand(rows, 3).clone()}
            ids[part][-1, 1] = wrong
            return Batch(**ids)

    for draw in (lambda: TrainBatches(Own(), 1, 4)[1], lambda: fixed_batch(Own(), 1, "eval", 5)):
        with pytest.raises(ValueError) as caught:
            draw()
        assert str(wrong) in str(caught.value) and "0..6" in str(caught.value)


@pytest.mark.parametrize("period_per", ["row", "batch"])
def test_batches_are_a_pure_function_of_seed_and_step(period_per: str) -> None:
    task = TASKS["induction"](vocab_size=30, seq_len=8, period_per=period_per)
    forwards, again = TrainBatches(task, 7, 5), TrainBatches(task, 7, 5)
    rows = {step: forwards[step].inputs for step in range(1, 3 * BLOCK)}
    for step in (2 * BLOCK, 1, BLOCK + 1, BLOCK, 3):
        assert torch.equal(again[step].inputs, rows[step])
    assert not torch.equal(rows[1], rows[2]) and not torch.equal(rows[BLOCK], rows[BLOCK + 1])
    assert not torch.equal(TrainBatches(task, 8, 5)[1].inputs, rows[1])
    lengths = [len({len(set(row)) for row in batch.tolist()}) for batch in rows.values()]
    assert (max(lengths) == 1) == (period_per == "batch")  # of distinct symbols a row has as many as its period
    assert len({len(set(rows[step][0].tolist())) for step in range(1, BLOCK)}) == 3  # also within what is drawn at once


ROWS_OF_IDS = "".join(f'{{"inputs": [9, {a}, {b}], "targets": [null, {a}, {b}]}}\n' for a in range(4) for b in range(4))


def test_rows_of_ids_are_read_as_they_are(tmp_path: Path) -> None:
    write(tmp_path, ROWS_OF_IDS.encode(), "ids.jsonl")
    file = str(tmp_path / "ids.jsonl")
    task = TASKS["rows"](rows=file, seq_len=3, eval_fraction=0.5, vocab_size=11)
    batch = task.draw(40, stream_generator(1, "test", 0))
    assert (task.vocab_size, task.n_symbols, task.separator, task.symbols([9])) == (11, 11, None, ["9"])
    assert (batch.inputs[:, 0] == 9).all() and (batch.targets[:, 0] == IGNORE).all()
    assert torch.equal(batch.inputs[:, 1:], batch.targets[:, 1:])
    assert set(batch.inputs[:, 1:].flatten().tolist()) == {0, 1, 2, 3}
    for settings in ({"vocab_size": 9, "seq_len": 3}, {"vocab_size": 11, "seq_len": 4}):
        with pytest.raises(UsageError):
            TASKS["rows"](rows=file, eval_fraction=0.5, **settings)
    probe = build_probe(build_model(Config(), task, seed=1), task, 0)
    assert probe is not None and (probe.shuffled[:, 0] == 9).all() and not torch.equal(probe.shuffled, probe.ids)
    assert torch.equal(probe.shuffled.sort(1).values, probe.ids.sort(1).values)
    keys = probe.targets["first"].keys  # every later query may attend to the start token
    assert keys[..., 0].sum() == keys.sum() == 2 * len(keys)


def test_sequential_batches_are_those_of_one_generator() -> None:
    task, generator = TASKS["copy"](vocab_size=30, seq_len=8), torch.Generator().manual_seed(7)
    wanted = {step: task.sample(generator, 5) for step in range(1, 40)}
    batches = TrainBatches(task, 7, 5, sequential=True)
    for step in (1, 2, 3, 3, 39, 1, 17, 18, 2):  # as a resume asks, too
        assert all(torch.equal(*pair) for pair in zip(batches[step], wanted[step], strict=True)), step
    for sequential in (True, False):
        every = TrainBatches(task, 7, 5, sequential)
        rows = torch.cat(list(TrainBatches(task, 7, 5, sequential).inputs(39)))
        assert torch.equal(rows, torch.cat([every[step].inputs for step in range(1, 40)]))


def test_evaluation_rows_are_another_stream_than_training() -> None:
    task = TASKS["copy"](vocab_size=60, seq_len=12)
    fixed = fixed_batch(task, 7, "eval", 5).inputs
    assert torch.equal(fixed, fixed_batch(task, 7, "eval", 5).inputs)
    assert not torch.equal(fixed, TrainBatches(task, 7, 5)[1].inputs)


def test_evaluation_rows_that_were_trained_on_are_counted() -> None:
    assert seen_in_training(TrainBatches(TASKS["repeat"](vocab_size=6, seq_len=5), 1, 8), 400, 100) == 100
    assert seen_in_training(TrainBatches(TASKS["copy"](vocab_size=60, seq_len=12), 1, 8), 400, 100) == 0
    few_rows = TASKS["copy"](vocab_size=6, seq_len=6)  # 125 of them
    for tiny in (few_rows, TASKS["induction"](vocab_size=7, seq_len=5, period_per="batch", min_period=2)):
        seen = seen_in_training(TrainBatches(tiny, 1, 9), 7, 200)
        drawn = {tuple(r) for step in range(1, 8) for r in TrainBatches(tiny, 1, 9)[step].inputs.tolist()}
        expected = sum(tuple(r) in drawn for r in fixed_batch(tiny, 1, "eval", 200).inputs.tolist())
        assert seen == expected and 0 < expected < 200


def write(folder: Path, content: bytes, name: str = "sample.txt") -> str:
    file = folder / name
    file.write_bytes(content)
    return str(file)


def text(path: str, seq_len: int = 4, eval_fraction: float = 0.25) -> Task:
    return TASKS["text"](path=path, seq_len=seq_len, eval_fraction=eval_fraction)


def test_text_takes_its_vocabulary_from_the_file_and_keeps_its_end_for_evaluation(tmp_path: Path) -> None:
    task = text(write(tmp_path, b"\xef\xbb\xbfabcabcabcabcab\r\nxyzxy"))
    assert task.vocab_size == 7 and task.symbols(range(7)) == ["↵", "a", "b", "c", "x", "y", "z"]
    trained = task.sample(stream_generator(1, "test", 0), 200).inputs
    held = task.held_out(stream_generator(1, "test", 0), 200).inputs
    assert set(trained.unique().tolist()) <= {0, 1, 2, 3} and set(held.unique().tolist()) <= {4, 5, 6}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"short", "a row needs 5"),
        (b"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "only one distinct character"),
        (b"\x89PNG\r\n\x1a\n" * 9, "not UTF-8 text"),
        (b"abc\0" * 20, "binary"),
        (b"", "0 characters"),
    ],
)
def test_text_refuses_files_that_cannot_be_learned_from(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        text(write(tmp_path, content))


def test_text_refuses_what_is_no_file(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "missing.txt"):
        with pytest.raises(UsageError, match="is not a file"):
            text(str(path))


def test_chance_of_the_lesson_is_ln_64() -> None:
    task = TASKS["repeat"](vocab_size=64, seq_len=12)
    assert task.chance_loss == pytest.approx(math.log(64)) and task.chance_accuracy == 1 / 64
