"""Figures: what is drawn equals the records, on paper of an exact width, as the same bytes, with names as they are."""

from __future__ import annotations

import itertools
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from xml.etree import ElementTree

import matplotlib
import numpy
import pytest
from matplotlib.axes import Axes
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import Ablation, HeadReport, HeadScore, LayerPart, LayerRole, Matching, TargetScore, Verdict
from mhsa_cli.records.inspection import DirectLogits, LensStep, LogitLens
from mhsa_cli.records.labels import Label, Role
from mhsa_cli.records.timeline import HeadHistory, Interval, LossDrop
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.figures.ablations import ablation_bars
from mhsa_cli.renderers.figures.compare import compare_figure
from mhsa_cli.renderers.figures.curve import bands_figure, loss_figure
from mhsa_cli.renderers.figures.lifts import timeline_figure
from mhsa_cli.renderers.figures.maps import heads_figure
from mhsa_cli.renderers.figures.scores import direct_matrix, lens_plot, lift_matrix
from mhsa_cli.renderers.figures.sheet import INKS, VIRIDIS, compose, to_bytes
from mhsa_cli.renderers.figures.sheet_options import Page, Theme, inches
from mhsa_cli.renderers.figures.sweep import pairs_figure, sweep_figure
from mhsa_cli.renderers.kit.palette import LINE_COLORS, viridis
from mhsa_cli.renderers.pictures.curve import Level
from mhsa_cli.text import Head
from tests.renderers.drawn import evals, falling, maps
from tests.renderers.swept import CURVES, REPORT

NARROWEST, NARROW, WIDE = Page(1.5), Page(3.3), Page(7.0, Theme.DARK)
LEVELS = [Level(4.16, "chance 4.16"), Level(3.1, "unigram 3.10")]
HOSTILE = r"$\frac{1}{0}$ <b>&amp; %_^{x} \textbf" + "\x1b[31m \udcff"


def lines(axes: Axes) -> list[list[tuple[float, float]]]:
    """The points of every line of axes that has more than two."""
    found = [list(zip(map(float, line.get_xdata()), map(float, line.get_ydata()), strict=True)) for line in axes.lines]  # type: ignore[arg-type]
    return [points for points in found if len(points) > 2]


def texts(figure: Figure) -> list[str]:
    """Every text of a figure, with the names of its axes, its ticks and its legends."""
    found = [text.get_text() for text in figure.texts]
    for axes in figure.axes:
        found += [axes.get_xlabel(), axes.get_ylabel(), *(text.get_text() for text in axes.texts)]
        found += [text.get_text() for axis in (axes.xaxis, axes.yaxis) for text in axis.get_ticklabels()]
        if (legend := axes.get_legend()) is not None:
            found += [text.get_text() for text in legend.get_texts()]
    return found


def reported(heads: int, layers: int = 1, **more: object) -> HeadReport:
    """A report in which head i of a layer costs i + 1 nats when uniform, with an error of a tenth of it."""
    scores = [
        HeadScore(
            layer,
            head,
            {"previous": TargetScore(0.5, 0.1, 0.1 * head), "self": TargetScore(0.5, 0.1, -0.2)},
            uniform_delta_nats=head + 1.0,
            uniform_delta_se=(head + 1) / 10,
            zero_delta_nats=-0.5,
            zero_delta_se=0.1,
            label=Label("offset", Role.SHOWN, 6),
        )
        for layer in range(layers)
        for head in range(heads)
    ]
    return HeadReport(Verdict(True, 1.0, 0.1, 0.5, [], "rows"), scores)


HISTORIES = [
    HeadHistory(
        layer, head, "previous", HOSTILE if head else "previous", [0, 40, 90, 360], [0.0, None, 0.4 + head / 10, 0.8],
        final=0.8, onset=Interval(40, 90),
    )
    for layer in range(2)
    for head in range(3)
]  # fmt: skip
DROP = LossDrop(75, 1.0, Interval(70, 80))


def timeline(page: Page) -> Figure:
    train = falling()
    context = [(0, 0.0), (90, -0.4), (360, -0.9)]
    return timeline_figure([train, evals(train)], HISTORIES, page, levels=LEVELS, drop=DROP, in_context=context)


PAIRED = Matching([(Head(0, 1), Head(0, 0), 0.25), (Head(0, 0), Head(0, 1), 0.5)], (), (), 0.375, "rows", null_cost=0.2)


