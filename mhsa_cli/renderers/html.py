"""A report as one HTML file: pictures as inline SVG, the same in words for who cannot see them, nothing to load."""

from __future__ import annotations

from collections.abc import Sequence

from mhsa_cli.renderers.lines import Lines
from mhsa_cli.renderers.svg import escape, to_svg

_CSS = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;padding:0 1rem;"
    "color:#1f2328;background:#f6f8fa}"
    "h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2.2rem}svg{max-width:100%;height:auto}"
    "pre{overflow-x:auto;font-size:.8rem;line-height:1.2}summary{cursor:pointer;opacity:.7}"
    "@media (prefers-color-scheme:dark){body{color:#e6e6e6;background:#151515}}"
)


def to_html(sections: Sequence[tuple[str, str, Lines]], *, title: str) -> str:
    """Write a page from sections of heading, a sentence (or "") and a picture; the file depends on no other."""
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>{escape(title)}</title>",
        f"<style>{_CSS}</style></head>",
        f"<body><h1>{escape(title)}</h1>",
    ]
    for heading, sentence, lines in sections:
        parts.append(f"<section><h2>{escape(heading)}</h2>")
        if sentence:
            parts.append(f"<p>{escape(sentence)}</p>")
        parts.append(to_svg(lines.lines, title=heading))
        parts.append(f"<details><summary>as text</summary><pre>{escape(lines.plain)}</pre></details></section>")
    return "\n".join([*parts, "</body></html>", ""])
