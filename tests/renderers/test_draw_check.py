from __future__ import annotations

import math
from dataclasses import replace
from operator import itemgetter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.text import Text

from mhsa_cli.records.check import REFERENCE, Grade, Law, NamedFault, Note
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.pictures import check_words as words
from mhsa_cli.renderers.pictures.check import fitted_grade, grade_picture, grades_table
from tests.renderers import graded as g
from tests.renderers.drawn import COLOR, SURFACES, golden, on

REPORTS = [g.ONE, g.TWO, g.MIXED, g.UNKNOWN, g.RIGHT, g.EDGE, g.RAISES, g.HANGS, g.REMARKED, g.UNCLEAR]


def said(grade: Grade, width: int = 120) -> str:
    """Give a report as one line of words."""
    return " ".join(grade_picture(grade, on(width)).plain.split())


@pytest.mark.parametrize("width", [60, 80, 120])
def test_reports_stay_as_they_were(width: int) -> None:
    rule = "\n\n" + "-" * width + "\n\n"
    golden(f"check-{width}", rule.join(grade_picture(one, on(width)).plain for one in REPORTS))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_the_table_of_a_class_stays_as_it_was(width: int) -> None:
    golden(f"check-class-{width}", grades_table(g.CLASS, on(width)).plain)


def test_ascii_without_colour_stays_as_it_was() -> None:
    ascii_only = [replace(one, block=one.block.replace("ü", "u")) for one in g.CLASS]
    parts = [grade_picture(g.ONE, on(70, "ascii")).plain]
    text = "\n\n".join([*parts, grades_table(ascii_only, on(70, "ascii")).plain])
    assert text.isascii()
    golden("check-70-ascii", text)


def fits(line: Text, width: int) -> bool:
    """Tell whether a line keeps within the width; one word, which may have to be typed, is not broken."""
    return line.cell_len <= width or " " not in line.plain.strip(" ")


@pytest.mark.parametrize("surface", sorted(SURFACES))
def test_nothing_is_wider_than_its_width_or_moves_the_cursor(surface: str) -> None:
    grades = [*g.CLASS, *(g.hostile(verdict) for verdict in words.VERDICTS)]
    for width in range(20, 201, 7):
        pictures = [grade_picture(grade, on(width, surface)) for grade in grades]
        for picture in [*pictures, grades_table(grades, on(width, surface))]:
            assert all(fits(line, width) and line.plain.isprintable() for line in picture)


@settings(max_examples=60)
@given(texts=st.lists(st.text(max_size=90), min_size=7, max_size=7), figure=st.floats(), width=st.integers(20, 200),
       verdict=st.sampled_from(sorted(words.VERDICTS)))  # fmt: skip
def test_any_texts_and_figures_keep_within_the_width(texts: list[str], figure: float, width: int, verdict: str) -> None:
    a, b, c, d, e, f, h = texts
    laws = [Law(a, passed, figure, b, edge) for passed in (True, False, None) for edge in (True, False)]
    fault, remarks = NamedFault(f, h, a, 3, b, figure, f), [Note("x", text) for text in (c, d, e)]
    grade = Grade(c, verdict, {d: e}, laws, [fault], remarks[:2], remarks[2:], 1.0)  # type: ignore[arg-type]
    pictures = [grade_picture(one, on(width)) for one in (grade, replace(grade, faults=[], tried=[]))]
    for picture in [*pictures, grades_table([grade, g.ONE], on(width))]:
        assert all(fits(line, width) and line.plain.isprintable() for line in picture)


