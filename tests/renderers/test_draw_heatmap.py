from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mhsa_cli.records.heads import HeadMaps, HeadSummary
from mhsa_cli.renderers.kit.cells import digit, masked_cells, pool
from mhsa_cli.renderers.kit.palette import heat_color, ink_style, viridis
from mhsa_cli.renderers.pictures.heatmap import head_maps
from tests.renderers.drawn import COLOR, SURFACES, backgrounds, golden, maps, on

NAN = math.nan


def one(matrix: list[list[float]], tokens: list[str] | None = None) -> HeadMaps:
    tokens = [chr(97 + i) for i in range(len(matrix))] if tokens is None else tokens
    return HeadMaps(7, "copy", tokens, [[matrix]], [HeadSummary(0, 0, 0.5)])


def words(text: str) -> str:
    return " ".join(text.split())


@pytest.mark.parametrize(
    ("name", "surface", "width", "shape"),
    [
        ("heads-80", "none", 80, (12, 4, 1)),
        ("heads-60", "none", 60, (12, 4, 1)),
        ("heads-80-ascii", "ascii", 80, (12, 4, 1)),
        ("heads-80-two-layers", "none", 80, (11, 3, 2)),
        ("heads-80-half", "truecolor", 80, (23, 5, 1)),
        ("heads-53-pooled", "blocks", 53, (129, 2, 1)),
    ],
)
def test_pictures_stay_as_they_were(name: str, surface: str, width: int, shape: tuple[int, int, int]) -> None:
    golden(name, head_maps(maps(*shape, source=True), on(width, surface)).plain)


def test_one_head_stays_as_it_was() -> None:
    golden("head-80", head_maps(maps(11, 3), on(80, "none"), heads=[(0, 2)]).plain)


@pytest.mark.parametrize("surface", sorted(SURFACES))
@pytest.mark.parametrize("length", [1, 2, 7, 13, 16, 17, 31])
def test_every_cell_of_a_uniform_head_is_visible(surface: str, length: int) -> None:
    shown = on(120, surface)
    lines = head_maps(maps(length, 2), shown, heads=[(0, 0)])
    visible = 0
    for line in lines:
        for char, back in zip(line.plain, backgrounds(line), strict=True):
            visible += back is not None and char != "█"
    cells = length * (length + 1) // 2
    if shown.paints:
        wide = 4 if 3 + 4 * length <= 120 else 2
        assert visible == cells * wide + 11  # and the colour bar
    else:
        body = lines.plain.split("weight in")[0].splitlines()[4:]
        assert sum(len(row.split()[1:]) for row in body if row.strip()) == cells


@pytest.mark.parametrize("surface", ["none", "ascii"])
@pytest.mark.parametrize("length", [2, 13, 17, 37])
def test_every_cell_of_two_uniform_heads_is_a_character(surface: str, length: int) -> None:
    matrix = [[1 / (q + 1) if k <= q else 0.0 for k in range(length)] for q in range(length)]
    made = HeadMaps(7, "copy", [], [[matrix, matrix]], [])
    picture = head_maps(made, on(90, surface)).plain
    body = picture.split("weight in")[0].split("L0.H1")[1]
    assert len("".join(body.split())) == length * (length + 1)


@pytest.mark.parametrize("depth", ["truecolor", "256"])
def test_lightness_only_rises(depth: str) -> None:
    def lightness(level: int) -> float:
        rgb = heat_color(level, depth).get_truecolor()  # type: ignore[arg-type]
        parts = [c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4 for c in rgb]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    levels = list(range(0, 101, 1 if depth == "truecolor" else 10))
    shades = [lightness(level) for level in levels]
    assert all(a < b for a, b in zip(shades, shades[1:], strict=False))


def test_viridis_ends_where_it_should() -> None:
    assert viridis(1.0) == (253, 231, 37)
    assert viridis(0.0) == (70, 22, 104)  # 0.06 of the way from 68,1,84 to 72,36,117, in tenths


@pytest.mark.parametrize("depth", ["truecolor", "256"])
def test_percents_can_be_read_on_their_colour(depth: str) -> None:
    def linear(c: int) -> float:
        return c / 255 / 12.92 if c <= 10 else ((c / 255 + 0.055) / 1.055) ** 2.4

    for level in range(101):
        style = ink_style(level, depth)  # type: ignore[arg-type]
        assert style.color is not None and style.bgcolor is not None
        shades = []
        for color in (style.color, style.bgcolor):
            red, green, blue = (linear(c) for c in color.get_truecolor())
            shades.append(0.2126 * red + 0.7152 * green + 0.0722 * blue)
        assert (max(shades) + 0.05) / (min(shades) + 0.05) >= 4.5, level


