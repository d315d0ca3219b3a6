"""The page of a report as a text: one file that asks for nothing, and whose data come back as they were."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from hashlib import sha256
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.renderers.report import page as page_module
from mhsa_cli.renderers.report.page import SCRIPTS, report_page
from tests.renderers.reported import run, runs, sweep

FOLDER = Path(page_module.__file__).parent
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "<img src=x onerror=alert(1)>",
    "&amp;",
    "a\u2028b\u2029",
    "\x00\x1b[31m",
    "'\"`${1}",
]


class Parsed(HTMLParser):
    """The elements of a page, with what stands in its blocks."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.blocks: list[str] = []
        self.inside = False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self.inside = tag in ("script", "style", "title")
        if self.inside:
            self.blocks.append("")

    def handle_endtag(self, tag: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.blocks[-1] += data

    def block(self, tag: str, **attributes: str) -> str:
        blocks = [one for one in self.elements if one[0] in ("script", "style", "title")]
        at = [i for i, (name, has) in enumerate(blocks) if name == tag and attributes.items() <= has.items()]
        return self.blocks[at[-1]]


@pytest.mark.parametrize("document", [runs(), runs(run(), run("run-b")), sweep()], ids=["run", "two", "sweep"])
def test_the_data_come_back_equal(document: dict[str, Any]) -> None:
    assert json.loads(Parsed(report_page(document, title="x")).block("script", id="data")) == document


def test_no_text_ends_its_block() -> None:
    names = run("".join(HOSTILE), sentences=HOSTILE, tokens=HOSTILE, facts=[[one, one] for one in HOSTILE])
    text = report_page(runs(names), title=HOSTILE[0])
    parsed = Parsed(text)
    block = parsed.block("script", id="data")
    assert json.loads(block) == runs(names) and not set("<>&\u2028\u2029") & set(block)
    assert parsed.block("title") == HOSTILE[0]
    assert [tag for tag, _ in parsed.elements] == [tag for tag, _ in Parsed(report_page(runs(), title="x")).elements]


def test_the_page_asks_for_nothing() -> None:
    text = report_page(runs(), title="x")
    parsed = Parsed(text)
    links = [
        (tag, name, value) for tag, has in parsed.elements for name, value in has.items() if name in ("src", "href")
    ]
    assert links == [("link", "href", "data:,")]
    assert set(re.findall(r"[a-z]+://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}
    assert not re.search(r"url\(|@import|\bimport\(|fetch\(|XMLHttpRequest|WebSocket|sendBeacon", text)


def test_the_policy_lets_only_its_own_script_and_style_work() -> None:
    parsed = Parsed(report_page(runs(), title="x"))
    [policy] = [has["content"] for tag, has in parsed.elements if has.get("http-equiv") == "Content-Security-Policy"]
    rules = dict(rule.strip().split(" ", 1) for rule in (policy or "").split(";"))
    hashes = [b64encode(sha256(parsed.block(tag).encode()).digest()).decode() for tag in ("style", "script")]
    assert rules["default-src"] == "'none'"
    assert [rules["style-src"], rules["script-src"]] == [f"'sha256-{one}'" for one in hashes]


def test_no_number_is_outside_json() -> None:
    with pytest.raises(ValueError):
        report_page(runs(run(step=float("nan"))), title="x")


def test_the_script_makes_no_markup_of_a_text() -> None:
    """And every file is in the page, and none has grown beyond a file's size."""
    scripts = {path.stem: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.js")}
    assert set(scripts) == set(SCRIPTS)
    for name, text in scripts.items():
        assert not re.search(
            r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser", text
        ), name
        assert text.count("\n") <= 400
