from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.style import Style
from rich.text import Text

from mhsa_cli.records.training import Series
from mhsa_cli.renderers.files.formats import RENDERERS
from mhsa_cli.renderers.files.svg import to_svg
from mhsa_cli.renderers.files.vector_marks import CELL_WIDTH
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.pictures.curve import Level, loss_curve
from mhsa_cli.renderers.pictures.heatmap import head_maps
from tests.renderers.drawn import COLOR, SURFACES, evals, falling, maps, on

NS = "{http://www.w3.org/2000/svg}"


def parts(svg: str, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(svg).iter(NS + tag))


def test_a_heatmap_of_colours_only_is_not_blank() -> None:
    svg = to_svg(head_maps(maps(12, 2), COLOR), title="heads")
    filled = [rect for rect in parts(svg, "rect") if rect.get("fill") and float(rect.get("width", 0)) >= CELL_WIDTH]
    assert len(filled) > 40 and len({rect.get("fill") for rect in filled}) > 10


def test_equal_neighbours_are_one_rectangle() -> None:
    line = Text.assemble(("  ", Style(bgcolor="#102030")), ("  ", Style(bgcolor="#102030")), ("  ", "on #405060"), "x")
    found = [rect for rect in parts(to_svg([line], title=""), "rect") if rect.get("fill")]
    assert [(rect.get("width"), rect.get("fill")) for rect in found] == [("32", "#102030"), ("16", "#405060")]


def test_it_says_what_it_is_and_loads_nothing() -> None:
    train = falling()
    svg = to_svg(loss_curve([train, evals(train)], COLOR), title="a <loss> & more")
    root = ElementTree.fromstring(svg)
    assert root.get("role") == "img" and parts(svg, "title")[0].text == "a <loss> & more"
    assert re.findall(r"\bhttps?:[^\"' ]*", svg) == ["http://www.w3.org/2000/svg"]  # the namespace, not a link
    assert not re.search(r"<script|<image|<use|href|url\(|@import|@font-face", svg)
    assert set(re.findall(r'font-family="([^"]*)"', svg)) == {"monospace"}


def test_lines_and_blocks_need_no_font() -> None:
    train = falling()
    lines = loss_curve([train, evals(train)], COLOR, levels=[Level(4.16, "guessing")])
    half = head_maps(maps(17, 3), COLOR)
    svg = to_svg([*lines, *half], title="")
    text = "".join(element.text or "" for element in parts(svg, "text"))
    assert "guessing" in text and not re.search("[\u2500-\u25ff\u2800-\u28ff]", text)
    assert len(parts(svg, "path")) > 50 and len(parts(svg, "circle")) >= 6


def test_every_word_is_stretched_to_its_cells() -> None:
    words = parts(to_svg([Text("ab 日本 e\u0301x")], title=""), "text")
    assert [(word.get("x"), word.get("textLength"), word.text) for word in words] == [
        ("14", "16", "ab"),
        ("38", "32", "日本"),
        ("78", "16", "e\u0301x"),
    ]


@given(st.lists(st.text(), max_size=5), st.text())
def test_any_text_is_well_formed(texts: list[str], title: str) -> None:
    svg = to_svg([Text(text) for text in texts], title=title)
    svg.encode("utf-8")
    root = ElementTree.fromstring(svg)
    assert float(root.get("width", "0")) > 0


def test_the_panel_follows_the_reader_and_text_follows_the_panel() -> None:
    svg = to_svg([Text("x")], title="")
    assert "prefers-color-scheme:dark" in svg
    assert parts(svg, "rect")[0].get("class") == "panel" and parts(svg, "text")[0].get("class") == "ink"


@pytest.mark.parametrize("name", sorted(RENDERERS))
@pytest.mark.parametrize("surface", sorted(SURFACES))
def test_every_format_takes_every_picture(name: str, surface: str) -> None:
    lines = loss_curve([Series("[/x] <&>", [1, 2], [2.0, 1.0])], on(70, surface))
    written = RENDERERS[name](lines, "title")
    assert b"title" in written and RENDERERS[name](Lines(), "")
    assert name == "png" or (written.endswith(b"\n") and b"/x" in written)
