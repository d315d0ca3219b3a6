"""Faults planted into right attention that is drawn at random: one of them, or two in different places."""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from tests.check.planted import Planted
from tests.check.random_right import draw

Edit = Callable[[str], str]  # of one line; the line itself where it does not apply


def _swap(*pairs: tuple[str, str]) -> Edit:
    """Replace the first of these texts that the line has."""

    def edit(line: str) -> str:
        return next((line.replace(old, new) for old, new in pairs if old in line), line)

    return edit


def _after(start: str, added: str) -> Edit:
    """Add a line before the one that begins with `start`."""

    def edit(line: str) -> str:
        code = line.lstrip()
        return f"{line[: -len(code)]}{added}\n{line}" if code.startswith(start) else line

    return edit


_SCORES = ("scores = q", "scores = torch.einsum", "scores = torch.matmul", "scores = (q")


def _scores(text: str) -> Edit:
    def edit(line: str) -> str:
        code = line.lstrip()
        return line[: -len(code)] + text if code.startswith(_SCORES) else line

    return edit


def _merged(text: str) -> Edit:
    ways = (
        r"context\.transpose\(1, 2\)\.(reshape\(B, T, D\)|flatten\(2\))"
        r"|context\.permute.*view\(B, T, -1\)|torch\.cat\(.*\), dim=-1\)"
    )
    return lambda line: re.sub(ways, text, line)


def _unassigned(line: str) -> str:
    code = line.lstrip()
    mentions_mask = code.startswith(("scores = scores.masked_fill", "scores = torch.where", "scores = scores + "))
    return line.replace("scores = ", "", 1) if mentions_mask else line


_BEFORE = "context = "
# stage -> fault -> what it does to a line
FAULTS: dict[str, dict[str, Edit]] = {
    "scale": {
        "scale_d_model": _swap(("math.sqrt(d)", "math.sqrt(D)"), ("d**-0.5", "D**-0.5"), ("/ d**0.5", "/ D**0.5"),
                               ("d**-0.25", "D**-0.25"), ("k.size(-1) ** 0.5", "D ** 0.5")),
        "scale_none": _scores("scores = q @ k.transpose(-2, -1)"),
        "scale_n_heads": _scores("scores = q @ k.transpose(-2, -1) / k.size(1) ** 0.5"),
        "scale_constant": _scores("scores = q @ k.transpose(-2, -1) / 9"),
    },
    "key": {"key_reshaped": _scores("scores = q @ k.reshape(B, H, d, T) / d**0.5")},
    "softmax": {
        "softmax_over_queries": _swap(("softmax(scores, dim=-1)", "softmax(scores, dim=-2)"),
                                      ("scores.softmax(-1)", "scores.softmax(-2)"), ("dim=3", "dim=2")),
        "softmax_over_heads": _swap(("softmax(scores, dim=-1)", "softmax(scores, dim=1)"),
                                    ("scores.softmax(-1)", "scores.softmax(1)"), ("dim=3", "dim=1")),
        "softmax_twice": _after(_BEFORE, "weights = weights.softmax(-1)"),
    },
    "mask": {
        "mask_sees_next": _swap((".tril()", ".tril(1)"), (".triu(diagonal=1)", ".triu(diagonal=2)"),
                                (".triu(1)", ".triu(2)")),
        "mask_no_effect": _unassigned,
    },
    "heads": {
        "merge_by_view": _merged("context.reshape(B, T, D)"),
        "merge_interleaved": _merged("context.permute(0, 2, 3, 1).reshape(B, T, D)"),
        "split_by_view": _after("scores = ", "q, k, v = (t.transpose(1, 2).reshape(B, H, T, d) for t in (q, k, v))"),
    },
    "values": {
        "value_from_key": _after(_BEFORE, "v = k"),
        "value_from_query": _after(_BEFORE, "v = q"),
        "attention_transposed": _after(_BEFORE, "weights = weights.transpose(-2, -1)"),
    },
    "out": {
        "out_missing": lambda line: re.sub(r"self\.\w+\((context\.|torch\.cat)", r"(\1", line),
        "out_twice": lambda line: re.sub(r"self\.(\w+)\((context\..*|torch\.cat.*\))\)", r"self.\1(self.\1(\2))", line),
    },
}  # fmt: skip
# Two at once are planted in these, where people make them.
PAIRED = ("scale", "softmax", "mask", "heads", "out")


def draw_wrong(seed: int) -> Planted | None:
    """Draw a right implementation and plant one fault or two; None where this one has no place for them.

    Its sizes are not the drawn ones: with some (one head, d_head = n_heads) two faults are the same numbers.
    """
    rng = random.Random(f"wrong {seed}")
    stages = rng.sample(PAIRED, 2) if rng.random() < 0.3 else [rng.choice(list(FAULTS))]
    drawn = draw(seed)
    lines = drawn.source.splitlines()
    names, first = [], 0
    for stage in sorted(stages, key=list(FAULTS).index):
        name = rng.choice(list(FAULTS[stage]))
        places = [n for n, line in enumerate(lines) if FAULTS[stage][name](line) != line]
        if not places or ("mask kernel" in drawn.says and (stage == "mask" or name == "attention_transposed")):
            return None
        place = places[-1] if stage == "out" or name.startswith("merge") else places[0]
        lines[place] = FAULTS[stage][name](lines[place])
        first = first or place + 1
        names.append(name)
    return Planted(" + ".join(names), drawn.says, "\n".join(lines) + "\n", drawn.entry, first)
