"""Draws the picture of docs/how-to/report.md: `python -m tests.browser.pictures PAGE.html docs/images/report.png`."""

from __future__ import annotations

import io
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

from tests.browser.conftest import FLAGS, find_chromium

SIZE = {"width": 1280, "height": 1180}


def main(page: Path, picture: Path) -> None:
    """Show the page with its first writer of a circuit switched off, and save a PNG of 256 colours."""
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=find_chromium(), args=FLAGS)
        shown = browser.new_page(viewport=SIZE)
        shown.goto(page.resolve().as_uri())
        shown.locator(".switch").nth(1).click()
        shown.locator(".body").evaluate("body => window.scrollTo(0, body.offsetTop - 72)")
        shown.mouse.move(5, 5)
        shown.wait_for_timeout(300)
        image = Image.open(io.BytesIO(shown.screenshot()))
        browser.close()
    image.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
