"""The pictures in docs/reference/heads.md: the maps of hand-built heads on a few tokens, with their lifts.

python tests/core/pictures.py            write them there, each below its line `<!-- picture: NAME -->`
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import torch
from torch import Tensor

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from mhsa_cli.core.heads.capture import run_with_activations
from mhsa_cli.core.heads.probe import probe_of
from mhsa_cli.core.heads.scores import lifts, shape
from mhsa_cli.core.model.attention import causal_window
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import Batch
from mhsa_cli.records.labels import TARGETS, Label, Role
from tests.core.handmade import Attended, handmade, induction

DOCS = Path(__file__).parents[2] / "docs/reference/heads.md"
MIXED, BLOCKS, OTHERS = "a b c a d b c a", "a b c a b c a b", "a b c d a b c d"
SHADES = "·░▒▓█"  # of a weight: 0, above 0, 0.375, 0.625, and 0.875 or more

# By name in the docs: what is drawn, on which tokens, and whose lifts are written below. The head is the last one.
PICTURES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "previous": ("previous", MIXED, ("previous",)),
    "self": ("self", MIXED, ("self",)),
    "first": ("first", MIXED, ("first",)),
    "offset": ("offset", MIXED, ("offset",)),
    "duplicate": ("duplicate", MIXED, ("duplicate", "induction")),
    "induction": ("induction", MIXED, ("duplicate", "induction")),
    "uniform": ("uniform", MIXED, ("previous", "self", "first", "offset", "duplicate", "induction", "same")),
    "resembles": ("period 3", BLOCKS, ("offset", "induction")),
    "does not": ("period 3", OTHERS, ("offset", "induction")),
    "does": ("induction", OTHERS, ("offset", "induction")),
}


def shade(weight: float) -> str:
    """Draw a weight, 0 to 1."""
    if weight < 0.005:
        return SHADES[0]
    return SHADES[1 + sum(weight >= limit for limit in (0.375, 0.625, 0.875))]


def heatmap(weights: Tensor, tokens: list[str]) -> list[str]:
    """Draw one head's map (T, T): a row for each query, a column for each key; the masked future is left empty."""
    rows = [f"{token}  " + " ".join(shade(float(w)) for w in weights[q, : q + 1]) for q, token in enumerate(tokens)]
    return ["   " + " ".join(tokens), *rows]


def picture(name: str) -> str:
    """Build the head, run it on the tokens, and draw its map."""
    kind, text, shown = PICTURES[name]
    tokens = text.split()
    ids = torch.tensor([[ord(token) - ord("a") for token in tokens]])
    size = {"vocab_size": 5, "seq_len": len(tokens)}
    model: TransformerLM = induction(**size) if kind == "induction" else handmade(kind, **size)
    weights = run_with_activations(model, ids).weights[-1]
    visible = causal_window(len(tokens), len(tokens))
    measured = lifts(weights, probe_of(Attended("self", **size), Batch(ids, ids), ids, visible, text))
    said = []
    for score in shown:
        words = Label(score, Role.PATTERN, *measured[score].numbers(0)).pattern
        words = TARGETS[score].partition(" {")[0] if name == "uniform" else words
        said.append(f"{words} {float(measured[score].lift[0]) + 0.0:.2f}".replace("-0.00", "0.00"))
    lines = [*heatmap(weights[0, 0], tokens), "", "lift: " + ", ".join(said)]
    if name == "uniform":
        figures = shape(weights, visible)
        lines.append(f"entropy {float(figures['entropy'][0]):.2f}, uniformity {float(figures['uniformity'][0]):.2f}")
    return "\n".join(line.rstrip() for line in lines)


def with_pictures(text: str) -> str:
    """Replace every picture below its line."""
    pattern = re.compile(r"<!-- picture: ([a-z ]+) -->\n(?:```text\n.*?```\n)?", re.DOTALL)
    return pattern.sub(lambda m: f"<!-- picture: {m[1]} -->\n```text\n{picture(m[1])}\n```\n", text)


if __name__ == "__main__":
    DOCS.write_text(with_pictures(DOCS.read_text(encoding="utf-8")), encoding="utf-8")
