"""The null distribution: enough untrained heads, dependent on shape and task alone."""

from __future__ import annotations

import pytest
import torch

from mhsa_cli.core.heads import probe, random_baseline
from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.heads.probe import build_probe
from mhsa_cli.core.heads.random_baseline import null_lifts, null_limits, percentile
from mhsa_cli.core.heads.scores import concat_heads, lifts
from mhsa_cli.core.heads.targets import SCORES
from mhsa_cli.core.model.transformer import draw_weights
from mhsa_cli.core.tasks.base import stream_generator
from tests.core.handmade import Attended
from tests.core.noise import small


def test_random_heads_are_at_least_two_hundred_of_the_shape_alone() -> None:
    task = Attended("self", vocab_size=17, seq_len=13)
    one, other, wider = small(0), small(1), small(0, d_model=24)
    found, again, more = null_lifts(one, task), null_lifts(other, task), null_lifts(wider, task)
    assert set(found) == set(SCORES)
    for name, values in found.items():
        assert len(values) == 201  # 67 models of three heads
        assert torch.equal(values, again[name]), "the null depends on the weights that are judged"
        assert len(values.unique()) > 190  # each model drew its own
        assert not torch.equal(values, more[name])
    assert null_limits(one, task) == {name: percentile(values) for name, values in found.items()}


def test_random_heads_are_untrained_models_read_one_by_one() -> None:
    """The other computation: each model drawn and run alone."""
    task, model, wanted = Attended("self", vocab_size=17, seq_len=13), small(0), []
    rows = build_probe(model, task, random_baseline.SEED, random_baseline.ROWS)
    assert rows is not None and len(rows.ids) == random_baseline.ROWS == 16
    for index in range(67):
        draw_weights(model, stream_generator(random_baseline.SEED, "null", index))
        wanted.append(lifts(concat_heads(run_with_activations(model, rows.ids).weights), rows))
    for name, values in null_lifts(small(1), task).items():
        alone = torch.cat([one[name].lift for one in wanted])
        assert float((values - alone).abs().max()) < 1e-6


def test_of_long_rows_random_heads_see_fewer(monkeypatch: pytest.MonkeyPatch) -> None:
    model, task = small(0), Attended("self", vocab_size=17, seq_len=13)
    full = null_lifts(model, task)
    monkeypatch.setattr(random_baseline, "MAX_ALL", 200 * 13 * 13 * 5)
    found = null_lifts(model, task)
    monkeypatch.setattr(random_baseline, "MAX_ALL", 2**24)
    monkeypatch.setattr(random_baseline, "ROWS", 5)
    assert all(torch.equal(found[name], wanted) for name, wanted in null_lifts(model, task).items())
    assert percentile(full["duplicate"]) < percentile(found["duplicate"])  # a mean over fewer rows scatters more
    monkeypatch.setattr(probe, "MAX_WEIGHTS", 0)
    assert null_lifts(model, task) == {}


def test_the_limit_is_the_99th_percentile() -> None:
    assert percentile(torch.arange(101.0)) == pytest.approx(99.0)
    assert percentile(torch.tensor([0.0] * 100 + [7.0])) == pytest.approx(0.0)  # 1 in 101 lies above
    assert percentile(torch.tensor([4.0])) == 4.0
