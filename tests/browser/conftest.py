"""Pages of a report in a headless Chromium, and whatever they said or asked for."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mhsa_cli.renderers.report.page import report_page
from tests.renderers.reported import runs

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

# A test page is small and stays on this machine.
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


@dataclass
class Opened:
    """A page, the messages of its console and its uncaught errors, and the addresses that it asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def text(self, selector: str) -> str:
        return self.page.locator(selector).first.inner_text()

    def step(self, number: int) -> None:
        """Move the slider to the recorded step of this number."""
        self.page.locator(".player input").evaluate(
            "(slider, at) => { slider.value = at; slider.dispatchEvent(new Event('input')); }", number
        )

    def pixels(self, head: int) -> list[list[int]]:
        """Return a map's colours, row by row: [red, green, blue, alpha]."""
        script = "map => [...map.getContext('2d').getImageData(0, 0, map.width, map.height).data]"
        flat = self.page.locator(".map").nth(head).evaluate(script)
        return [flat[at : at + 4] for at in range(0, len(flat), 4)]


def find_chromium() -> str | None:
    """Return the path of this machine's Chromium; None if it has none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the extra `browser`")
    program = find_chromium()
    if program is None:
        pytest.skip("needs Chromium (apt-get install chromium)")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=program, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: Browser, tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Open the page of a document in a window of its own; at the end no page may have said or asked anything."""
    found: list[Opened] = []
    contexts = []

    def open_page(document: dict[str, Any] | None = None, width: int = 1200, **settings: Any) -> Opened:
        path = tmp_path / f"page-{len(found)}.html"
        path.write_text(report_page(document or runs(), title="a report"), encoding="utf-8")
        context = chromium.new_context(viewport={"width": width, "height": 900}, **settings)
        contexts.append(context)
        one = Opened(context.new_page())
        one.page.on("console", lambda message: one.said.append(message.text))
        one.page.on("pageerror", lambda error: one.said.append(str(error)))
        one.page.on("request", lambda request: one.asked.append(request.url))
        one.page.goto(path.as_uri())
        one.page.wait_for_selector("main")
        found.append(one)
        return one

    yield open_page
    for context in contexts:
        context.close()
    assert [one.said for one in found] == [[] for _ in found]
    assert [[url for url in one.asked if not url.startswith(("file:", "data:"))] for one in found] == [
        [] for _ in found
    ]
    assert all(len([url for url in one.asked if url.startswith("file:")]) == 1 for one in found)
