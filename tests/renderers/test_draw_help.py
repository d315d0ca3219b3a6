from __future__ import annotations

import pytest

from mhsa_cli.renderers.pictures.help import help_page
from tests.commands.shell import mhsa
from tests.renderers.drawn import golden


@pytest.mark.parametrize("width", [60, 120])  # of 80: docs/reference/commands.md
def test_the_help(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    golden(f"help-{width}", "\n".join(mhsa(*command, "--help").out for command in ([], ["train"], ["generate"])))


def test_headings_and_names_are_told_apart_by_spans() -> None:
    """A style of a whole line, which is no span, would not be printed."""
    for width in (40, 80):
        lines = help_page("mhsa x", ["What it does."], ["mhsa x y"], [("Options", [("--a", "text")])], width=width)
        styled = {line.plain.split()[0]: str(line.spans[0].style) for line in lines if line.spans}
        assert (
            styled["Options"] == "dim"
            and styled["Usage:"] == "bold"
            and "bold" in (styled.get("--a"), styled.get("--a:"))
        )
        assert not any(line.style for line in lines)
