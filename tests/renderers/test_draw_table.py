from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from mhsa_cli.records.training import TaskInfo
from mhsa_cli.renderers.kit.glyphs import ASCII, BLOCKS, FULL
from mhsa_cli.renderers.kit.palette import PLAIN
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Grid, cut, pad, wrap_phrases, wrap_words
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.renderers.pictures.heads import bars, by_distance
from mhsa_cli.renderers.pictures.task import task_picture
from mhsa_cli.text import escape
from tests.renderers.drawn import SURFACES, golden, on


def cell(place: int) -> Callable[[Sequence[str]], str]:
    """Read the cell at a place of a row; a short row ends in empty ones."""
    return lambda row: row[place] if place < len(row) else ""


COLUMNS = [
    Column("run", cell(0), legend="runs here"),
    Column("task", cell(1)),
    Column("steps", cell(2), "right", drop=1, legend="steps: how many"),
    Column("loss", cell(3), "right"),
    Column("started", cell(4), drop=2, legend="started: when"),
    Column("note", cell(5), wraps=True, drop=3),
]
ROWS = [
    ["copy-h4", "copy", "360", "0.0025", "2 minutes ago", "four heads of width eight"],
    ["[/x]", "日本語", "12k", "4.16", "yesterday", ":smile: [red]x [n_heads]"],
    ["a/very/long/run/name/that/does/not/fit", "repeat", "7"],
]
TASK = TaskInfo(
    "copy", "Say it again.", ["17", "4", "9", "17", "4"], ["·", "·", "17", "4", "9"], math.log(64), 1 / 64, {"any": 2.5}
)


@pytest.mark.parametrize("width", [80, 50, 24])
def test_tables_stay_as_they_were(width: int) -> None:
    golden(f"table-{width}", table(COLUMNS, ROWS, on(width)).plain)


def test_columns_align_with_wide_characters() -> None:
    lines = table(COLUMNS, ROWS, on(120))
    loss = [
        cell_len(line.plain.split(value)[0]) + cell_len(value)
        for line, value in zip(lines, ["loss", "0.0025", "4.16"], strict=False)
    ]
    assert len(set(loss)) == 1


def test_user_text_is_never_markup() -> None:
    text = table(COLUMNS, ROWS, on(120)).plain
    assert "[/x]" in text and ":smile: [red]x [n_heads]" in text


def test_the_least_important_columns_go_first_and_those_that_are_there_are_explained() -> None:
    narrow, wide = (table(COLUMNS, ROWS, on(width), notes=["note"]).plain.splitlines() for width in (42, 120))
    assert narrow[0].split() == ["run", "task", "loss"]
    assert narrow[-2:] == ["hidden columns: steps, started, note", "runs here   note"]
    assert wide[-1] == "runs here   steps: how many   started: when   note" and len(wide) == len(ROWS) + 2


def test_columns_of_one_number_are_hidden_together() -> None:
    columns = [Column("name", cell(0)), *(Column("MB", cell(i), "right", drop=1) for i in (1, 2, 3))]
    rows = [["a", "123", "456", "789"]]
    assert table(columns, rows, on(20)).plain.splitlines() == ["name   MB   MB   MB", "a     123  456  789"]
    rows = [["a long name", "123", "456", "789"]]
    assert table(columns, rows, on(20)).plain.splitlines() == ["name", "a long name", "hidden columns: MB"]


@settings(max_examples=80)
@given(
    rows=st.lists(st.lists(st.text(max_size=60), max_size=6), max_size=5),
    width=st.integers(20, 200),
    surface=st.sampled_from(sorted(SURFACES)),
)
def test_any_table_keeps_within_its_width(rows: list[list[str]], width: int, surface: str) -> None:
    lines = table(COLUMNS, rows, on(width, surface))
    assert all(line.cell_len <= width and "\n" not in line.plain for line in lines)


def test_wrapped_cells_lose_no_word() -> None:
    words = ["attention", "is", "a", "weighted", "mean", "of", "values"]
    text = table([Column("A", cell(0)), Column("B", cell(1), wraps=True)], [["x", " ".join(words)]], on(21)).plain
    assert [word for word in text.split() if word in words] == words


def test_bars_show_what_is_small_and_hide_what_is_nothing() -> None:
    assert bars([0.0, 0.01, 0.03, 0.5, 1.0, 7.0, math.nan], FULL) == "  ▁▄██ "
    assert bars([0.0, 0.03, 0.4, 1.0], BLOCKS) == " .." + "█"
    assert bars([0.0, 0.03, 0.5, 1.0], ASCII) == " .:#"


def test_by_distance_averages_diagonals() -> None:
    matrix = [[1.0, 0.0, 0.0], [0.4, 0.6, 0.0], [0.1, 0.7, 0.2]]
    assert by_distance(matrix) == pytest.approx([0.6, 0.55, 0.1])
    assert len(by_distance([[0.5] * 20] * 20)) == 16 and by_distance([]) == []


@pytest.mark.parametrize("width", [80, 23])
def test_task_pictures_stay_as_they_were(width: int) -> None:
    golden(f"task-{width}", task_picture(TASK, on(width)).plain)


@given(st.lists(st.text(max_size=12), max_size=30), st.lists(st.text(max_size=12), max_size=30), st.integers(20, 200))
def test_targets_stand_under_their_inputs(inputs: list[str], targets: list[str], width: int) -> None:
    info = TaskInfo("copy", "[/x]", inputs, targets, 1.0, 0.5, {"[/x]": 0.25, "b\x1b": 0.125})
    lines = task_picture(info, on(width))
    assert all(line.cell_len <= width for line in lines)
    upper = [line for line in lines if line.plain.startswith("  input")]
    lower = [line for line in lines if line.plain.startswith("  target")]
    assert [line.cell_len for line in upper] == [line.cell_len for line in lower]


