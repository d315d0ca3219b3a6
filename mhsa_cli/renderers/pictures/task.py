"""A task as an example: an input row over its target row."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest

from rich.cells import cell_len

from mhsa_cli.records.training import TaskInfo
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD, DIM, PLAIN
from mhsa_cli.renderers.kit.text_lines import Lines, assemble, cut, pad, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.text import escape

LONGEST = 8  # columns of a token; a longer one is cut


def task_picture(info: TaskInfo, surface: Surface) -> Lines:
    """Draw a task: its summary, an input row over its target row in the same columns, chance level and baselines."""
    width, mark = surface.width, surface.glyphs.cut_text
    lines = wrap_phrases([[(info.name, BOLD)], info.summary], width)
    pairs = []
    for upper, lower in zip_longest(info.inputs, info.targets, fillvalue=""):
        texts = escape(upper), surface.glyphs.dot if lower == "·" else escape(lower)
        size = min(LONGEST, max(map(cell_len, texts)))
        pairs.append([" " + pad(cut(text, size, mark), size, "right") for text in texts])
    while pairs:
        count, used = 1, len("  target ") + cell_len(pairs[0][0])
        while count < len(pairs) and (used := used + cell_len(pairs[count][0])) <= width:
            count += 1
        for title, row in (("  input  ", 0), ("  target ", 1)):
            lines.append(assemble([(title, DIM), *((pair[row], PLAIN) for pair in pairs[:count])]))
        pairs = pairs[count:]
    chance = f"chance level: loss {fixed(info.chance_loss, 4)} nats, accuracy {percents(info.chance_accuracy)}"
    lines += wrap_phrases([chance], width, DIM)
    return lines + (wrap_phrases([baselines_text(info.baselines)], width, DIM) if info.baselines else Lines())


def baselines_text(baselines: Mapping[str, float]) -> str:
    """Write the losses of simpler ways to answer."""
    return "baselines: " + ", ".join(f"{escape(name)} {fixed(loss, 4)}" for name, loss in baselines.items()) + " nats"
