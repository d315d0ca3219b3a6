"""Evaluation of a trained model: two roads to its figures, and rows that are longer than those of the training."""

from __future__ import annotations

import pytest
import torch

from mhsa_cli.config.load import parse
from mhsa_cli.config.schema import Config, TrainConfig
from mhsa_cli.config.tasks import DATA_FILES
from mhsa_cli.core.evaluation import evaluate, with_rows_of
from mhsa_cli.core.statistics import wilson
from mhsa_cli.core.tasks import IGNORE, TASKS, Batch, Task, TrainBatches, build_task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.overlap import rows_seen
from mhsa_cli.core.training.stack import in_chunks, stack_models

TINY = """\
task: {name: induction, vocab_size: 9, seq_len: 14, min_period: 2, max_period: 6}
model: {d_model: 12, n_heads: 3, n_layers: 2, residual: true, positions: rope}
"""


def made(*changes: str) -> tuple[Config, Task]:
    config = parse(TINY.encode(), "c.yaml", changes)
    return config, build_task(config.task)


def test_figures_are_those_of_a_loop_over_rows_and_places() -> None:
    config, task = made()
    model, batch = build_model(config, task).eval(), fixed_batch(task, 3, "eval", 21)
    found = evaluate(model, task, batch, {}, None, TrainConfig())
    nats: dict[int, list[float]] = {}
    right: dict[int, list[bool]] = {}
    exact = 0
    for ids, targets in zip(*batch, strict=True):
        with torch.no_grad():
            logits = model(ids.unsqueeze(0))[0]
        scored = [t for t in range(14) if targets[t] != IGNORE]
        hits = [int(logits[t].argmax()) == int(targets[t]) for t in scored]
        for t, hit in zip(scored, hits, strict=True):
            nats.setdefault(t, []).append(-float(logits[t].log_softmax(0)[targets[t]]))
            right.setdefault(t, []).append(hit)
        exact += all(hits)
    every = [one for place in nats.values() for one in place]
    hits = [one for place in right.values() for one in place]
    assert found.loss == pytest.approx(sum(every) / len(every), rel=1e-5)
    assert found.accuracy == sum(hits) / len(hits)
    assert (found.exact, found.scored_rows) == (exact, 21)
    assert (found.exact_low, found.exact_high) == wilson(exact, 21)
    assert [place.at for place in found.positions] == sorted(nats) and len(nats) > 9
    for place in found.positions:
        assert place.count == len(nats[place.at]) and place.accuracy == sum(right[place.at]) / place.count
        assert place.loss == pytest.approx(sum(nats[place.at]) / place.count, rel=1e-5)


def test_places_from_the_first_scored_token_on_by_hand() -> None:
    config, task = made()
    model = build_model(config, task).eval()
    model.lm_head.weight.data.zero_()
    model.lm_head.bias.data.copy_(torch.tensor([2.0, 1, 0, 0, 0, 0, 0, 0, 0]))  # always says 0
    no = IGNORE
    targets = torch.tensor([[no, 0, 0, no, 1], [no, no, 0, 1, 1], [no] * 5, [no, 0, no, 0, no]])
    batch = Batch(torch.ones(4, 5, dtype=torch.int64), targets)
    task.seq_len = 5
    found = evaluate(model, task, batch, {}, None, TrainConfig())
    assert [(p.at, p.count, p.accuracy) for p in found.positions] == [(1, 2, 1), (2, 2, 1), (3, 2, 0.5), (4, 2, 0)]
    assert [(p.at, p.count, p.accuracy) for p in found.answers] == [(0, 3, 1), (1, 2, 0.5), (2, 2, 0.5), (3, 1, 0)]
    assert (found.accuracy, found.exact, found.scored_rows) == (5 / 8, 1, 3)
    # Right and scored by row: 2 of 3, 1 of 3, 0 of 0, 2 of 2. Cochran's ratio: residuals 1/8, -7/8, 0, 3/4.
    residuals = (1 / 8) ** 2 + (7 / 8) ** 2 + (3 / 4) ** 2
    assert found.accuracy_se == pytest.approx((residuals * 4 / 3) ** 0.5 / 8)


@pytest.mark.parametrize("name", [name for name in TASKS if name not in DATA_FILES])
def test_figures_do_not_depend_on_how_rows_are_chunked(name: str) -> None:
    config, _ = made()
    task = TASKS[name].small()
    model, batch = build_model(config, task).eval(), fixed_batch(task, 5, "eval", 23)
    one, several = (evaluate(model, task, batch, {}, None, TrainConfig(), chunk) for chunk in (23, 4))
    assert (one.exact, one.accuracy, one.accuracy_se) == (several.exact, several.accuracy, several.accuracy_se)
    assert one.loss == pytest.approx(several.loss, rel=1e-6)
    for kind in ("positions", "answers"):
        for a, b in zip(getattr(one, kind), getattr(several, kind), strict=True):
            assert (a.at, a.count, a.accuracy) == (b.at, b.count, b.accuracy) and a.loss == pytest.approx(b.loss)
    counts = sum(place.count for place in one.positions)
    assert counts == sum(place.count for place in one.answers) == int((batch.targets != IGNORE).sum())
    assert sum(place.count * place.loss for place in one.positions) / counts == pytest.approx(one.loss, rel=1e-6)


@pytest.mark.parametrize("positions", ["rope", "sinusoidal", "alibi", "none"])
def test_longer_rows_begin_as_shorter_ones_do(positions: str) -> None:
    config, task = made(f"positions={positions}")
    model = build_model(config, task).eval()
    longer = with_rows_of(model, config, task, 37)
    ids = torch.randint(9, (5, 37), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        short, long = model(ids[:, :14]), longer(ids)
    torch.testing.assert_close(long[:, :14], short)
    assert longer.max_seq_len == 37 and model.max_seq_len == 14
    stacked, _ = next(in_chunks(stack_models([longer]), ids[None], ids[None], "float32", ids.device, 9))
    torch.testing.assert_close(stacked[0], long)


def test_rows_of_training_are_counted_set_by_set() -> None:
    task = TASKS["copy"](vocab_size=7, seq_len=6)
    seed, steps, size = 11, 35, 2  # more than one block of batches
    blocks = [_drawn(task, seed, index, size)[: size * (steps - 32 * index)] for index in range(2)]
    trained = {tuple(row) for block in blocks for row in block}
    sets = [fixed_batch(task, seed, "eval", n).inputs for n in (40, 9)]
    wanted = [sum(tuple(row) in trained for row in ids.tolist()) for ids in sets]
    longer = torch.zeros(6, 8, dtype=torch.int64)
    batches = TrainBatches(task, seed, size)
    assert rows_seen(batches, steps, [*sets, longer]) == [*wanted, 0] and 0 < wanted[0] < 40
    assert rows_seen(batches, 0, sets) == [0, 0]


def _drawn(task: Task, seed: int, index: int, size: int) -> list[list[int]]:
    rows: list[list[int]] = task.sample(stream_generator(seed, "train", index), 32 * size).inputs.tolist()
    return rows
