"""Shapes of heads and their lifts at every distance between repeats: plain loops, small cases by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.heads import capture
from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.heads.probe import Probe, build_probe, probe_of
from mhsa_cli.core.heads.scores import LiftSums, concat_heads, lifts, positionality, shape
from mhsa_cli.core.model.attention import causal_window, uniform_weights
from mhsa_cli.core.tasks import Batch
from tests.core.handmade import MODELS, Attended, Period
from tests.core.noise import small
from tests.core.reference import draw


@pytest.mark.parametrize("settings", [{"n_layers": 2}, {"window": 4}, {"causal": False}, {"attention": "linear"}])
def test_figures_in_blocks_of_queries_are_those_of_whole_maps(
    settings: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    model, found = small(**settings).double(), []  # 13 queries, in blocks of 3 and of 5
    rows = build_probe(model, Attended("self", vocab_size=17, seq_len=13), seed=2, rows=7)
    assert rows is not None
    for queries in (13, 5, 3):
        monkeypatch.setattr(capture, "ROW_CELLS", 13 * queries)
        own, shuffled = (concat_heads(capture.head_weights(model, ids)) for ids in (rows.ids, rows.shuffled))
        figures = {name: lift.lift for name, lift in lifts(own, rows).items()} | shape(own, rows.visible)
        found.append({**figures, "maps": own, "positionality": positionality(own, shuffled, rows)})
    whole, *in_blocks = found
    assert set(whole) > {"offset", "modulo", "token", "induction", "entropy"}
    for figures in in_blocks:
        for name, values in whole.items():
            assert torch.allclose(figures[name], values, rtol=1e-12, atol=1e-14, equal_nan=True), name


def test_sums_of_heads_are_added_in_any_order() -> None:
    ids, visible = torch.randint(5, (3, 9), generator=torch.Generator().manual_seed(1)), causal_window(9, 9)
    rows, weights = shuffled_rows(ids, ids), uniform_weights(visible, torch.float64) * draw(3, 4, 9, 9).exp()
    sums = LiftSums(rows, 4)
    for heads, first, end in ((slice(1, 4), 5, 9), (slice(0, 1), 0, 9), (slice(1, 4), 0, 2), (slice(1, 4), 2, 5)):
        sums.add(weights[:, heads, first:end, :end], heads, first)
    for name, lift in lifts(weights, rows).items():
        assert torch.allclose(sums.lifts()[name].lift, lift.lift, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("window", [None, 4])
def test_shapes_are_those_of_plain_loops(window: int | None) -> None:
    visible = causal_window(7, 7, window)
    weights = draw(3, 2, 7, 7).mul(2).masked_fill(~visible, -math.inf).softmax(-1)
    found = shape(weights, visible)
    for head in range(2):
        entropy, alike, sure = [], [], []
        for q in range(1, 7):
            sees = [k for k in range(q + 1) if window is None or q - k < window]
            for b in range(3):
                row = [float(weights[b, head, q, k]) for k in sees]
                entropy.append(-sum(p * math.log(p) for p in row) / math.log(len(sees)))
                alike.append(1 - sum(abs(p - 1 / len(sees)) for p in row) / 2)
                sure.append(max(row))
        wanted = [sum(values) / len(values) for values in (entropy, alike, sure)]
        assert [float(x[head]) for x in found.values()] == pytest.approx(wanted, abs=1e-6)


def test_shapes_of_an_even_and_a_sharp_head() -> None:
    visible = causal_window(9, 9)
    even, sharp = uniform_weights(visible, torch.float32), torch.eye(9)
    found = shape(torch.stack([even, sharp]).expand(5, 2, 9, 9), visible)
    assert found["entropy"].tolist() == pytest.approx([1.0, 0.0], abs=1e-6)
    assert found["uniformity"][0] == pytest.approx(1.0, abs=1e-6)
    assert found["uniformity"][1] == pytest.approx(sum(1 / (q + 1) for q in range(1, 9)) / 8, abs=1e-6)
    assert found["confidence"].tolist() == pytest.approx([sum(1 / (q + 1) for q in range(1, 9)) / 8, 1.0], abs=1e-6)


def shuffled_rows(ids: Tensor, shuffled: Tensor, window: int | None = None) -> Probe:
    T = ids.size(1)
    return probe_of(Attended("self"), Batch(ids, ids), shuffled, causal_window(T, T, window), "by hand")


@pytest.mark.parametrize("window", [None, 4])
def test_positionality_is_that_of_plain_loops(window: int | None) -> None:
    """Of three rows the shuffle leaves one as it is: that one shows nothing."""
    ids, visible = torch.tensor([[1, 2, 3, 4, 5, 6, 7]] * 3), causal_window(7, 7, window)
    shuffled = torch.stack([ids[0].flip(0), ids[0], ids[0].roll(1)])
    logits = draw(2, 3, 2, 7, 7).mul(2) + 3 * draw(1, 1, 2, 7, 7)  # a part that both maps share
    weights, other = logits.masked_fill(~visible, -math.inf).softmax(-1)
    found = positionality(weights, other, shuffled_rows(ids, shuffled, window))
    for head in range(2):
        products, squares = 0.0, 0.0
        for b in (0, 2):
            for q in range(1, 7):
                for k in range(q + 1):
                    if visible[q, k]:
                        each = [float(w[b, head, q, k]) - 1 / int(visible[q].sum()) for w in (weights, other)]
                        products, squares = products + 2 * each[0] * each[1], squares + each[0] ** 2 + each[1] ** 2
        assert float(found[head]) == pytest.approx(max(products / squares, 0.0), abs=1e-6)
    assert float(found.min()) > 0.1 and float(found.max()) < 0.95


@pytest.mark.parametrize(
    ("kind", "low", "high"),
    [
        ("previous", 1.0, 1.0),
        ("first", 1.0, 1.0),
        ("offset", 1.0, 1.0),
        ("duplicate", 0.0, 0.25),
        ("induction", 0.0, 0.25),
    ],
)
def test_positional_and_content_based_heads_are_told_apart(kind: str, low: float, high: float) -> None:
    """A content head also where most of its queries have no match: on rows that count up it is uniform there."""
    for task in (Attended(kind), Period(6)):
        model = MODELS[kind]()
        probe = build_probe(model, task, seed=3)
        assert probe is not None and not torch.equal(probe.ids, probe.shuffled)
        assert torch.equal(probe.ids.sort(1).values, probe.shuffled.sort(1).values)
        maps = (concat_heads(run_with_activations(model, rows).weights)[:, -1:] for rows in (probe.ids, probe.shuffled))
        assert low - 1e-6 <= float(positionality(*maps, probe)) <= high + 1e-6


def test_maps_without_a_pattern_or_another_row_have_no_positionality() -> None:
    ids = torch.tensor([[1, 2, 3, 4, 5]])
    visible = causal_window(5, 5)
    even, sharp = uniform_weights(visible, torch.float64), torch.eye(5, dtype=torch.float64)
    nearly = 0.95 * even + 0.05 * sharp  # 0.036 from uniform, in total variation
    heads = torch.stack([even, nearly, 0.9 * even + 0.1 * sharp, sharp]).unsqueeze(0)
    found = positionality(heads, heads, shuffled_rows(ids, ids.flip(1))).tolist()
    assert found == [pytest.approx(math.nan, nan_ok=True)] * 2 + [pytest.approx(1.0)] * 2
    assert positionality(heads, heads, shuffled_rows(ids, ids)).isnan().all()
    opposed = torch.stack([torch.eye(5)[0].expand(5, 5), sharp]).double().unsqueeze(0)
    assert positionality(opposed, opposed.flip(1), shuffled_rows(ids, ids.flip(1))).tolist() == [0.0, 0.0]


def test_scores_do_not_depend_on_threads() -> None:
    model, found = small(max_seq_len=13), []  # 160 rows: enough numbers that torch shares the work out
    probe = build_probe(model, Attended("self", vocab_size=17, seq_len=13), seed=2, rows=160)
    assert probe is not None
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            weights = concat_heads(run_with_activations(model, probe.ids).weights)
            figures = [one.lift for one in lifts(weights, probe).values()]
            looks = shape(weights, probe.visible).values()
            found.append(torch.cat([*figures, *looks, positionality(weights, weights.flip(1), probe)]))
    finally:
        torch.set_num_threads(1)
    assert float((found[0] - found[1]).abs().max()) < 1e-6