def test_the_verdict_comes_first_in_one_sentence() -> None:
    assert said(g.RIGHT).startswith("right: 4 laws hold; equal to the reference to 3e-15 my_attention.py:")
    assert said(g.EDGE).startswith("right: 4 laws hold; equal to the reference to 3e-15; fails at an edge: scores")
    assert said(g.ONE).startswith(f"wrong: {g.SCALE.explanation} submissions/")
    assert said(g.TWO).startswith(f"wrong in 2 ways: {g.MERGE.explanation} submissions/")
    for grade, law in ((g.UNKNOWN, g.FAILING[1]), (replace(g.UNKNOWN, laws=g.FAILING[:1]), g.FAILING[0])):
        sentence = said(grade).partition(" submissions/")[0]
        assert sentence.startswith("wrong: ") and sentence.endswith(f": {law.title} ({law.finding})")
    assert said(g.HANGS).startswith(f"timed out: {g.HANGS.tried[0].text} submissions/")
    assert said(g.RAISES).startswith("cannot be called: 3 attempts failed submissions/")


def test_each_fault_is_explained_once_with_its_place_and_what_to_write() -> None:
    for grade in (g.ONE, g.TWO, g.MIXED, replace(g.RIGHT, faults=[g.MERGE])):
        text = said(grade)
        for fault in grade.faults:
            assert text.count(fault.explanation) == 1 and f"instead: {fault.instead}" in text
            assert fault.title in text
            assert not fault.place or f"{fault.title}: most likely at {fault.place} " in text


def test_how_a_fault_is_known_is_said_of_one_variant_once() -> None:
    assert said(g.ONE).count("your output equals the variant with this fault to 3.1e-8") == 1
    assert said(g.TWO).count("your output equals") == 1
    assert "your output equals the variant with these 2 faults to 3.1e-8" in said(g.TWO)
    assert "shown by a law" in said(g.MIXED) and "the variant with this fault to 3.1e-8" in said(g.MIXED)
    laws = [g.BUFFER, replace(g.BUFFER, id="input_changed_in_place")]
    assert said(replace(g.TWO, faults=laws)).count("shown by a law") == 2
    apart = replace(g.TWO, faults=[g.MERGE, replace(g.SCALE, max_difference=2e-4)])
    assert said(apart).count("the variant with this fault to") == 2


def test_laws_that_fail_come_first_with_their_finding() -> None:
    lines = grade_picture(g.ONE, COLOR).plain.splitlines()
    table_of_laws = lines[[line.split() for line in lines].index(["law", "result", "max", "diff"]) + 1 :]
    assert [line.split("  ")[0] for line in table_of_laws[:10]] == [
        "the output equals the reference",
        "",
        "a later token changes nothing before it",
        "",
        "scores of 1e4 stay finite",
        "",
        "rows of the batch do not mix",
        "any number of tokens up to max_seq_len",
        "the returned weights sum to one",
        "",
    ]
    assert table_of_laws[1] == f"  {g.FAILING[0].finding}" and table_of_laws[9] == f"  {g.LAWS[3].finding}"


def test_every_attempt_and_every_note_is_shown_once() -> None:
    text = said(g.RAISES)
    for tried in g.RAISES.tried:
        assert text.count(" ".join(tried.text.split())) == 1
    assert "note: the package einops is missing: pip install einops" in text
    bare = said(replace(g.RAISES, tried=[]))
    assert bare.startswith("cannot be called: the package einops is missing") and "note:" not in bare
    assert said(replace(g.RAISES, tried=[], notes=[])).startswith("cannot be called: the cause is not known")
    assert said(g.HANGS).count(g.HANGS.tried[0].text) == 1


def test_the_next_step_can_be_typed_as_it_is() -> None:
    assert said(g.RIGHT).endswith("train it: mhsa train model.attention=my_attention.py:CausalSelfAttention")
    assert said(g.ONE).endswith("mhsa check 'submissions/week 3/ben_and_carla.py:CausalSelfAttention'")
    assert "--with" not in said(g.HANGS)
    unknown = replace(g.HANGS, tried=[Note("unknown_argument", "whatever it says", {"name": "gain"})])
    assert said(unknown).endswith("hana.md:CausalSelfAttention' --with gain=VALUE")
    assert said(replace(g.HANGS, tried=[Note("build", "whatever it says")])).endswith("Attention' --with NAME=VALUE")
    for codes in ({"kind": "numpy_function"}, {"kind": "module", "mask": "none"}, {}):
        assert "mhsa train" not in said(replace(g.RIGHT, codes=codes))


