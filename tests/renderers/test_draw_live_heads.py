"""Attention maps beside or below the live loss curve: what fits where, and what is said of the rest."""

from __future__ import annotations

import io
import itertools
import math
import re
from dataclasses import replace

import pytest

from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.timeline import HeadSnapshot, SnapshotRecord
from mhsa_cli.records.training import EvalRecord, StepRecord
from mhsa_cli.renderers.kit.console import make_console
from mhsa_cli.renderers.pictures.curve import Level
from mhsa_cli.renderers.pictures.fitted_maps import Fitter
from mhsa_cli.renderers.pictures.live import LiveTraining
from mhsa_cli.text import Head
from tests.renderers.drawn import SURFACES, golden, maps, on


def view(shown: HeadMaps | None, kind: str = "truecolor", lifts: dict[Head, float] | None = None) -> LiveTraining:
    """A view in the middle of a run, with the lifts of the last snapshot."""
    found = LiveTraining(
        make_console(file=io.StringIO()),
        SURFACES[kind],
        total_steps=360,
        levels=[Level(math.log(32), "chance 3.47")],
        maps=lambda: shown,
        clock=lambda: 1.0,
    )
    for step in range(1, 241):
        found.add(StepRecord(step, 3.4 / (1 + (step / 60) ** 3), 0.25, 5e-3))
    found.add(EvalRecord(120, 0.4, 0.9))
    found.add(SnapshotRecord(240, [HeadSnapshot(*head, {"self": lift}, None) for head, lift in (lifts or {}).items()]))
    return found


@pytest.mark.parametrize("kind", ["truecolor", "none", "blocks", "ascii", "ascii-colour"])
@pytest.mark.parametrize(("length", "heads", "layers"), [(12, 4, 1), (24, 4, 2), (32, 8, 6)])
def test_every_size_is_kept_and_no_head_is_drawn_twice(kind: str, length: int, heads: int, layers: int) -> None:
    live = view(maps(length, heads, layers), kind)
    for width, height in itertools.product([20, 37, 60, 81, 120, 200], [1, 9, 10, 14, 20, 33, 60]):
        picture = live.picture(width, height)
        assert len(picture) <= height and picture.columns <= max(20, width) - 4
        names = re.findall(r"L\d\.H\d", picture.plain)
        assert len(names) == len(set(names)) and "step 240/360" in picture[-1].plain
        said = re.search(r"(\d+) of (\d+) heads", picture.plain)
        assert said is None or (int(said[1]), int(said[2])) == (len(names), heads * layers)
        assert said is not None or len(names) in (0, heads * layers) or width < 60


@pytest.mark.parametrize(("width", "height", "kind"), [(60, 20, "truecolor"), (120, 40, "none")])
def test_the_picture_of_two_layers(width: int, height: int, kind: str) -> None:
    picture = view(maps(24, 4, 2), kind).picture(width, height)
    assert picture.plain.count(".H") == 8
    golden(f"live-heads-{width}", picture.plain)


def test_maps_stand_beside_the_curve_where_that_costs_no_detail() -> None:
    wide, narrow = (view(maps(12, 4)).picture(width, 40).plain.split("\n") for width in (120, 80))
    assert re.match(r"loss \(nats\) +weight 0", wide[0]) and wide[1].strip().endswith("L0.H1")
    assert "L0.H0" not in "".join(narrow[:9])


def test_where_not_all_heads_fit_those_with_the_highest_lift_are_shown() -> None:
    lifts = {Head(layer, head): 0.01 * head for layer in range(6) for head in range(8)}
    best = {Head(0, 1): 0.9, Head(2, 7): 0.8, Head(5, 5): 0.7}
    text = view(maps(32, 8, 6), lifts=lifts | best).picture(60, 20).plain
    names = re.findall(r"L\d\.H\d", text)
    assert set(map(str, best)) <= set(names) and names == sorted(names) and len(names) < 48
    assert f"top {len(names)} of 48 heads by lift" in text


def test_heads_that_fit_are_counted_as_one_by_one() -> None:
    """Two roads to the largest number of heads that fit: by bisection, and one after another."""
    fitter = Fitter(maps(32, 8, 6), on(100))
    for columns, rows in itertools.product((4, 19, 60, 99), (3, 9, 20, 38)):
        found = fitter.most(fitter.heads, columns, rows)
        fitting = [n for n in range(1, 49) if fitter.fit(fitter.heads[:n], columns, rows)]
        assert (0 if found is None else len(found.heads)) == max(fitting, default=0)


def test_without_maps_there_is_the_curve() -> None:
    assert view(None).picture(80, 24).plain.count(".H") == 0
    assert "loss (nats)" in view(None).picture(80, 24).plain


def test_a_picture_that_takes_long_is_drawn_less_often() -> None:
    ticks = iter(range(0, 10_000, 2))
    live = view(maps(12, 4))
    live.clock = lambda: float(next(ticks))
    live.redraw()
    assert live.pause == 24.0 and LiveTraining.pause == 0.2


def test_maps_that_see_the_future_keep_their_names_above() -> None:
    shown = maps(8, 4, 2)
    ahead = replace(shown, weights=[[[[0.125] * 8] * 8] * 4] * 2)
    assert all(fit is None or fit.titles for fit in (Fitter(ahead, on(80)).fit([Head(0, 0)], 80, n) for n in (4, 5)))
    assert (fit := Fitter(shown, on(80)).fit([Head(0, 0)], 80, 4)) is not None and not fit.titles
