from __future__ import annotations

import re
from base64 import b64decode
from html.parser import HTMLParser
from xml.etree import ElementTree

from mhsa_cli.renderers.files.formats import to_fragment, to_html
from mhsa_cli.renderers.kit.palette import PLAIN
from mhsa_cli.renderers.kit.text_lines import Lines, assemble
from mhsa_cli.renderers.pictures.curve import loss_curve
from tests.renderers.drawn import falling, on


class Reader(HTMLParser):
    """Collects the tags in order and the text between them."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""
        self.mismatched: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag not in ("meta", "img"):
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: object) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.mismatched.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_a_page_is_one_file_with_the_picture_and_its_text() -> None:
    picture = loss_curve([falling(50)], on(60, "none"))
    page = to_html(picture, title="run [/x] </title>")
    reader = Reader()
    reader.feed(page)
    assert reader.open == [] and reader.mismatched == []
    assert "run [/x] </title>" in reader.text
    assert page.count("<svg ") == 1 and reader.text.count(picture.plain) == 1
    assert not re.search(r"<script|<link|<img|href|url\(|@import", page)


def test_a_fragment_is_an_image_and_its_text_whatever_is_written() -> None:
    """The image is a document of its own: neither its styles nor its text reach the page around it."""
    evil = "</svg><script>alert(1)</script>\" onload='x' $x$ \x1b[31m \ud800"
    picture = Lines([*loss_curve([falling(50)], on(60, "none")), assemble([(evil, PLAIN)])])
    page = to_fragment(picture, title=evil)
    reader = Reader()
    reader.feed(page)
    assert re.findall(r"<(\w+)", page) == ["img", "details", "summary", "pre"]
    assert reader.mismatched == [] and reader.open == [] and "<script>" in reader.text
    image = re.search(r'base64,([\w+/=]+)"', page)
    assert image is not None
    assert "<script>" in "".join(ElementTree.fromstring(b64decode(image[1])).itertext())
