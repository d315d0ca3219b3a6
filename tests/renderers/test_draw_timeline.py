"""Strips of lift under the loss curve: the same columns, every surface, and nothing said that was not measured."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mhsa_cli.records.timeline import HeadHistory, Interval, LossDrop
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.kit.ticks import Axis, step_ticks
from mhsa_cli.renderers.pictures.curve import Level, loss_curve
from mhsa_cli.renderers.pictures.timeline import timeline_picture
from tests.renderers.drawn import COLOR, SURFACES, backgrounds, evals, falling, golden, on

STEPS = [0, 1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 160, 192, 224, 256, 288, 320, 360]
GUESS = [Level(math.log(64), "chance 4.16")]
DROP = LossDrop(80, 1.33, Interval(64, 95))
SCORES = [(step, 0.0 if step < 40 else -1.6 + step / 360) for step in STEPS]


def rising(middle: float, pace: float, top: float) -> list[float | None]:
    return [top / (1 + math.exp(-(step - middle) / pace)) for step in STEPS]


def history(head: int, lifts: list[float | None], target: str = "previous", label: str = "") -> HeadHistory:
    final = lifts[-1] if lifts else None
    return HeadHistory(0, head, target, label, STEPS[: len(lifts)], lifts, final)


def formed(
    head: int, lifts: list[float | None], target: str, label: str, onset: tuple[int, int], lead: tuple[int, int]
) -> HeadHistory:
    width = onset[1] - onset[0]
    return replace(
        history(head, lifts, target, label), onset=Interval(*onset), rise=None, width=width, lead=Interval(*lead)
    )


def heads(long: bool = False) -> list[HeadHistory]:
    idle = "offset 6 pattern, no effect shown" if long else "offset 6"
    gaps: list[float | None] = [None, None, *rising(80, 20, 0.9)[2:]]
    return [
        formed(0, rising(40, 9, 0.97), "previous", "previous token", (32, 48), (12, 43)),
        replace(formed(1, gaps, "offset", idle, (64, 96), (-48, 15)), distance=6),
        formed(2, rising(90, 30, 0.55), "induction", "", (64, 12_345), (-2048, -17)),
        replace(history(0, [-0.2] * 9 + [0.03] * 9, "self"), layer=1),
    ]


@pytest.mark.parametrize(
    ("name", "surface", "width", "long"),
    [
        ("timeline-60", "none", 60, False),
        ("timeline-80", "16", 80, False),
        ("timeline-80-ascii", "ascii", 80, False),
        ("timeline-60-blocks", "blocks", 60, False),
        ("timeline-120", "none", 120, False),
        ("timeline-40", "none", 40, True),
        ("timeline-80-colour", "truecolor", 80, False),
    ],
)
def test_pictures_stay_as_they_were(name: str, surface: str, width: int, long: bool) -> None:
    series = [falling(), evals(falling())]
    lines = timeline_picture(series, heads(long), on(width, surface), levels=GUESS, drop=DROP, in_context=SCORES)
    golden(name, lines.plain)


def rows_of(lines: Lines) -> dict[str, str]:
    return {text.split()[0]: text for line in lines if (text := line.plain).startswith("L") and "│" in text}


@pytest.mark.parametrize("width", [50, 60, 80, 97, 120])
@pytest.mark.parametrize("at", [4, 48, 192, 320])
def test_strips_stand_in_the_columns_of_the_curve(width: int, at: int) -> None:
    """A loss marked at a step and a lift that rises at that step are in one column."""
    marked = Series("train", [0, at, 360], [1.0, math.nan, 0.0])  # a gap is marked in its column
    lifts: list[float | None] = [0.0 if step < at else 1.0 for step in STEPS]
    lines = timeline_picture([marked], [history(0, lifts)], on(width, "none"), drop=LossDrop(at, 0.5, Interval(0, at)))
    texts = lines.plain.split("\n")
    strip = rows_of(lines)["L0.H0"]
    cross = texts[12].index("×")
    tick = next(text for text in texts if "└" in text)
    assert strip.index("█") == cross
    assert strip.index("│") == tick.index("└")
    end = len(tick) - 1
    assert strip.rindex("█") == end  # both end where the axis ends
    assert next(text for text in texts if "^" in text).index("^") == cross
    colored = timeline_picture([marked], [history(0, lifts)], on(width))
    painted = backgrounds(next(line for line in colored if line.plain.startswith("L0.H0")))
    first, high = strip.index("│") + 1, painted[end]
    assert high is not None and painted.index(high) == cross
    assert cross == first or (painted[first] not in (None, high) and painted.count(painted[first]) == cross - first)


def test_a_cell_holds_the_last_snapshot_and_nothing_stands_after_it() -> None:
    train = Series("train", range(360), [1.0] * 360)
    half: list[float | None] = [0.0, 0.0, 0.0, 0.0, 0.6, None, 0.6]  # up to step 32 of 360
    strip = rows_of(timeline_picture([train], [history(0, half)], on(80, "none")))["L0.H0"]
    cells = strip.split("│")[1]
    assert (
        cells.rstrip().split("  ")[0].strip()
        == "▁" * cells.count("▁") + "▅" * (cells.count("▅") - 1) + "?" * (cells.count("?")) + "▅"
    )
    assert cells.count("▁") > cells.count("▅") > 2 and cells.count("?") > 2


def test_shades_and_digits_follow_the_lift() -> None:
    lifts: list[float | None] = [step / 17 for step in range(18)]
    one = [history(0, lifts)]
    for name, order in (("none", "▁▂▃▄▅▆▇█"), ("ascii", ".123456789")):
        lines = timeline_picture([], one, on(120, name))
        strip = next(line.plain for line in lines if line.plain.startswith("L0.H0"))
        cells = strip[7:].split(" ")[0]
        assert set(cells) <= set(order) and list(cells) == sorted(cells, key=order.index)
        assert cells[0] == order[0] and cells[-1] == order[-1]
    plain = timeline_picture([], one, on(120, "16")).plain
    assert "▁" in plain and plain == timeline_picture([], one, on(120, "none")).plain
    painted = timeline_picture([], one, on(120))
    assert "▂" not in painted.plain and len(set(backgrounds(painted[16]))) > 12


@pytest.mark.parametrize("surface", sorted(SURFACES))
def test_what_is_below_zero_and_what_is_unknown_is_marked(surface: str) -> None:
    lines = timeline_picture([], [history(0, [-0.3, None, 0.2])], on(80, surface)).plain
    assert "-: below 0" not in lines and "- in a strip: below 0" in lines and "?: not measured" in lines
    fine = timeline_picture([], [history(0, [-0.04, 0.1, 0.2])], on(80, surface)).plain
    assert "below 0," not in fine and "not measured" not in fine
    assert "another offset" not in lines
    offset = replace(history(0, [None, 0.1], target="offset"), distance=5)
    assert "another offset" in timeline_picture([], [offset], on(80, surface)).plain


def test_the_column_beside_a_strip_is_named_alike_at_every_width() -> None:
    for width in (40, 60, 80, 120, 200):
        lines = timeline_picture([], heads(True), on(width, "none"))
        rows = rows_of(lines)
        header = next(text for text in lines.plain.split("\n") if "target" in text)
        assert "induction" in rows["L0.H2"] and "offset 6" in rows["L0.H1"]
        words = " ".join(lines.plain.split())
        assert words.count("offset 6 pattern, no effect shown") == 1  # in its row or below, never cut
        assert words.count("previous token") == 1 and ("label" in header) == (width == 200)
        bare = timeline_picture([], [replace(h, label="") for h in heads()], on(width, "none"))
        assert "target" in bare.plain and "token" not in bare.plain
        same = timeline_picture([], heads()[1:], on(width, "none"))
        assert same.plain.count("offset 6") == 1  # a label that is the target is not repeated
    asked = timeline_picture([], [heads()[2]], on(120), target="induction").plain
    assert "lift on induction" in asked and "target:" not in asked
    nothing = timeline_picture([], [history(0, [None, None], target="")], COLOR).plain
    assert "not measured" in nothing


def test_figures_stand_beside_their_head_or_are_named_as_left_out() -> None:
    wide = rows_of(timeline_picture([], heads(), on(160, "none")))
    figures = {name: row.split("  ")[-9:] for name, row in wide.items()}
    said = {name: [part.strip() for part in parts if part.strip()][-4:] for name, parts in figures.items()}
    assert said["L0.H0"] == ["0.97", "32–48", "16", "+12 to +43"]
    assert said["L0.H1"] == ["0.90", "64–96", "32", "not shown"]
    assert said["L0.H2"] == ["0.55", "64–12.345k", "12.281k", "-2048 to -17"]
    assert wide["L1.H0"].split()[-4:] == ["0.03", "–", "–", "–"]
    zero = [replace(heads()[0], onset=Interval(0, 0), width=0, lead=Interval(0, 0))]
    assert rows_of(timeline_picture([], zero, on(160, "none")))["L0.H0"].split()[-4:] == ["0", "0", "not", "shown"]
    narrow = timeline_picture([], heads(), on(60, "none")).plain
    assert "hidden columns: final, width, lead" in narrow and "onset" in narrow
    assert "hidden" not in "\n".join(wide.values())


@pytest.mark.parametrize("surface", sorted(SURFACES))
def test_the_in_context_score_is_a_strip_of_the_model(surface: str) -> None:
    def strip(*scores: float | None) -> tuple[str, str]:
        points = list(zip(STEPS, scores, strict=False))
        lines = timeline_picture(
            [], [history(0, [0.1] * len(points))], replace(SURFACES[surface], width=80), in_context=points
        )
        return next((t for line in lines if (t := line.plain).strip().startswith("ICL")), ""), lines.plain

    row, said = strip(0.0, -2.5, None, -1.0)
    assert row and "-2.50 nats, the last snapshot -1.00" in " ".join(said.split()) and "+ in ICL" not in said
    row, said = strip(0.05, -0.1)
    assert "+" not in row and "a full cell is -1" in " ".join(said.split())  # noise is not drawn as a signal
    row, said = strip(0.5, -0.1)
    assert "+" in row and "+ in ICL" in said
    assert strip(None, math.nan)[0] == "" and strip()[0] == ""


def test_many_heads_have_a_row_each_and_few_things_are_fine() -> None:
    many = [replace(heads()[number % 4], layer=number // 8, head=number % 8) for number in range(64)]
    for surface in SURFACES.values():
        lines = timeline_picture([falling()], many, surface, levels=GUESS)
        rows = [line.plain for line in lines if line.plain.startswith("L")][:64]
        assert [row.split()[0] for row in rows] == [f"L{n // 8}.H{n % 8}" for n in range(64)]
    one = timeline_picture([falling()], [history(0, [0.4])], on(80, "none")).plain
    assert "1 snapshot;" in one and "L0.H0 │▄ " in one
    assert "no snapshots of heads" in timeline_picture([falling()], [], COLOR).plain
    wide = [replace(heads()[0], layer=11, head=13)]
    assert "L11.H13 │" in timeline_picture([], [*heads(), *wide], on(80, "none")).plain


_lifts = st.lists(st.one_of(st.none(), st.floats(-2, 2)), min_size=1, max_size=18)
_intervals = st.builds(Interval, st.integers(-(10**7), 10**7), st.integers(0, 10**7))
_histories = st.lists(
    st.builds(
        lambda head, lifts, target, label, onset, ends, distance: HeadHistory(
            *divmod(head, 4), target, label, STEPS[: len(lifts)], lifts, lifts[0], ends, ends, onset, ends, distance
        ),
        st.integers(0, 99),
        _lifts,
        st.sampled_from(["previous", "offset", ""]),
        st.sampled_from(["", "previous token", "duplicate token pattern, no effect shown", "\x1b[31m"]),
        st.one_of(st.none(), st.integers(0, 10**7)),
        st.one_of(st.none(), _intervals),
        st.one_of(st.none(), st.integers(1, 99)),
    ),
    max_size=5,
)


@settings(max_examples=50)
@given(
    histories=_histories,
    width=st.integers(20, 200),
    surface=st.sampled_from(sorted(SURFACES)),
    steps=st.integers(0, 400),
    target=st.sampled_from([None, "offset", "self"]),
    drop=st.one_of(st.none(), st.builds(LossDrop, st.integers(0, 500), st.floats(0.001, 9), _intervals)),
    scores=st.lists(st.tuples(st.sampled_from(STEPS), st.one_of(st.none(), st.floats())), max_size=5),
)
def test_any_content_draws_within_its_width(histories, width, surface, steps, target, drop, scores) -> None:  # type: ignore[no-untyped-def]
    lines = timeline_picture(
        [falling(steps)] if steps else [],
        histories,
        on(width, surface),
        levels=GUESS,
        drop=drop,
        target=target,
        in_context=scores,
    )
    assert all(line.cell_len <= width and "\n" not in line.plain and "\x1b" not in line.plain for line in lines)
    assert sum(line.plain.lstrip().startswith("L") for line in lines) >= len(histories)


def test_log_steps_begin_at_zero() -> None:
    axis = Axis(0.0, 1023.0, log1p=True)
    assert [axis.place(step) for step in (0, 1, 3, 31, 1023)] == pytest.approx([0, 0.1, 0.2, 0.5, 1])
    assert step_ticks(axis, 5) == [0, 1, 10, 100, 1000] and step_ticks(Axis(0.0, 360.0), 4) == [0, 100, 200, 300]
    frame = loss_curve([falling()], COLOR, log_steps=True, left=20, right=30).frame
    assert frame.margin == 20 and frame.columns == 80 - 20 - 1 - 31
    parts = loss_curve([falling()], COLOR)
    assert (parts.plot + parts.notes).plain == parts.plain


@pytest.mark.parametrize("surface", SURFACES)
def test_a_lift_beyond_all_bounds_is_drawn_as_the_most(surface: str) -> None:
    lines = timeline_picture([falling()], [history(0, [1.0, 1e308, 0.5])], on(60, surface))
    assert lines.columns <= 60
