"""The page: style, script and data in one file that can make no request."""

from __future__ import annotations

import html
import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from mhsa_cli.renderers.kit.palette import LINE_COLORS, viridis

# In the order of their definitions; main.js begins.
SCRIPTS = (
    *("dom", "numbers", "state", "chart", "curve", "maps", "ablation"),
    *("heads", "arrows", "run", "player", "sweep", "main"),
)
# What would end the block, or a line of a script, inside a string of the data.
_ESCAPES = {ord(one): f"\\u{ord(one):04x}" for one in "<>&\u2028\u2029"}


def report_page(document: Mapping[str, Any], *, title: str) -> str:
    """Return the whole page of a document of plain JSON: one self-contained HTML text.

    Every text of the document is data in a JSON block; the script sets it as text, never as markup. The policy lets
    the page load nothing and run its own script alone.
    """
    style, script = _style(), _script()
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    colors = {"shades": [viridis(level / 100) for level in range(101)], "lines": LINE_COLORS}
    return "\n".join([
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{html.escape(title)}</title>",
        '<link rel="icon" href="data:,">',
        f"<style>{style}</style>",
        "</head>",
        "<body>",
        "<noscript><p>Allow scripts to see this page: its maps and curves are drawn by one.</p></noscript>",
        f'<script type="application/json" id="data">{json_block(document)}</script>',
        f'<script type="application/json" id="colors">{json_block(colors)}</script>',
        f"<script>{script}</script>",
        "</body>",
        "</html>",
        "",
    ])  # fmt: skip


def json_block(value: object) -> str:
    """Write JSON for a block inside HTML: the same value, without a character that could end the block."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).translate(_ESCAPES)


@cache
def _style() -> str:
    return _read("report.css")


@cache
def _script() -> str:
    parts = [_read(f"{name}.js") for name in SCRIPTS]
    return "\n".join(["(() => {", '"use strict";', *parts, "})();"])


def _read(name: str) -> str:
    return (files("mhsa_cli.renderers.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + b64encode(sha256(text.encode()).digest()).decode()
