from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from markdown_it.token import Token

from mhsa_cli.renderers.pictures import check_words as words
from mhsa_cli.renderers.pictures.check_markdown import escaped, grade_markdown, grades_markdown
from mhsa_cli.text import escape
from tests.renderers import graded as g
from tests.renderers.drawn import golden

READER = MarkdownIt("commonmark").enable(["table", "strikethrough"])
SHAPE = {"heading_open", "paragraph_open", "table_open", "tr_open", "th_open", "td_open"}


def read(text: str) -> list[Token]:
    return READER.parse(text)


def shown(tokens: list[Token]) -> Iterator[str]:
    """Give what a reader sees of each heading, paragraph and cell."""
    for token in tokens:
        if token.type == "inline":
            yield "".join(child.content for child in token.children or [])


def test_markdown_stays_as_it_was() -> None:
    golden(
        "check-markdown", "\n".join([*map(grade_markdown, (g.ONE, g.TWO, g.EDGE, g.RAISES, g.UNCLEAR))]).rstrip("\n")
    )
    golden("check-class-markdown", grades_markdown(g.CLASS).rstrip("\n"))


@pytest.mark.parametrize("verdict", sorted(words.VERDICTS))
def test_user_text_can_break_nothing_and_is_shown_as_it_is(verdict: str) -> None:
    grade = g.hostile(verdict)
    one, many = read(grade_markdown(grade)), read(grades_markdown([grade, grade, g.ONE]))
    for tokens in (one, many):
        inner = [child.type for token in tokens for child in token.children or []]
        assert set(inner) <= {"text", "text_special", "strong_open", "strong_close"}
        assert {token.type for token in tokens if token.nesting == 1} <= SHAPE | {"thead_open", "tbody_open"}
        assert not [token for token in tokens if token.type in ("html_block", "fence", "code_block", "hr")]
    rows = [token.type for token in one].count("tr_open")
    cells = [token.type for token in one].count("td_open")
    assert rows == 1 + 2 + 1 + 1 + 1 + len(grade.laws) and cells == 2 * 1 + 1 * 2 + 4 * len(grade.laws)
    assert [token.type for token in many].count("td_open") == 5 * 3 + 2 * 3
    plain = escape(words.on_one_line(g.HOSTILE))
    assert list(shown(one)).count(plain) == 2 + 2 + 1 + 6 + 4  # tried, found, a title, laws, seen of four
    assert f"Note: {plain}" in list(shown(one)) and "\x1b" not in grade_markdown(grade)


@settings(max_examples=200)
@given(st.text(st.sampled_from("ab1 \\`*_[]()|~$#<>&;:!-+.=\n\t\"'@/é漢")))
def test_any_text_is_one_cell_and_reads_as_it_was(text: str) -> None:
    tokens = read(f"| a | b |\n| --- | --- |\n| {escaped(text)} | x |")
    assert [token.type for token in tokens].count("td_open") == 2
    assert list(shown(tokens))[2:] == [escape(words.on_one_line(text)).strip(" "), "x"]


def test_names_of_sizes_stay_readable() -> None:
    assert escaped("sqrt(d_model) = 5.66") == "sqrt(d_model) = 5.66"
    assert escaped("a < b & c") == "a &lt; b &amp; c"
    assert escaped("__init__ of *x*") == r"\_\_init\_\_ of \*x\*"


def test_each_fault_is_explained_once_and_mended() -> None:
    for grade in (g.ONE, g.TWO, g.MIXED):
        text = grade_markdown(grade)
        for fault in grade.faults:
            assert text.count(escaped(fault.explanation)) == 1 and f"\n\nInstead: {escaped(fault.instead)}\n" in text
            assert not fault.place or f"\n\nMost likely at {fault.place}.\n" in text
        assert text.count("\nFound: ") <= len(grade.faults)
    assert "the variant with these 2 faults to 3.1e-8" in grade_markdown(g.TWO)


def test_a_class_has_every_fault_once_with_who_has_it() -> None:
    text = grades_markdown(g.CLASS)
    assert text.count(f"\n### {g.SCALE.title}\n") == 1
    assert "In 3 blocks: ben\\_and" not in text  # an underscore within a word needs no escape
    assert "In 3 blocks: ben_and_carla.py (line 41), dora.ipynb (cell 3), emil/attention.py (line 41)" in text
    assert text.index("### scale by the full width") < text.index("### heads merged by a view")
    assert "## Faults" not in grades_markdown([g.RIGHT, g.RAISES])
