"""Scores during training: the model's at that step, at known steps, the same after a stop, and without effect."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from itertools import pairwise

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.heads import probe
from mhsa_cli.core.heads.capture import finite_or_none, run_with_activations
from mhsa_cli.core.heads.families import Lift
from mhsa_cli.core.heads.probe import build_probe
from mhsa_cli.core.heads.scores import concat_heads, lifts, positionality, shape
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training import snapshots
from mhsa_cli.core.training.checkpoint import load_weights, weights_sha256
from mhsa_cli.core.training.lockstep import Group, build_model, records_of
from mhsa_cli.core.training.snapshots import late_minus_early, map_steps, small_maps, snapshot_steps
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import Record, SaveRecord
from tests.settings import later_wins

STEPS, SEED, ROWS = 48, 5, 8


@cache
def config(*overrides: str) -> Config:
    settings = ["task.name=copy", "task.vocab_size=17", "task.seq_len=10", "model.d_model=12", "model.n_heads=3"]
    training = [f"train.seed={SEED}", "train.epochs=2", f"train.steps_per_epoch={STEPS // 2}", "train.batch_size=6"]
    return load_config(None, later_wins(*settings, *training, "train.lr=0.02", "train.save_every=1", *overrides))


def run(of: Config, **settings: object) -> tuple[list[Record], Group]:
    group = Group([of], build_task(of.task), torch.device("cpu"), **settings)  # type: ignore[arg-type]
    return list(records_of(group)), group


def looks(records: list[Record]) -> list[SnapshotRecord]:
    return [record for record in records if isinstance(record, SnapshotRecord)]


def saved(records: list[Record]) -> dict[int, SaveRecord]:
    return {record.step: record for record in records if isinstance(record, SaveRecord)}


def model_at(of: Config, records: list[Record], step: int) -> TransformerLM:
    return load_weights(build_model(of, build_task(of.task)), saved(records)[step].files)


def same(found: list[SnapshotRecord], wanted: list[SnapshotRecord]) -> None:
    """Equal but for the last bits: how many models are scored together decides them."""
    assert [look.step for look in found] == [look.step for look in wanted]
    for a, b in zip(found, wanted, strict=True):
        assert a.pool == b.pool and len(a.heads) == len(b.heads)
        rows = zip(
            [r for la in a.maps for h in la for r in h], [r for la in b.maps for h in la for r in h], strict=True
        )
        assert all(abs(x - y) <= 1 for one, other in rows for x, y in zip(one, other, strict=True))
        for x, y in zip(a.heads, b.heads, strict=True):
            assert (x.layer, x.head) == (y.layer, y.head) and x.distance == y.distance
            assert dict(x.lifts) == pytest.approx(dict(y.lifts), abs=1e-6)
            ours, theirs = ((h.entropy, h.uniformity, h.confidence, h.positionality) for h in (x, y))
            assert ours == pytest.approx(theirs, abs=1e-6)
        assert a.in_context == pytest.approx(b.in_context, abs=1e-5)


@pytest.mark.parametrize("overrides", [(), ("model.n_layers=2", "model.residual=true", "model.norm=rmsnorm")])
def test_a_snapshot_is_the_model_at_that_step(overrides: tuple[str, ...]) -> None:
    of = config(*overrides)
    records, group = run(of)
    rows = build_probe(group.model(0), group.task, SEED, ROWS)
    assert rows is not None and len(looks(records)) > 5
    for look in looks(records):
        model = model_at(of, records, look.step)
        own = concat_heads(run_with_activations(model, rows.ids).weights)
        shuffled = concat_heads(run_with_activations(model, rows.shuffled).weights)
        log_p = model(rows.ids).log_softmax(-1)
        losses = -log_p.gather(-1, rows.batch.targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)[:, 5:]
        assert (rows.batch.targets >= 0).nonzero()[:, 1].unique().tolist() == [5, 6, 7, 8, 9]
        assert look.in_context == pytest.approx((losses[:, -1].mean() - losses[:, 0].mean()).item(), abs=1e-5)
        found, figures_now, bound = lifts(own, rows), shape(own, rows.visible), positionality(own, shuffled, rows)
        assert [(head.layer, head.head) for head in look.heads] == [
            (layer, head) for layer in range(of.model.n_layers) for head in range(3)
        ]
        for i, head in enumerate(look.heads):
            assert dict(head.lifts) == pytest.approx(
                {name: float(one.lift[i]) for name, one in found.items()}, abs=1e-6
            )
            assert found["offset"].distance is not None and head.distance == int(found["offset"].distance[i])
            figures = [head.entropy, head.uniformity, head.confidence, head.positionality]
            if look.step not in map_steps(STEPS):
                assert look.maps == () and figures == [None] * 4
                continue
            wanted = [finite_or_none(x[i]) for x in (*figures_now.values(), bound)]
            assert figures == pytest.approx(wanted, abs=1e-6)
            for q, row in enumerate(look.maps[head.layer][head.head]):
                assert len(row) == q + 1
                assert row == pytest.approx([100 * float(own[0, i, q, k]) for k in range(q + 1)], abs=0.5001)
    assert sum(not look.maps for look in looks(records)) == 4  # at 20, 28, 40 and 44
    first, last = looks(records)[0], looks(records)[-1]
    assert first.heads != last.heads, "training changed nothing: the test shows nothing"


def test_the_steps_are_doublings_and_even_ones() -> None:
    assert snapshot_steps(0) == {0}
    assert snapshot_steps(1) == {0, 1}
    assert snapshot_steps(5) == {0, 1, 2, 3, 4, 5}
    assert {0, 1, 2, 4, 8, 16, 32, 64, 100} <= map_steps(100)
    assert map_steps(120) == {0, 1, 2, 4, 8, 16, 32, 64, *range(0, 121, 15)}
    assert snapshot_steps(120) == map_steps(120) | set(range(0, 120, 4))
    many = snapshot_steps(100_000)
    assert max(many) == 100_000 and len(many & map_steps(100_000)) == len(map_steps(100_000)) <= 48 + 19
    steps = sorted(many)
    assert len(steps) <= 67 + 32 + 16 * 10 and all(b - a <= max(4, a / 16) for a, b in pairwise(steps))
    assert [look.step for look in looks(run(config())[0])] == sorted(snapshot_steps(STEPS))


@pytest.mark.parametrize("stop_at", [3, 24, 42])
def test_a_resumed_run_gives_the_records_of_an_unbroken_one(stop_at: int) -> None:
    of = config("train.save_every=10")  # so that the unbroken run scores other steps together than the stopped one
    whole, _ = run(of)
    seen: list[Record] = []

    def stopping() -> Callable[[], bool]:
        count = iter(range(1, STEPS + 1))
        return lambda: next(count) >= stop_at

    before, _ = run(of, stop=stopping())
    seen += looks(before)
    assert looks(before)[-1].step <= stop_at
    after, _ = run(of, resume=[saved(before)[stop_at].files])
    seen += looks(after)
    same(seen, looks(whole))


def test_a_run_of_a_stack_has_the_snapshots_of_the_run_alone() -> None:
    wanted = [config(f"train.seed={seed}") for seed in (5, 9)]
    group = Group(wanted, build_task(wanted[0].task), torch.device("cpu"))
    found: list[list[SnapshotRecord]] = [[], []]
    for index, record in group.records():
        if isinstance(record, SnapshotRecord):
            found[index].append(record)
    for own, alone in zip(found, wanted, strict=True):
        same(own, looks(run(alone)[0]))
    assert found[0][-1].heads != found[1][-1].heads


def test_watching_changes_no_weight() -> None:
    of = config("model.dropout=0.2")
    watched, group = run(of)
    alone, other = run(of, watch=False)
    assert looks(alone) == [] and looks(watched) != []
    assert weights_sha256(group.model(0)) == weights_sha256(other.model(0))
    assert saved(watched)[STEPS].files == saved(alone)[STEPS].files
    assert [r for r in watched if not isinstance(r, SnapshotRecord)] == alone


@pytest.mark.parametrize("limit", ["MAX_KEPT", "MAX_MADE"])
def test_rooms_for_few_models_give_the_same_records(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    together = looks(run(config())[0])
    monkeypatch.setattr(snapshots, limit, 1)  # every model is scored at once, or runs alone
    same(looks(run(config())[0]), together)


def test_all_snapshots_of_a_model_are_scored_together(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []

    def counted(weights: Tensor, rows: probe.Probe) -> dict[str, Lift]:
        sizes.append(weights.size(1))
        return lifts(weights, rows)

    monkeypatch.setattr(snapshots, "lifts", counted)
    monkeypatch.setattr(snapshots, "MAX_MADE", 1)
    wanted = [config(f"train.seed={seed}", "train.save_every=99") for seed in (5, 9)]
    assert len(list(Group(wanted, build_task(wanted[0].task), torch.device("cpu")).records())) > 99
    steps = [
        sum(first < step <= last for step in snapshot_steps(STEPS)) for first, last in [(-1, 0), (0, 24), (24, 48)]
    ]
    assert sizes == [3 * count for count in steps for _ in wanted]


def test_rows_too_long_to_measure_are_left_out_and_training_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "MAX_WEIGHTS", 10)
    records, group = run(config())
    assert looks(records) == [] and group.step == STEPS


def test_the_in_context_score_is_late_minus_early() -> None:
    no = -100
    rows = torch.tensor([[no, 1, 1, 1, 1, 1, 1, 1, 1], [no, no, no, 1, no, 1, no, 1, no], [no] * 8 + [1]])
    weights = late_minus_early(rows)
    early = [[1, 2], [3], []]  # a quarter of 8 and of 3 scored positions; one alone is neither early nor late
    late = [[7, 8], [7], []]
    wanted = torch.zeros(3, 9, dtype=torch.float64)
    for row in range(3):
        wanted[row, late[row]] += 1 / 3
        wanted[row, early[row]] -= 1 / 3
    assert torch.equal(weights, wanted)
    assert bool(late_minus_early(rows[2:]).isnan().all())


def test_long_maps_are_pooled_by_their_largest() -> None:
    weights = torch.zeros(2, 41, 41)  # an odd length: the last block is narrower
    weights[0, 37, 21], weights[1, 5, 0], weights[1, 40, 40] = 0.8, 0.126, 0.5
    maps, pool = small_maps(weights)
    assert pool == 2 and len(maps) == 2 and [len(row) for row in maps[0]] == list(range(1, 22))
    assert maps[0][18][10] == 80 and maps[1][2][0] == 13
    assert sum(map(sum, maps[0])) == 80 and sum(map(sum, maps[1])) == 13 + 50
    assert small_maps(torch.full((1, 3, 3), 1 / 3))[0] == [[[33], [33, 33], [33, 33, 33]]]
    assert small_maps(torch.full((1, 1, 1), math.nan))[0] == [[[0]]]
