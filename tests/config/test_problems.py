from __future__ import annotations

from mhsa_cli.config.problems import EXCERPT, SHOWN, ConfigError, Problem
from mhsa_cli.text import escape


def test_caret_stands_under_the_value() -> None:
    problem = Problem("a.yaml", 3, 7, "found x, wanted y", "did you mean `z`?", "  lr: abc", 3)
    assert str(problem) == "a.yaml:3:7: found x, wanted y\n      lr: abc\n          ^^^\n  did you mean `z`?"


def test_caret_counts_wide_characters_twice_and_marks_not_at_all() -> None:
    wide = Problem("a.yaml", 1, 6, "m", None, "字e\u0301: xy", 2)
    assert str(wide).splitlines()[1:] == ["    字e\u0301: xy", "    " + " " * 5 + "^^"]


def test_long_lines_are_cut_around_the_value() -> None:
    line = "a" * 203 + "BAD" + "b" * 307
    _, shown, caret = str(Problem("a.yaml", 1, 204, "m", None, line, 3)).splitlines()
    at = caret.index("^")
    assert shown[at : at + 3] == "BAD"
    assert caret.count("^") == 3
    assert shown.strip().startswith("...")
    assert shown.strip().endswith("...")
    assert len(shown) <= EXCERPT + 10


def test_caret_of_a_long_value_ends_with_the_excerpt() -> None:
    _, shown, caret = str(Problem("a.yaml", 1, 4, "m", None, "k: " + "x" * 500, 500)).splitlines()
    assert len(caret) == len(shown.removesuffix("..."))


def test_tabs_and_escapes_are_shown_and_counted() -> None:
    _, shown, caret = str(Problem("a.yaml", 1, 4, "m", None, "\ta\x1bB", 1)).splitlines()
    assert shown == r"    \ta\x1bB"
    assert shown[caret.index("^")] == "B"


def test_undecodable_bytes_of_a_path_are_escaped() -> None:
    assert escape("caf\udce9.yaml") == r"caf\xe9.yaml"
    assert str(Problem("caf\udce9.yaml", 1, None, "m")) == r"caf\xe9.yaml:1: m"


def test_brackets_and_colons_are_left_as_they_are() -> None:
    assert escape("[red]x[/] :smile:") == "[red]x[/] :smile:"


def test_problems_come_in_the_order_of_the_file_and_overrides_last() -> None:
    override = Problem("lr=x", 1, 4, "o", override=True)
    error = ConfigError([override, Problem("a", 9, 1, "z"), Problem("a", 10, 5, "y"), Problem("a", 9, 3, "x")])
    assert [problem.message for problem in error.problems] == ["z", "x", "y", "o"]


def test_equal_problems_are_shown_once_and_hundreds_are_counted() -> None:
    assert len(ConfigError([Problem("a", 1, 1, "m")] * 3).problems) == 1
    many = ConfigError(Problem("a", line, 1, "m") for line in range(SHOWN + 7))
    assert str(many).endswith("... and 7 more problems")
    assert len(many.problems) == SHOWN + 7