def test_nothing_is_said_that_is_not_there() -> None:
    bare = Grade("a.py:A", "wrong", {}, [], [], [])
    assert said(bare) == "wrong: no known variant matches a.py:A after a change: mhsa check a.py:A"
    assert said(replace(bare, verdict="right")) == "right: 0 laws hold a.py:A"
    nameless = replace(g.SCALE, place="", instead="", max_difference=None)
    assert "at line" not in said(replace(bare, faults=[nameless])) and "instead" not in said(bare)


def test_a_class_has_a_row_each_and_a_summary() -> None:
    wide = grades_table(g.CLASS, on(120)).plain.splitlines()
    assert wide[0] == "CausalSelfAttention of the files in submissions/week 3/"
    assert wide[1].split() == ["block", "verdict", "where", "faults", "remarks"]
    assert " ".join(wide[4].split()).startswith("ben_and_carla.py WRONG line 41 scale by the full width")
    end = wide.index("11 blocks: 3 right, 4 wrong, 1 not callable, 1 not clear, 1 timed out, 1 nothing to grade")
    assert [line.split()[-1] for line in wide[end + 2 :]] == ["blocks", "3", "1", "1"]
    narrow = grades_table(g.CLASS, COLOR).plain.splitlines()
    at = narrow.index("ben_and_carla.py   WRONG             line 41")
    assert narrow[at + 1].startswith("  scale by the full width; ")


def test_a_remark_is_no_fault_of_a_class() -> None:
    assert words.finding(g.REMARKED) == words.place(g.REMARKED) == "" and words.by_fault([g.REMARKED]) == []
    assert words.remarks(g.REMARKED) == [
        g.AFTER_DROPOUT.title,
        f"fails: {g.LAWS[5].title}",
    ]  # its law is the same remark
    beside = replace(g.REMARKED, verdict="wrong", faults=[g.AFTER_DROPOUT, g.SCALE])
    assert words.opening(beside) == "wrong" and words.place(beside) == g.SCALE.place
    assert said(beside).startswith(f"wrong: {g.SCALE.explanation}") and said(beside).count("remark: ") == 1


def test_no_law_fails_where_the_grade_is_not_clear() -> None:
    state = {law.id: words.state_of(law, g.UNCLEAR) for law in g.UNCLEAR.laws}
    assert state[REFERENCE] == "open" and "fails" not in state.values()
    assert words.state_of(g.UNCLEAR.laws[0], g.RIGHT) == "not tested"


def test_of_many_attempts_the_first_are_shown() -> None:
    shown = words.attempts(g.MANY)
    assert len(shown) == 5 and shown[:4] == [f"attempt {number}" for number in range(4)] and "5" in shown[4]
    long = words.attempts(replace(g.MANY, tried=[Note("call", "x" * 10_000)]))
    assert len(long[0]) < 400


def test_a_measured_mask_is_drawn() -> None:
    lines = [line.strip() for line in grade_picture(g.UNCLEAR, on(60)).plain.splitlines()]
    at = lines.index("x . .")
    assert lines[at : at + 3] == ["x . .", "x x .", ". x x"]


def test_the_summary_counts_a_fault_once_a_block() -> None:
    assert words.remarks(g.RAISES)[0].endswith("'cfg' (and 2 more)")
    assert words.summary([]) == "0 blocks: nothing was graded"
    assert words.summary([g.RIGHT]) == "1 block: 1 right"
    twice = replace(g.ONE, faults=[g.SCALE, g.SCALE])
    counted = words.by_fault([replace(g.ONE, faults=[g.MERGE]), g.TWO, twice, g.ONE])
    assert [(fault.id, len(owners)) for fault, owners in counted] == [(g.SCALE.id, 3), (g.MERGE.id, 2)]


