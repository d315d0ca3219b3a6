from __future__ import annotations

import io
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.style import Style
from rich.text import Text

from mhsa_cli.errors import UsageError
from mhsa_cli.renderers.files import png
from mhsa_cli.renderers.files.png import INK, PANEL, SCALE, to_png
from mhsa_cli.renderers.files.vector_marks import CELL_HEIGHT, CELL_WIDTH, MARGIN
from mhsa_cli.renderers.kit.glyphs import FULL
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.renderers.pictures.heatmap import head_maps
from tests.renderers.drawn import backgrounds, evals, falling, maps, on

Image = pytest.importorskip("PIL.Image")


def picture(*lines: Text | str) -> Any:
    """Draw and read back: a Pillow image."""
    drawn = to_png([Text(line) if isinstance(line, str) else line for line in lines], title="t")
    return Image.open(io.BytesIO(drawn)).convert("RGB")


def at(image: Any, column: float, row: float) -> str:
    """The colour at a place counted in cells: (0.5, 0.5) is the middle of the first one."""
    x, y = (MARGIN + column * CELL_WIDTH) * SCALE, (MARGIN + row * CELL_HEIGHT) * SCALE
    return "#{:02x}{:02x}{:02x}".format(*image.getpixel((int(x), int(y))))


def inked(image: Any, column: int, width: int = 1) -> int:
    """Count the pixels that are not background in cells of the first row, a pixel of spill at the sides left out."""
    left, top = int((MARGIN + column * CELL_WIDTH) * SCALE), int(MARGIN * SCALE)
    part = image.crop((left + 1, top, left + int(width * CELL_WIDTH * SCALE) - 1, top + int(CELL_HEIGHT * SCALE)))
    return sum(count for count, color in part.getcolors(10**6) if color != (255, 255, 255))


def test_every_painted_cell_has_its_colour_and_none_reaches_beyond() -> None:
    lines = head_maps(maps(11, 3), on(96))
    image = picture(*lines)
    colors = {(x, y): color for y, line in enumerate(lines) for x, color in enumerate(backgrounds(line)) if color}
    assert len(colors) > 3 * 2 * 11 * 12 / 2
    for (x, y), color in colors.items():
        assert {at(image, x + dx, y + dy) for dx in (0.01, 0.98) for dy in (0.01, 0.98)} == {color}, (x, y)
        assert (x + 1, y) in colors or at(image, x + 1.01, y + 0.5) == PANEL
        assert (x, y + 1) in colors or at(image, x + 0.5, y + 1.01) == PANEL


def test_a_half_cell_has_two_colours_and_bars_their_height() -> None:
    image = picture(Text.assemble(("▀", Style(color="#102030", bgcolor="#a0b0c0"))), "▁▂▃▄▅▆▇█")
    assert (at(image, 0.5, 0.2), at(image, 0.5, 0.8)) == ("#102030", "#a0b0c0")
    for number in range(8):
        assert [at(image, number + 0.5, 2 - (i + 0.5) / 8) == INK for i in range(8)] == [i <= number for i in range(8)]


def test_shades_get_darker() -> None:
    image = picture(" ░▒▓█")
    assert [at(image, i + 0.5, 0.5) for i in range(5)] == [PANEL, "#c7c8c9", "#8f9194", "#575a5e", INK]


def test_every_braille_character_shows_its_dots() -> None:
    image = picture(*("".join(chr(0x2800 + 16 * row + column) for column in range(16)) for row in range(16)))
    places = [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2), (0, 3), (1, 3)]
    for code in range(256):
        y, x = divmod(code, 16)
        shown = [at(image, x + (dx + 0.5) / 2, y + (dy + 0.5) / 4) == INK for dx, dy in places]
        assert shown == [bool(code >> bit & 1) for bit in range(8)]


def boxes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the characters drawn as a box with their code."""
    found: list[str] = []
    monkeypatch.setattr(png._Painter, "box", lambda self, char, *_: found.append(char))
    return found


def test_everything_that_pictures_are_made_of_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    found = boxes(monkeypatch)
    glyphs = [getattr(FULL, name) for name in FULL.__slots__ if isinstance(getattr(FULL, name), str)]
    text = "".join(map(chr, range(33, 127))) + "".join(glyphs).replace(" ", "") + "␣↵⇥—←↑éÀñü"
    for char in text:
        assert inked(picture(f" {char} "), 1) > 4, char
    assert found == []


def test_ink_stays_in_its_cell() -> None:
    for char in "MWm@%→←×␣⇥●g|漢":
        image = picture(f" {char}  ")
        assert inked(image, 0) == 0 and inked(image, 3) == 0, char


def test_what_the_font_lacks_is_a_box_and_two_such_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({picture(char).tobytes() for char in "☃♥ßж"}) == 4
    found = boxes(monkeypatch)
    picture("naïve ☃ 漢字")
    assert found == ["☃", "漢", "字"]


def test_letters_fill_their_word_and_figures_stand_in_columns() -> None:
    """The last letter of a word of narrow letters is at its end; a figure is where it is in any other number."""
    image = picture("illi")
    assert inked(image, 0) > 0 and inked(image, 3) > 0
    assert [inked(picture("1.51"), i) for i in (2, 3)] == [inked(picture("9951"), i) for i in (2, 3)]


@settings(max_examples=50)
@given(st.lists(st.text(max_size=20), max_size=4), st.text(max_size=20))
def test_any_text_is_a_picture_of_the_right_size(texts: list[str], title: str) -> None:
    lines = [Text(text) for text in texts]
    image = Image.open(io.BytesIO(to_png(lines, title=title)))
    wide = max([1, *(line.cell_len for line in lines)])
    high = max(1, len(lines))
    assert image.size == (SCALE * (8 * wide + 28), SCALE * (17 * high + 28)) and image.format == "PNG"


def test_bold_is_darker_and_dim_is_lighter() -> None:
    def mean(style: Style) -> float:
        colors = picture(Text.assemble(("head", style))).convert("L").getcolors(10**6)
        return sum(count * color for count, color in colors) / sum(count for count, _ in colors)

    assert mean(Style(bold=True)) < mean(Style()) < mean(Style(dim=True)) < 255


def test_equal_pictures_are_equal_files_with_a_title() -> None:
    train = falling(120)
    lines = loss_curve([train, evals(train)], on(70))
    first, second = (to_png(lines, title="loss of é") for _ in range(2))
    assert first == second and Image.open(io.BytesIO(first)).text["Title"] == "loss of é"


def test_without_pillow_the_way_out_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match=r"PNG needs Pillow\n.*mhsa-cli\[png\].*\.svg"):
        to_png([Text("x")], title="")


def test_a_picture_beyond_memory_is_refused() -> None:
    with pytest.raises(UsageError, match="too many for a PNG"):
        to_png([Text("x")] * 300_000, title="")
