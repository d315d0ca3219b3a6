from __future__ import annotations

import re
from html.parser import HTMLParser

from mhsa_cli.renderers.files.formats import to_html
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
        if tag != "meta":
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
