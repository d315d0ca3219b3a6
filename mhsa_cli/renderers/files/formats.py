"""File formats of pictures, by the ending of the file name."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable

from mhsa_cli.renderers.files.png import to_png
from mhsa_cli.renderers.files.svg import to_svg, xml_text
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.text import escape

_CSS = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;"
    "color:#1f2328;background:#f6f8fa}"
    "h1{font-size:1.6rem}svg{max-width:100%;height:auto}"
    "pre{overflow-x:auto;font-size:.8rem;line-height:1.2}summary{cursor:pointer;opacity:.7}"
    "@media (prefers-color-scheme:dark){body{color:#e6e6e6;background:#151515}}"
)


def to_html(lines: Lines, *, title: str) -> str:
    """Write a self-contained page with a picture under its title."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{xml_text(title)}</title>",
        f"<style>{_CSS}</style></head>",
        f"<body><h1>{xml_text(title)}</h1>",
        to_svg(lines, title=title),
        f"<details><summary>as text</summary><pre>{xml_text(lines.plain)}</pre></details>",
        "</body></html>",
        "",
    ]
    return "\n".join(parts)


def to_fragment(lines: Lines, *, title: str) -> str:
    """Write a part of a page: the picture as an image, which no style of the page changes, and its text below."""
    image = b64encode(to_svg(lines, title=title).encode()).decode("ascii")
    alt = xml_text(title).replace('"', "&quot;")
    return (
        f'<img alt="{alt}" style="max-width:100%" src="data:image/svg+xml;base64,{image}">\n'
        f"<details><summary>as text</summary><pre>{xml_text(lines.plain)}</pre></details>"
    )


def to_txt(lines: Lines, title: str) -> str:
    """Write the picture as plain text under its title."""
    return f"{escape(title)}\n\n{lines.plain}\n" if title else f"{lines.plain}\n"


# By ending; each takes a picture and its title and returns the bytes of the file.
RENDERERS: dict[str, Callable[[Lines, str], bytes]] = {
    "svg": lambda lines, title: to_svg(lines, title=title).encode(),
    "html": lambda lines, title: to_html(lines, title=title).encode(),
    "png": lambda lines, title: to_png(lines, title=title),  # raises UsageError without Pillow
    "txt": lambda lines, title: to_txt(lines, title).encode(),
}