FIGURES: dict[str, Callable[[Page], Figure]] = {
    "curve": lambda page: loss_figure([falling(), evals(falling())], page, levels=LEVELS),
    "timeline": timeline,
    "maps": lambda page: heads_figure(replace(maps(heads=12, layers=2), report=reported(12, 2)), page),
    "one": lambda page: heads_figure(maps(heads=1), page),
    "long": lambda page: heads_figure(maps(length=64, nan_at=True), page),
    "bands": lambda page: bands_figure(dict(enumerate(CURVES)), page),
    "many": lambda page: bands_figure(dict(enumerate([*CURVES, *CURVES])), page),
    "sweep": lambda page: sweep_figure(REPORT, dict(enumerate(CURVES)), page),
    "pairs": lambda page: pairs_figure(REPORT, page),
    "compare": lambda page: compare_figure([falling()], PAIRED, page),
    "scores": lambda page: compose(page, {"lifts": lift_matrix(reported(5).heads)}),
}


# -- every figure ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "page"),
    [*((name, page) for name in FIGURES for page in (NARROW, WIDE)), ("compare", NARROWEST), ("curve", NARROWEST)],
)
def test_paper_is_as_wide_as_asked_and_holds_all_that_is_written(name: str, page: Page) -> None:
    figure = FIGURES[name](page)
    pdf = to_bytes(figure, "pdf", name)
    box = re.search(rb"/MediaBox \[ ?0 0 ([\d.]+) ([\d.]+) ?\]", pdf)
    assert box and float(box[1]) == pytest.approx(72 * page.width, abs=1e-3)
    svg = ElementTree.fromstring(to_bytes(figure, "svg", name))
    assert svg.attrib["width"] == f"{72 * page.width:g}pt"
    assert float(svg.attrib["height"].removesuffix("pt")) == pytest.approx(float(box[2]), abs=1e-3)
    with matplotlib.rc_context():
        tight = figure.get_tightbbox()
    assert tight.x0 >= -0.01 and tight.x1 <= page.width + 0.01, tight
    assert tight.y0 >= -0.01 and tight.y1 <= figure.get_figheight() + 0.01, tight
    assert to_hex(figure.get_facecolor()) == INKS[page.theme].paper


@pytest.mark.parametrize("name", FIGURES)
def test_texts_are_large_enough_stay_text_and_do_not_lie_on_each_other(name: str) -> None:
    figure = FIGURES[name](NARROW)
    pdf = to_bytes(figure, "pdf", name)
    assert b"/FontFile2" in pdf and b"/Type3" not in pdf  # embedded TrueType: a program can edit it
    shown = [text for text in figure.findobj(matplotlib.text.Text) if text.get_text() and text.get_visible()]
    assert min(text.get_fontsize() for text in shown) >= 5.5
    written = b"".join(to_bytes(figure, "svg", name).split())
    assert all("".join(part.split()).encode() in written for text in figure.texts for part in [text.get_text()] if part)
    boxes = [text.get_window_extent() for text in figure.texts if text.get_text()]
    assert not any(one.overlaps(other) for at, one in enumerate(boxes) for other in boxes[:at])


