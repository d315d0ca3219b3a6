"""A terminal picture as a self-contained SVG file: no font to load, no script, no link."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from rich.text import Text

from mhsa_cli.renderers.files.vector_marks import CELL_HEIGHT, FONT_SIZE, Dots, Mark, Rect, Word, marks, size_of

# The reader's theme chooses; a viewer that knows no themes shows the light one.
_CSS = (
    ".panel{fill:#ffffff;stroke:#d0d7de}.ink{fill:#1f2328}.dim{opacity:.62}.bold{font-weight:bold}"
    "@media (prefers-color-scheme:dark){.panel{fill:#1e1e1e;stroke:#3d444d}.ink{fill:#e6e6e6}}"
)
# The characters that XML 1.0 cannot hold, not even escaped.
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str) -> str:
    """Make text safe inside XML: markup characters escaped, impossible characters removed."""
    return html.escape(_NOT_XML.sub("", text), quote=False)


def to_svg(lines: Sequence[Text], *, title: str) -> str:
    """Draw lines on a grid of cells, and return the text of the file; `title` is for screen readers."""
    width, height = size_of(lines)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_n(width)} {_n(height)}" width="{_n(width)}" '
        f'height="{_n(height)}" role="img" font-family="monospace" font-size="{FONT_SIZE}" '
        'shape-rendering="geometricPrecision">',
        f"<title>{xml_text(title)}</title>",
        f"<style>{_CSS}</style>",
        f'<rect class="panel" x="0.5" y="0.5" width="{_n(width - 1)}" height="{_n(height - 1)}" rx="6"/>',
        *map(_element, marks(lines)),
    ]
    return "\n".join([*parts, "</svg>", ""])


def _n(number: float) -> str:
    return f"{number:.2f}".rstrip("0").rstrip(".")


def _element(mark: Mark) -> str:
    if isinstance(mark, Rect):
        return _rect(mark)
    return _dots(mark) if isinstance(mark, Dots) else _word(mark)


def _ink(color: str | None, dim: bool, base: str = "") -> str:
    """Return the attributes of a mark in a style's foreground."""
    classes = [base] if base else []
    if color is None:
        classes.append("ink")
    if dim:
        classes.append("dim")
    fill = f' fill="{color}"' if color else ""
    return (f' class="{" ".join(classes)}"' if classes else "") + fill


def _rect(mark: Rect) -> str:
    place = f'x="{_n(mark.x)}" y="{_n(mark.y)}" width="{_n(mark.width)}" height="{_n(mark.height)}"'
    opacity = "" if mark.opacity == 1 else f' fill-opacity="{_n(mark.opacity)}"'
    edges = ' shape-rendering="crispEdges"' if mark.sharp else ""
    return f"<rect {place}{_ink(mark.color, mark.dim)}{opacity}{edges}/>"


def _dots(mark: Dots) -> str:
    """One dot is a circle; the dots of a line are one path, which is shorter."""
    r = _n(mark.radius)
    if mark.radius > 2:
        return "".join(
            f'<circle cx="{_n(x)}" cy="{_n(y)}" r="{r}"{_ink(mark.color, mark.dim)}/>' for x, y in mark.centres
        )
    turn = f"a{r} {r} 0 1 0 {_n(2 * mark.radius)} 0a{r} {r} 0 1 0 -{_n(2 * mark.radius)} 0"
    path = "".join(f"M{_n(x - mark.radius)} {_n(y)}{turn}" for x, y in mark.centres)
    return f'<path d="{path}"{_ink(mark.color, mark.dim)}/>'


def _word(mark: Word) -> str:
    """Write a word where its first cell is, stretched to its cells: any monospace font then aligns."""
    place = f'x="{_n(mark.x)}" y="{_n(mark.top + CELL_HEIGHT * 0.76)}"'
    size = f'textLength="{_n(mark.width)}" lengthAdjust="spacingAndGlyphs"'
    ink = _ink(mark.color, mark.dim, "bold" if mark.bold else "")
    return f"<text {place} {size}{ink}>{xml_text(mark.text)}</text>"