def test_digits_are_rounded() -> None:
    values = (0.0, 0.049, 0.05, 1 / 12, 0.149, 0.15, 0.849, 0.85, 1.0, 7.0, -1.0)
    assert [digit(v) for v in values] == ["", "", "1", "1", "1", "2", "8", "9", "9", "9", ""]


def test_masked_future_is_blank_and_zero_is_painted() -> None:
    matrix = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.25, 0.0, 0.75]]
    picture = head_maps(one(matrix), on(40))
    rows = [backgrounds(line) for line in picture[4:7]]
    assert [sum(back is not None for back in row) for row in rows] == [4, 8, 12]
    assert "blank: masked future" in picture.plain
    digits = head_maps(one(matrix), on(40, "none")).plain.splitlines()[4:7]
    assert [row.split() for row in digits] == [["a", "100"], ["b", "·", "100"], ["c", "25", "·", "75"]]


def test_a_map_that_sees_the_future_is_shown_whole() -> None:
    matrix = [[0.5, 0.5, 0.0], [0.2, 0.2, 0.6], [0.0, 0.0, 1.0]]
    picture = head_maps(one(matrix), on(40))
    assert [sum(b is not None for b in backgrounds(line)) for line in picture[4:7]] == [12, 12, 12]
    assert "masked" not in picture.plain


def test_half_cells_carry_two_queries() -> None:
    length = 17
    matrix = [[1.0 if k == q else 0.0 for k in range(length)] for q in range(length)]
    picture = head_maps(replace(one(matrix), weights=[[matrix, matrix]]), on(44))
    rows = [line.plain[:length] for line in picture if set(line.plain) & set("▀▄")]
    assert rows[0].rstrip() == "▀▄" and rows[1].rstrip() == "▀▀▀▄" and rows[8] == "▀" * 17 and len(rows) == 9


def test_one_scale_serves_all_heads() -> None:
    weak = [[1.0, 0.0], [0.5, 0.5]]
    sharp = [[1.0, 0.0], [0.0, 1.0]]
    picture = head_maps(replace(one(weak), weights=[[weak, sharp]]), COLOR)
    painted = [back for line in picture if "one scale" not in line.plain for back in backgrounds(line)]
    assert "#fde725" in painted and len({back for back in painted if back}) == 3
    assert "one scale for all heads" in picture.plain


def test_pooling_takes_the_largest_and_says_so() -> None:
    cells = masked_cells([[1.0, 0.0, 0.0], [0.3, 0.7, 0.0], [0.1, 0.2, 0.6]])
    assert pool(cells, 2) == [[1.0, None], [0.2, 0.6]]
    assert repr(pool([[0.5, NAN], [None, 0.1]], 2)) == "[[nan]]"
    assert pool(cells, 1) == cells
    picture = head_maps(maps(256, 1), COLOR)
    assert "256→64 columns: each cell is the largest weight of 4×4" in words(picture.plain)
    assert max(cell_len(line.plain.rstrip()) for line in picture[4:30]) <= 64
    assert "columns: each" not in head_maps(maps(64, 1), COLOR).plain


def test_a_grid_too_tall_to_be_seen_at_once_is_pooled() -> None:
    picture = head_maps(maps(64, 4), COLOR)
    assert "64→32 columns: each cell is the largest weight of 2×2" in words(picture.plain)
    assert len(picture) <= 50
    assert "→32" not in head_maps(maps(64, 3), on(198)).plain


def test_eight_heads_are_four_and_four() -> None:
    rows = head_maps(maps(12, 8), COLOR).plain.splitlines()
    assert [row.count("L0.H") for row in rows if "L0.H" in row] == [4, 4]


def test_a_layer_starts_a_new_row() -> None:
    rows = head_maps(maps(5, 2, 3), on(200)).plain.splitlines()
    assert [row.split()[0] for row in rows if ".H0" in row] == ["L0.H0", "L1.H0", "L2.H0"]