def test_the_same_figure_is_the_same_bytes_in_any_process() -> None:
    code = (
        "import hashlib; from tests.renderers.test_figures import *\n"
        "print([hashlib.sha256(to_bytes(FIGURES[n](NARROW), e, n)).hexdigest() for n in ('curve', 'maps', 'sweep')"
        " for e in ('pdf', 'svg', 'png')])"
    )
    found = [
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert found[0] == found[1] and found[0]


def test_the_users_settings_of_matplotlib_are_neither_used_nor_changed() -> None:
    plain = to_bytes(FIGURES["curve"](NARROW), "svg", "")
    with matplotlib.rc_context({"font.size": 31, "axes.grid": True, "text.parse_math": True}):
        before = dict(matplotlib.rcParams)
        assert to_bytes(FIGURES["curve"](NARROW), "svg", "") == plain
        assert dict(matplotlib.rcParams) == before


def test_any_name_is_drawn_as_it_is() -> None:
    series = [replace(falling(name=HOSTILE), run=HOSTILE), replace(falling(name="b"), run="b")]
    figures = [
        loss_figure(series, WIDE, levels=[Level(4.0, HOSTILE)]),
        timeline(WIDE),
        bands_figure({0: (HOSTILE, *CURVES[0][1:])}, WIDE),
        heads_figure(replace(maps(length=4), tokens=[HOSTILE, "$x$", "\n", "</svg>"]), WIDE),
    ]
    for figure in figures:
        root = ElementTree.fromstring(to_bytes(figure, "svg", HOSTILE))
        drawn = " ".join(text for element in root.iter() for text in [element.text or ""])
        assert r"$\f" in drawn and "\x1b" not in drawn
        for ending in ("pdf", "png"):
            assert to_bytes(figure, ending, HOSTILE)


# -- what is drawn -----------------------------------------------------------------------------------------------------


def test_a_curve_has_the_points_of_its_series_and_gaps_where_there_is_no_number() -> None:
    train = falling(60)
    broken = replace(train, values=[math.nan if step == 9 else value for step, value in train.points])
    figure = loss_figure([broken, evals(train, 20)], NARROW, levels=LEVELS)
    [axes] = figure.axes
    first, second = lines(axes)[:2]
    assert [step for step, value in first if math.isnan(value)] == [9]
    assert [point for point in first if point[0] != 9] == [point for point in train.points if point[0] != 9]
    assert second == evals(train, 20).points
    levels = [line.get_ydata()[0] for line in axes.lines if list(line.get_xdata()) == [0, 1]]  # type: ignore[index]
    assert levels == [4.16, 3.1]
    [marks] = [line for line in axes.lines if line.get_marker() == "x"]
    assert list(marks.get_xdata()) == [9]  # type: ignore[arg-type]
    assert {"train", "eval", "chance 4.16", "unigram 3.10", "not finite", "loss (nats)", "step"} <= {*texts(figure)}


def test_a_value_without_neighbours_is_a_dot_and_a_step_is_whole() -> None:
    single = loss_figure([Series("train", [1], [3.0]), Series("b", [], [])], NARROW)
    (axes,) = single.figure.axes
    assert [(line.get_marker(), line.get_markevery()) for line in axes.lines] == [("o", [0])]
    assert [text.get_text() for text in axes.get_xticklabels()] == ["0", "1"]
    gaps = Series("train", [0, 1, 2, 3, 4, 5], [1.0, 2.0, None, 4.0, None, 6.0])
    assert loss_figure([gaps], NARROW).figure.axes[0].lines[0].get_markevery() == [3, 5]


def test_several_runs_have_a_colour_each_on_a_log_scale() -> None:
    runs = [replace(falling(50 + at, name=f"r{at}"), run=f"r{at}") for at in range(7)]
    runs += [replace(evals(runs[2], 10), name="r2 eval", run="r2")]
    [axes] = loss_figure(runs, NARROW, log=True).axes
    assert axes.get_yscale() == "log" and lines(axes)[3] == runs[3].points
    assert [line.get_color() for line in axes.lines[:7]] == [*LINE_COLORS, LINE_COLORS[0]]
    assert axes.lines[6].get_linestyle() != axes.lines[0].get_linestyle()
    assert axes.lines[7].get_color() == LINE_COLORS[2]


@pytest.mark.parametrize("count", [4, 8])
def test_bands_hold_the_median_run_and_the_quartiles(count: int) -> None:
    curves = [(f"n={at}", *CURVES[at % 4][1:]) for at in range(count)]
    figure = bands_figure(dict(enumerate(curves)), NARROW)
    assert len(figure.axes) == (1 if count == 4 else 8)
    for at, (name, steps, middle, low, high) in enumerate(curves):
        axes = figure.axes[0 if count == 4 else at]
        number = at if count == 4 else 0
        assert lines(axes)[number] == list(zip(steps, middle, strict=True))
        [path] = axes.collections[number].get_paths()
        corners = {(x, y) for x, y in path.vertices.tolist()}  # type: ignore[union-attr]
        assert {(steps[7], low[7]), (steps[7], high[7])} <= corners
        assert name in texts(figure) or name in [one.get_title("left") for one in figure.axes]


def test_lifts_and_onsets_stand_over_the_same_steps_as_the_loss() -> None:
    figure = timeline(WIDE)
    loss, first, second, context = figure.axes
    assert {axes.get_xlim() for axes in figure.axes} == {(0, 360)}
    assert len({(round(axes.get_position().x0, 6), round(axes.get_position().x1, 6)) for axes in figure.axes}) == 1
    for axes, layer in ((first, 0), (second, 1)):
        for one, points in zip(HISTORIES[3 * layer :], lines(axes), strict=False):
            assert [step for step, _ in points] == one.steps
            assert [value for _, value in points if not math.isnan(value)] == [v for v in one.lifts if v is not None]
        onsets = [line for line in axes.lines if line.get_marker() == "v"]
        assert [(line.get_xdata()[0], line.get_ydata()[0]) for line in onsets] == [(90, 0.4)] * 3  # type: ignore[index]
    assert lines(loss)[0] == falling().points and lines(context) == [[(0, 0.0), (90, -0.4), (360, -0.9)]]


def test_values_have_an_axis_of_their_own_whatever_their_name() -> None:
    values = [replace(one, lifts=[5.0 + lift if lift is not None else None for lift in one.lifts]) for one in HISTORIES]
    tops = []
    for scale, name in ((None, "lift on lift_sum"), ((5.0, 6.0), "lift_sum")):
        figure = timeline_figure([falling()], values, Page(only="lifts"), target="lift_sum", scale=scale)
        assert figure.axes[0].get_ylabel() == name
        tops.append(figure.axes[0].get_ylim()[0])
    assert tops[0] == 0 and tops[1] > 3


@pytest.mark.parametrize(("length", "heads", "layers"), [(12, 3, 1), (5, 13, 2), (64, 2, 1), (7, 1, 1)])
def test_maps_are_the_weights_without_the_future(length: int, heads: int, layers: int) -> None:
    record = maps(length=length, heads=heads, layers=layers)
    figure = heads_figure(record, NARROW, None)
    painted = [axes.images[0] for axes in figure.axes if axes.images]
    assert len(painted) == heads * layers
    for number, image in enumerate(painted):
        drawn = numpy.ma.filled(image.get_array(), math.nan)
        weights = numpy.array(record.weights[number // heads][number % heads])
        future = numpy.triu(numpy.ones((length, length), bool), 1)
        assert (numpy.isnan(drawn) == future).all() and (drawn[~future] == weights[~future]).all()
        assert image.get_clim() == (0, 1) and image.get_cmap() is VIRIDIS
    sides = [axes.get_position() for axes in figure.axes if axes.images]
    assert all(
        side.width * 3.3 == pytest.approx(side.height * figure.get_figheight(), rel=1e-6) for side in sides
    )  # cells are square


def test_the_colours_are_those_of_the_terminal() -> None:
    for level in (0.0, 0.25, 0.6, 1.0):
        at = round(level * 255)
        assert tuple(round(255 * part) for part in VIRIDIS(at)[:3]) == viridis(at / 255)  # type: ignore[index]


def test_maps_of_an_encoder_decoder_have_the_tokens_of_their_part() -> None:
    roles = (LayerRole.ENCODER, LayerRole.DECODER, LayerRole.CROSS)
    spans = [((0, 3), (0, 3)), ((3, 8), (3, 8)), ((3, 8), (0, 3))]
    parts = [LayerPart(role, *span) for role, span in zip(roles, spans, strict=True)]
    record = replace(maps(length=8, heads=1, layers=3), parts=parts, tokens=list("abcdefgh"))
    figure = heads_figure(record, NARROW)
    shown = [axes for axes in figure.axes if axes.images]
    assert [axes.images[0].get_array().shape for axes in shown] == [(3, 3), (5, 5), (5, 3)]  # type: ignore[union-attr]
    ticks = [[text.get_text() for text in axes.get_xticklabels()] for axes in shown]
    assert ["".join(row) for row in ticks] == ["abc", "defgh", "abc"]
    assert not numpy.ma.getmaskarray(shown[2].images[0].get_array()).any()


def test_weights_that_are_no_numbers_are_marked() -> None:
    figure = heads_figure(maps(length=6, nan_at=True), NARROW)
    marks = [line for axes in figure.axes for line in axes.lines if line.get_marker() == "x"]
    assert [(list(m.get_xdata()), list(m.get_ydata())) for m in marks] == [([0], [5])]  # type: ignore[arg-type]


def test_effects_are_bars_with_their_errors_and_labels_stand_below_maps() -> None:
    report = reported(3)
    figure = heads_figure(replace(maps(heads=3), report=report), WIDE)
    axes = figure.axes[-1]
    heights = [bar.get_height() for bar in axes.patches]
    assert heights == [1.0, 2.0, 3.0, -0.5, -0.5, -0.5]
    segments = axes.collections[0].get_segments()  # type: ignore[attr-defined]
    assert [tuple(segment[:, 1]) for segment in segments] == [(0.9, 1.1), (1.8, 2.2), (2.7, 3.3)]
    assert [text for text in texts(figure) if text == "offset 6"] == ["offset 6"] * 3
    chosen = heads_figure(replace(maps(heads=3), report=report), replace(WIDE, only="maps"), [Head(0, 2)])
    assert len([one for one in chosen.axes if one.images]) == 1 and "L0.H2" in texts(chosen)
    with pytest.raises(UsageError) as caught:
        heads_figure(maps(), replace(WIDE, only="effects"))
    assert caught.value.hint == "there is: maps"


def test_many_heads_leave_the_bars_of_uniform_attention() -> None:
    figure = heads_figure(replace(maps(length=4, heads=48), report=reported(48)), replace(NARROW, only="effects"))
    assert [bar.get_height() for bar in figure.axes[0].patches] == [head + 1.0 for head in range(48)]


def test_every_head_of_a_column_is_named_below_its_bars() -> None:
    figure = heads_figure(replace(maps(heads=8), report=reported(8)), replace(NARROW, only="effects"))
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == [f"L0.H{head}" for head in range(8)]
    boxes = [text.get_window_extent() for text in figure.axes[0].get_xticklabels()]
    assert not any(one.overlaps(other) for one, other in itertools.pairwise(boxes))


def test_ticks_of_logarithmic_steps_leave_out_no_decade_at_the_width_of_a_column() -> None:
    figure = timeline_figure([falling(3000)], HISTORIES, NARROW)
    assert list(figure.axes[0].get_xticks()) == [0, 1, 10, 100, 1000]


def test_ablations_lens_and_matrices_hold_their_figures() -> None:
    ways = [Ablation("none", 1.0, 0.5, 0.0, 0.0), Ablation("zero", 3.0, 0.1, 2.0, 0.5)]
    lens = LogitLens([LensStep(None, 3.9, 0.1), LensStep(0, 2.5, 0.2), LensStep(1, 0.1, 0.9)], "rows", 3.5, 0.05)
    direct = DirectLogits([0, 2, 2], {Head(0, 1): [None, 1.5, -0.5], Head(1, 0): [None, 0.0, 2.0]}, "rows")
    parts = {"ablation": ablation_bars(ways), "lens": lens_plot(lens), "direct": direct_matrix(direct)}
    figure = compose(NARROW, {**parts, "lifts": lift_matrix(reported(2).heads)})
    bars, curve, logits = figure.axes[:3]
    lifts = next(axes for axes in figure.axes[3:] if axes.images)
    assert [bar.get_height() for bar in bars.patches] == [2.0]
    assert lines(curve)[0] == [(0, 3.9), (1, 2.5), (2, 0.1)]
    assert numpy.ma.filled(logits.images[0].get_array(), -9).tolist() == [[-9, 1.5, -0.5], [-9, 0, 2]]
    assert lifts.images[0].get_array().tolist() == [[0.0, -0.2], [0.1, -0.2]]  # type: ignore[union-attr]


def test_widths_are_read_with_their_units_and_limited() -> None:
    assert inches("3.3in") == 3.3 == inches("3.3") and inches("127mm") == pytest.approx(5) and inches("144pt") == 2
    assert inches("12.7 cm") == pytest.approx(5)
    for wrong in ("", "in", "-3in", "1.4in", "41in", "3.3 feet", "nan", "inf", "1e9in", "3,3in", "\u0663in"):
        assert inches(wrong) is None, wrong


@pytest.mark.parametrize("value", [1e308, -1e308, 5e-324, math.inf, math.nan])
def test_no_number_is_too_large_or_too_small_for_a_figure(value: float) -> None:
    train = replace(falling(9), values=[value] * 3 + [1.0] * 6)
    scores = [replace(one, uniform_delta_nats=value, uniform_delta_se=value) for one in reported(3).heads]
    for log in (False, True):
        assert to_bytes(loss_figure([train], NARROW, levels=[Level(value, "level")], log=log), "svg", "")
    figures = [
        timeline_figure([train], [replace(HISTORIES[0], lifts=[value, 1.0, value, 1.0])], NARROW),
        bands_figure({0: ("x", [1, 2], [value, 1.0], [value, value], [value, 2.0])}, NARROW),
        heads_figure(replace(maps(heads=3), report=replace(reported(3), heads=scores)), NARROW),
        compose(NARROW, {"direct": direct_matrix(DirectLogits([1, 1], {Head(0, 1): [value, 1.0]}, "rows"))}),
    ]
    assert all(to_bytes(figure, "svg", "") for figure in figures)