@pytest.mark.parametrize(
    ("blocks", "names", "shared"),
    [
        (["a/x.py:A", "a/y/x.py:A"], ["x.py", "y/x.py"], "A of the files in a/"),
        (["a/x.py:A", "a/y.py:B"], ["x.py:A", "y.py:B"], "files in a/"),
        (["ax.py:A", "ay.py:B"], ["ax.py:A", "ay.py:B"], ""),
        (["ax.py:A", "ay.py:A"], ["ax.py", "ay.py"], "A of the files"),
        (["a/x.py:A"], ["a/x.py:A"], ""),
        (["a/x.py", "a/y.py:A"], ["x.py", "y.py:A"], "files in a/"),
        (["a/x.py", "a/y.py"], ["x.py", "y.py"], "files in a/"),
        (["x.py", "y.py:A"], ["x.py", "y.py:A"], ""),
    ],
)
def test_what_all_blocks_share_is_shown_once(blocks: list[str], names: list[str], shared: str) -> None:
    assert words.short_names(blocks) == (names, shared)


def test_a_folder_without_a_block_shares_its_place_only() -> None:
    assert words.short_names(["a/x.py:A", "a/y.py:A", "a/z"], ["a/z"]) == (
        ["x.py", "y.py", "z"],
        "A of the files in a/",
    )


@pytest.mark.parametrize("width", [20, 40, 60, 100])
def test_a_name_that_may_have_to_be_typed_is_never_cut(width: int) -> None:
    long = "all/week_one/a_student_with_a_long_name/my_very_own_attention.py:A"
    for surface in (on(width), replace(on(width), bounded=False)):
        text = grades_table([g.RIGHT, replace(g.ONE, block=long)], surface).plain
        assert long in text and text.index(long) < text.index("WRONG")
        assert any(long in line and "WRONG" in line for line in text.splitlines()) == (
            width == 100 or not surface.bounded
        )


def test_every_fault_reads_as_words() -> None:
    from mhsa_cli.check.faults import FAULTS

    read = [fault.title for fault in FAULTS.values()]
    assert len(set(read)) == len(read) and all("_" not in name for name in read)


def test_a_figure_that_is_no_number_is_shown() -> None:
    wild = replace(g.ONE, faults=[replace(g.SCALE, max_difference=math.nan)], seconds=math.inf)
    assert "to NaN" in said(wild) and "graded in inf s" in said(wild)


def test_a_table_sets_a_text_under_its_row() -> None:
    rows = [["a", "1"], ["b", "2"]]
    columns = [Column("x", itemgetter(0)), Column("y", itemgetter(1))]
    lines = table(columns, rows, on(22), under=lambda row: "under a, over two lines" if row[0] == "a" else "")
    assert lines.plain.splitlines() == ["x  y", "a  1", "  under a, over two", "  lines", "b  2"]


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("rows", [1, 15, 23, 40, 200])
def test_a_report_in_few_rows_keeps_the_verdict_the_faults_and_the_way_on(rows: int, width: int) -> None:
    surface = on(width)
    for grade in REPORTS:
        whole, shown = grade_picture(grade, surface).plain, fitted_grade(grade, surface, rows).plain
        assert shown == whole if len(whole.splitlines()) <= rows else len(shown) <= len(whole)
        assert shown.splitlines()[0] == whole.splitlines()[0] and shown.splitlines()[-1] == whole.splitlines()[-1]
        failed = [law.title for law in grade.laws if words.state_of(law, grade) not in words.PLAIN_STATES]
        assert all(title in " ".join(shown.split()) for title in failed)
        left_out = [law for law in grade.laws if words.state_of(law, grade) in words.PLAIN_STATES]
        if shown != whole and left_out:
            counts = [int(word) for word in words.unlisted(grade, [], False).split() if word.isdigit()]
            assert sum(counts) == len(grade.laws) and "-v" in shown