@given(st.text(), st.integers(1, 30), st.sampled_from(["…", ".."]))
def test_cut_and_pad_count_columns(text: str, width: int, mark: str) -> None:
    assert cell_len(cut(escape(text), width, mark)) <= width
    assert cell_len(pad(cut(escape(text), width, mark), width)) == width
    if cell_len(text) <= width:
        assert cut(text, width, mark) == text


def test_safe_shows_what_cannot_be_shown() -> None:
    assert escape("a b[日]") == "a b[日]"
    assert escape("\x1b[2J\n\t\udce9\u202e\x9b") == "\\x1b[2J\\n\\t\\xe9\\u202e\\x9b"


@given(st.lists(st.text(alphabet="ab日 ", max_size=70), max_size=7), st.integers(2, 40))
def test_wrapped_phrases_lose_no_letter(phrases: list[str], width: int) -> None:
    lines = wrap_phrases([[(phrase, PLAIN)] for phrase in phrases], width)
    assert all(line.cell_len <= width for line in lines)
    assert "".join("".join(line.plain.split()) for line in lines) == "".join("".join(p.split()) for p in phrases)


def test_a_grid_never_splits_a_wide_character() -> None:
    grid = Grid(5, 1)
    grid.put(0, 0, "a日b日")
    grid.put(0, 3, "lost")
    assert grid.lines()[0].plain == "a日b"
    grid.put(3, 0, "e\u0301")
    assert grid.lines()[0].plain == "a日e\u0301"


@pytest.mark.parametrize("surface", ["truecolor", "ascii"])
def test_a_figure_is_never_cut_to_another_figure(surface: str) -> None:
    columns = [Column("name", cell(0)), Column("loss", cell(1), "right"), Column("share", cell(2), "right")]
    rows = [["a name of some length", "123456789.25", "12.5%"], ["b", "-4.5e300 (7)", "x1234567890"]]
    narrow = on(20, surface)
    first, second = (line.split() for line in table(columns, rows, narrow).plain.splitlines()[1:])
    mark = narrow.glyphs.cut_text
    assert first[-2:] == [mark, "12.5%"]
    assert second == ["b", mark, "x1234567890"[: 6 - len(mark)] + mark]  # text keeps its beginning
    assert "123456789.25" in table(columns, rows, on(60, surface)).plain


@pytest.mark.parametrize(
    ("value", "wanted"),
    [(0.126, "0.13"), (-999_999.126, "-999999.13"), (1e6, "1e6"), (-1.25e300, "-1.25e300"), (math.nan, "nan")],
)
def test_a_figure_that_exploded_is_written_short(value: float, wanted: str) -> None:
    assert fixed(value, 2) == wanted
    assert percents(value / 100, 2) == f"{wanted}%"


def test_signs_are_kept_where_they_are_wanted() -> None:
    assert [fixed(value, 3, "+") for value in (0.5, -0.5, 2e9, -2e9)] == ["+0.500", "-0.500", "+2e9", "-2e9"]


RUNS = [
    Column("run", cell(0), whole=True),
    Column("status", cell(1), wraps=True),
    Column("task", cell(2), drop=1),
    Column("loss", cell(3), "right"),
]
LISTED = [
    ["a-long-name-that-nobody-types-twice", "finished", "copy", "0.0025"],
    ["b", "damaged: no run.json, not a run folder", "", ""],
]


@pytest.mark.parametrize("width", [20, 30, 53, 55, 75, 120])
@pytest.mark.parametrize("bounded", [True, False])
def test_what_may_have_to_be_typed_is_never_cut_and_no_word_is_broken(width: int, bounded: bool) -> None:
    text = table(RUNS, LISTED, replace(on(width), bounded=bounded)).plain
    words = text.split()
    assert all(word in words for row in LISTED for word in (*row[0].split(), *row[1].split(), row[3]) if word)
    assert "…" not in text and ("hidden columns: task" in text) == (bounded and 54 <= width < 60)
    if not bounded:  # a pipe: a row a line, and every column
        assert [line.split() for line in text.splitlines()[1:]] == [" ".join(row).split() for row in LISTED]
    elif width < 54:  # not even the columns that stay have room
        assert text.startswith("run:") and "loss: 0.0025" in text and "task: copy" in text


@settings(max_examples=80)
@given(rows=st.lists(st.lists(st.text(max_size=60), max_size=4), max_size=5), width=st.integers(20, 200))
def test_only_a_single_word_is_wider_than_a_table_that_cuts_nothing(rows: list[list[str]], width: int) -> None:
    picture = table(RUNS, rows, on(width))
    assert all(line.cell_len <= width or " " not in line.plain.strip(" ") for line in picture)
    shown = "".join(picture.plain.split())
    assert all("".join(escape(row[0]).split()) in shown for row in rows if row)


def test_a_table_of_figures_keeps_to_the_width_of_a_pipe() -> None:
    piped = replace(on(42), bounded=False)
    assert table(COLUMNS, ROWS, piped).plain == table(COLUMNS, ROWS, on(42)).plain


@given(st.text(alphabet="ab日 ", max_size=70), st.integers(4, 40))
def test_words_are_wrapped_whole(text: str, width: int) -> None:
    lines = wrap_words(text, width, "  ")
    assert " ".join(line.removeprefix("  " if number else "") for number, line in enumerate(lines)) == text
    assert all(cell_len(line) <= width or " " not in line.strip(" ") for line in lines)
