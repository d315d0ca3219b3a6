"""The tasks installed with the recipes: their rows by hand, their sources, and their baselines by another road."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import pytest
import torch
from torch import Tensor

from mhsa_cli.check.source.load import load_whole
from mhsa_cli.config.load import load_config
from mhsa_cli.config.own_task import OwnTask as OwnTaskConfig
from mhsa_cli.config.recipes import FOLDER, recipes
from mhsa_cli.core.tasks import IGNORE
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.tasks.own import OwnTask
from mhsa_cli.jobs.own_task import make_task

FILES = {
    "recall": "Recall",
    "modular": "Addition",
    "markov": "Markov",
    "sort": "Sort",
    "selective_copy": "SelectiveCopy",
    "segment": "Segment",
    "segment_copy": "SegmentCopy",
}
NOT = IGNORE


def shipped(file: str, **settings: object) -> OwnTask:
    name = f"tasks/{file}.py:{FILES[file]}"
    overrides = [f"task.{key}={value}" for key, value in settings.items()]
    task = make_task(load_config(None, [f"task.name={name}", *overrides]))
    assert isinstance(task, OwnTask)
    return task


def rows_of(task: OwnTask, n: int = 40) -> list[tuple[list[int], list[int]]]:
    batch = task.draw(n, stream_generator(3, "test", 0))
    return list(zip(batch.inputs.tolist(), batch.targets.tolist(), strict=True))


def test_each_file_of_the_folder_is_a_task_with_a_recipe_of_its_name() -> None:
    assert {path.stem for path in (FOLDER / "tasks").glob("*.py")} == set(FILES)
    for file, name in FILES.items():
        config = load_config(str(recipes()[file]))
        assert isinstance(config.task, OwnTaskConfig) and config.task.name == f"tasks/{file}.py:{name}"
        task = make_task(config)
        assert task.baselines and all(loss > 0 for loss in task.baselines.values())
        assert "\n" not in task.summary and len(task.summary) <= 110


@pytest.mark.parametrize("back", [False, True])
def test_recall_asks_for_the_value_of_a_known_key(back: bool) -> None:
    task = shipped("recall", vocab_size=10, pairs=3, seq_len=12, back=str(back).lower())
    logs, asked = 0.0, 0
    for inputs, targets in rows_of(task, 400):
        known: dict[int, int] = {}
        for t in range(0, 12, 2):
            key, value = inputs[t : t + 2]
            assert key < 5 <= value == known.get(key, value)
            assert targets[t : t + 2] == [known.get(key, NOT), key if back else NOT]
            logs += math.log(len(known)) if key in known else 0
            asked += (key in known) + back
            known[key] = value
        assert len(set(known.values())) == len(known)
    assert task.baselines["any value so far"] == pytest.approx(logs / asked, abs=0.05)
    assert task.symbols([0, 4, 5, 9]) == ["a", "e", "0", "4"]


@pytest.mark.parametrize("back", [False, True])
def test_the_source_of_recall_is_the_value_after_the_key(back: bool) -> None:
    task = shipped("recall", vocab_size=10, pairs=3, seq_len=8, back=str(back).lower())
    found = task.source(torch.tensor([[2, 7, 0, 5, 2, 7, 0, 5, 2]]))
    assert found is not None
    keys = [[4, 1], [6, 3], [8, 1], [8, 5]]
    values = [[1, 0], [3, 2], [5, 0], [5, 4], [7, 2], [7, 6]]
    assert found.nonzero()[:, 1:].tolist() == sorted(keys + values * back)


def test_addition_splits_the_pairs_once() -> None:
    task = shipped("modular", vocab_size=8, trained=0.6)
    parts = [draw(stream_generator(5, "test", 0), 2000) for draw in (task.sample, task.held_out)]
    pairs = [{(a, b) for a, b, _ in part.inputs.tolist()} for part in parts]
    assert not pairs[0] & pairs[1] and len(pairs[0]) == round(0.6 * 49) and len(pairs[0] | pairs[1]) == 49
    for part in parts:
        for (a, b, equals), targets in zip(part.inputs.tolist(), part.targets.tolist(), strict=True):
            assert equals == 7 and targets == [NOT, NOT, (a + b) % 7]
    unknown = sum((b, a) not in pairs[0] for a, b in pairs[1]) / len(pairs[1])
    assert task.baselines["memory and a+b = b+a"] == pytest.approx(unknown * math.log(7))
    assert task.symbols([6, 7]) == ["6", "="]


def test_markov_rows_are_chains_and_its_baselines_count() -> None:
    task = shipped("markov", vocab_size=4, seq_len=13)
    rows = rows_of(task)
    assert all(inputs[1:] == targets[:-1] for inputs, targets in rows)
    many = task.draw(4000, stream_generator(6, "test", 0))
    unigram, bigram = 0.0, 0.0
    for inputs, targets in zip(many.inputs.tolist(), many.targets.tolist(), strict=True):
        for t, answer in enumerate(targets):
            seen = Counter(inputs[: t + 1])
            follows = Counter(b for a, b in zip(inputs[:t], inputs[1 : t + 1], strict=True) if a == inputs[t])
            unigram -= math.log((seen[answer] + 1) / (t + 1 + 4)) / many.targets.numel()
            bigram -= math.log((follows[answer] + 1) / (follows.total() + 4)) / many.targets.numel()
    assert task.baselines == pytest.approx({"unigram": unigram, "bigram": bigram}, abs=0.01)
    assert bigram < unigram < task.chance_loss and 0.3 < task.goal_accuracy < 0.6


def test_sort_answers_in_order() -> None:
    task = shipped("sort", vocab_size=7, seq_len=10)
    for inputs, targets in rows_of(task):
        answer = sorted(inputs[:5])
        assert inputs[5:] == [6, *answer[:-1]] and targets == [NOT] * 5 + answer
    assert task.separator == 6 and task.symbols([6, 5]) == ["|", "5"]
    found = task.source(torch.tensor([[3, 1, 3, 0, 2, 6, 0, 1, 2, 3]]))
    assert found is not None
    assert found.nonzero()[:, 1:].tolist() == [[5, 3], [6, 1], [7, 4], [8, 0], [8, 2], [9, 0], [9, 2], [9, 9]]


def test_selective_copy_leaves_the_noise_out() -> None:
    task = shipped("selective_copy", vocab_size=9, seq_len=13, copied=3)
    noise, mark = 7, 8
    places = set()
    for inputs, targets in rows_of(task):
        data = [i for i in inputs[:10] if i != noise]
        assert len(data) == 3 and max(data) < noise and inputs[10:] == [mark] * 3
        assert targets == [NOT] * 10 + data
        places |= {place for place, i in enumerate(inputs[:10]) if i != noise}
    assert places == set(range(10)) and task.symbols([7, 8, 3]) == [".", "?", "3"]
    found = task.source(torch.tensor([[5, 7, 7, 2, 7, 5, 8, 8, 8]]))
    assert found is not None
    assert found.nonzero()[:, 1:].tolist() == [[6, 0], [6, 5], [7, 3], [8, 0], [8, 5]]


def test_segment_counts_separators() -> None:
    task = shipped("segment", vocab_size=6, seq_len=9, segments=4)
    for inputs, targets in rows_of(task):
        assert inputs.count(5) == 3
        assert targets == [inputs[: t + 1].count(5) for t in range(9)]
    loss = 0.0
    for t in range(9):
        for here in (False, True):  # of 3 separators in 9 places, t places come before: hypergeometric
            for before in range(4):
                rest = 3 - here - before
                if 0 <= rest <= 8 - t and before <= t:
                    ways = math.comb(t, before) * math.comb(8 - t, rest)
                    loss -= ways / math.comb(9, 3) * math.log(ways / math.comb(8, 3 - here)) / 9
    assert task.baselines["place and token"] == pytest.approx(loss, abs=0.01)


def test_segment_copy_stands_again_at_a_later_place() -> None:
    task = shipped("segment_copy", vocab_size=50, seq_len=19, length=4)
    pairs = set()
    for inputs, targets in rows_of(task, 900):
        asked = [t for t, target in enumerate(targets) if target != NOT]
        again = asked[0]
        assert asked == [again, again + 1, again + 2] and [targets[t] for t in asked] == inputs[again + 1 : again + 4]
        starts = [t for t in range(again - 3) if inputs[t : t + 4] == inputs[again : again + 4]]
        assert starts
        pairs.add((starts[0], again))
    assert pairs == {(i, j) for i in range(12) for j in range(i + 4, 16)} and set(task.gaps) == {
        j - i for i, j in pairs
    }


def test_the_source_of_segment_copy_is_what_follows_the_first_segment() -> None:
    task = shipped("segment_copy", vocab_size=9, seq_len=9, length=3)
    found = task.source(torch.tensor([[5, 1, 2, 3, 2, 6, 1, 2, 3], [5, 1, 2, 3, 4, 6, 1, 2, 8]]))
    assert found is not None
    assert found.nonzero().tolist() == [[0, 6, 2], [0, 6, 4], [0, 7, 3]]


def test_the_baselines_of_segment_copy_guess_among_symbols() -> None:
    task = shipped("segment_copy", vocab_size=11, seq_len=23, length=5)
    any_symbol, bigram, right, asked = 0.0, 0.0, 0.0, 0
    for inputs, targets in rows_of(task, 3000):
        for t, answer in enumerate(targets):
            if answer == NOT:
                continue
            asked += 1
            follows = [b for a, b in zip(inputs[:t], inputs[1 : t + 1], strict=True) if a == inputs[t]]
            any_symbol -= math.log(inputs[: t + 1].count(answer) / (t + 1))
            bigram -= math.log(follows.count(answer) / len(follows))
            right += follows.count(answer) / len(follows)
    assert task.goal_accuracy == pytest.approx(right / asked, abs=0.02)
    assert task.baselines == pytest.approx(
        {"any symbol so far": any_symbol / asked, "bigram": bigram / asked}, rel=0.05
    )


@pytest.mark.parametrize("file", ["recall", "sort", "selective_copy", "segment_copy"])
def test_a_source_marks_answers_alone_in_rows_of_any_length(file: str) -> None:
    task = shipped(file)
    batch = task.draw(60, stream_generator(4, "test", 0))
    keys = task.source(batch.inputs)
    assert keys is not None
    asked = batch.targets != IGNORE
    if file == "segment_copy":  # by chance a segment goes on
        keys = keys & asked.unsqueeze(2)
    assert torch.equal(keys.any(2), asked)  # every answer stands somewhere, and nothing is marked elsewhere
    assert not (keys & (batch.inputs.unsqueeze(1) != batch.targets.unsqueeze(2))).any()
    for length in (1, 2, 7, task.seq_len + 5):
        ids = torch.randint(task.vocab_size, (9, length), generator=stream_generator(2, "test", length))
        found = task.source(ids)
        assert isinstance(found, Tensor) and found.shape == (9, length, length) and not found.triu(1).any()


@pytest.mark.parametrize("file", ["sort", "selective_copy"])
def test_the_baseline_of_any_symbol_is_what_guessing_one_costs(file: str) -> None:
    task = shipped(file)
    batch = task.draw(3000, stream_generator(7, "test", 0))
    answers = [[t for t in row if t != IGNORE] for row in batch.targets.tolist()]
    loss = -sum(math.log(row.count(t) / len(row)) for row in answers for t in row) / sum(map(len, answers))
    assert task.baselines["any symbol of the row"] == pytest.approx(loss, rel=0.02)


@pytest.mark.parametrize(
    ("file", "settings"),
    [
        ("recall", {"vocab_size": 9}),
        ("recall", {"seq_len": 9}),
        ("modular", {"seq_len": 4}),
        ("modular", {"trained": 1}),
        ("sort", {"seq_len": 7}),
        ("selective_copy", {"copied": 9}),
        ("segment", {"segments": 1}),
        ("segment_copy", {"length": 25}),
    ],
)
def test_sizes_that_do_not_fit_are_refused(file: str, settings: dict[str, object]) -> None:
    with pytest.raises(Exception) as caught:  # noqa: PT011
        shipped(file, **settings)
    assert getattr(caught.value, "code", None) == "own-task"


def test_a_stranger_needs_torch_alone() -> None:
    for file, name in FILES.items():
        path = FOLDER / "tasks" / f"{file}.py"
        imported = {line.split()[1] for line in path.read_text().splitlines() if line.startswith(("import", "from"))}
        assert imported <= {"torch", "math"} and isinstance(load_whole(f"{path}:{name}"), type)
        assert isinstance(path, Path)
