"""Hand-made records and surfaces for the renderers' tests."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from rich.text import Text

from mhsa_cli.records.heads import HeadMaps, HeadSummary
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.glyphs import ASCII, BLOCKS

COLOR = Surface(width=80)
SURFACES: dict[str, Surface] = {
    "truecolor": COLOR,
    "256": replace(COLOR, depth="256"),
    "16": replace(COLOR, depth="16"),
    "none": replace(COLOR, depth="none"),
    "blocks": replace(COLOR, depth="16", glyphs=BLOCKS),
    "ascii": replace(COLOR, depth="none", glyphs=ASCII),
    "ascii-colour": replace(COLOR, glyphs=ASCII),
}


def on(width: int, kind: str = "truecolor") -> Surface:
    """Give a surface of so many columns."""
    return replace(SURFACES[kind], width=width)


GOLDEN = Path(__file__).parent / "golden"


def golden(name: str, text: str) -> None:
    """Compare with the stored picture; UPDATE_GOLDEN=1 stores what is drawn now."""
    path = GOLDEN / f"{name}.txt"
    if os.environ.get("UPDATE_GOLDEN") == "1":
        path.write_text(text + "\n", encoding="utf-8")
    assert text + "\n" == path.read_text(encoding="utf-8")


def falling(steps: int = 360, *, name: str = "train", middle: float = 75.0) -> Series:
    values = [0.003 + 4.155 / (1 + math.exp(min(700.0, (step - middle) / 11))) for step in range(1, steps + 1)]
    return Series(name, range(1, steps + 1), values)


def evals(train: Series, every: int = 60) -> Series:
    chosen = [i for i, step in enumerate(train.steps) if step % every == 0]
    return Series("eval", [train.steps[i] for i in chosen], [train.values[i] for i in chosen], "eval")


def uniform(q: int, k: int) -> float:
    return 1.0


def previous(q: int, k: int) -> float:
    return 1.0 if k == max(0, q - 1) else 0.0


def five_back(q: int, k: int) -> float:
    return 40.0 if k == q - 5 else 1.0


KINDS: tuple[Callable[[int, int], float], ...] = (uniform, previous, five_back)


def maps(
    length: int = 12, heads: int = 3, layers: int = 1, *, source: bool = False, task: str = "copy", nan_at: bool = False
) -> HeadMaps:
    weights, summaries = [], []
    for layer in range(layers):
        row = []
        for head in range(heads):
            matrix = []
            for q in range(length):
                raw = [KINDS[(layer + head) % 3](q, k) if k <= q else 0.0 for k in range(length)]
                total = sum(raw)
                matrix.append([value / total for value in raw])
            row.append(matrix)
            kind = (layer + head) % 3
            chance = (0.97, 0.11) if source else (None, None)
            summaries.append(HeadSummary(layer, head, (1.0, 0.0, 0.55)[kind], *chance))
        weights.append(row)
    if nan_at:
        weights[0][0][length - 1][0] = math.nan
    return HeadMaps(360, task, [str(7 * i % 64) for i in range(length)], weights, summaries)


def backgrounds(line: Text) -> list[str | None]:
    """The background colour of every cell of a line, None where there is none."""
    found: list[str | None] = [None] * len(line.plain)
    for span in line.spans:
        color = getattr(span.style, "bgcolor", None)
        for i in range(span.start, min(span.end, len(found))):
            found[i] = None if color is None else color.get_truecolor().hex
    return found