@settings(max_examples=80)
@given(
    width=st.integers(20, 200),
    length=st.integers(1, 70),
    heads=st.integers(1, 9),
    layers=st.integers(1, 2),
    surface=st.sampled_from(sorted(SURFACES)),
    source=st.booleans(),
    token=st.text(max_size=12),
)
def test_nothing_is_cut_at_any_width(
    width: int, length: int, heads: int, layers: int, surface: str, source: bool, token: str
) -> None:
    made = maps(length, heads, layers, source=source)
    made = replace(made, tokens=[token] * length)
    picture = head_maps(made, on(width, surface))
    assert all(line.cell_len <= width and "\n" not in line.plain for line in picture)
    text = picture.plain
    for summary in made.heads:
        assert summary.name in text
    assert text.count("entropy ") >= heads * layers
    assert text.count("(uniform 0.11)") == (heads * layers if source else 0)
    caption = words(text)
    phrases = ["blank: masked future"] if length > 1 else []
    phrases += ["row entropy: of this row, 0 one key, 1 uniform", "copy, step 360"]
    phrases += ["answer: weight on the position of the answer, mean over rows of the task"] if source else []
    for phrase in phrases:
        assert phrase in caption
    if " columns: each" not in caption:
        kept = sum(back is not None for line in picture for back in backgrounds(line))
        if SURFACES[surface].paints and "▀" not in text and "▄" not in text:
            cells = heads * layers * length * (length + 1) // 2
            assert (kept - 11) % cells == 0 and kept > 11


@pytest.mark.parametrize(
    ("length", "heads", "width"), [(1, 1, 20), (1, 64, 80), (12, 64, 80), (256, 3, 80), (1024, 1, 80)]
)
@pytest.mark.parametrize("surface", ["truecolor", "none", "ascii"])
def test_extreme_shapes_draw(length: int, heads: int, width: int, surface: str) -> None:
    picture = head_maps(maps(length, heads), on(width, surface))
    assert picture.columns <= width and f"L0.H{heads - 1}" in picture.plain


@pytest.mark.parametrize("surface", ["truecolor", "none", "ascii-colour"])
@pytest.mark.parametrize("length", [5, 19, 131])
def test_nan_is_a_question_mark_and_a_warning(surface: str, length: int) -> None:
    picture = head_maps(maps(length, 2, nan_at=True), on(80, surface)).plain
    assert picture.count("?") == 2 and "? not finite: L0.H0" in words(picture)
    assert "?" not in head_maps(maps(length, 2), on(80, surface)).plain


def test_weights_outside_the_scale_are_said() -> None:
    assert "outside 0..1" in head_maps(one([[1.0, 0.0], [-0.5, 1.5]]), COLOR).plain
    assert "outside 0..1" not in head_maps(one([[1.0, 0.0], [0.5, 0.5]]), COLOR).plain


def test_one_head_shows_percents_and_tokens_on_both_axes() -> None:
    matrix = [[1.0, 0.0, 0.0], [0.126, 0.874, 0.0], [0.004, 0.333, 0.663]]
    picture = head_maps(one(matrix, ["sun", "日", "[/x]"]), on(40)).plain.splitlines()
    assert picture[3].split() == ["sun", "[/x]"] or picture[3].split() == ["sun", "日", "[/x]"]
    assert [row.split() for row in picture[4:7]] == [["sun", "100"], ["日", "13", "87"], ["[/x]", "0", "33", "66"]]


def test_heads_can_be_chosen() -> None:
    picture = head_maps(maps(3, 2, 2), COLOR, heads=[(1, 0), (1, 1)]).plain
    assert "L1.H0" in picture and "L1.H1" in picture and "L0." not in picture
    picture = head_maps(maps(3, 2, 2), COLOR, heads=[(0, 1), (1, 1)]).plain
    assert "L0.H1" in picture and "L1.H1" in picture and "H0" not in picture


@pytest.mark.parametrize("width", [20, 80])
def test_figures_above_a_head_that_no_head_has_are_drawn_all_the_same(width: int) -> None:
    """A plan for a title wider than the terminal was once looked for without end."""
    shown = maps(heads=2)
    heads = [HeadSummary(0, 0, 1e308, -1e300, 5e30), HeadSummary(0, 1, math.nan)]
    picture = head_maps(replace(shown, heads=heads), on(width))
    assert "1e308" in picture.plain and "-1e300" in picture.plain and picture.columns <= width
