"""Right attention drawn at random, and changed as real code differs: parts that are off, other names, a second file."""

from __future__ import annotations

import random
import re
from dataclasses import replace

from tests.check.random_right import HEAD, Drawn, draw
from tests.check.styles.changed import BEGIN, END, SECOND, UNUSED, outlined

TURNED = ("if self.rope is not None:", "    q, k = self.rope(q), self.rope(k)")
ROPES = (
    ("use_rope=False", "self.rope = Rotary() if use_rope else None"),
    ("rope=None", "self.rope = rope"),
    ("pos_emb: str = 'learned'", "self.rope = Rotary() if pos_emb == 'rope' else None"),
    ("rope_theta=None", "self.rope = Rotary() if rope_theta is not None else None"),
)
FLAGS = ("hide_future", "is_causal", "masked", "decoder", "autoregressive")
LOCALS = ("q", "k", "v", "scores", "weights", "context", "causal", "residual")
OTHERS = ("qq", "kk", "vv", "logits", "alpha", "ctx", "tri", "shortcut", "left", "hid", "a1", "a2", "a3", "a4", "a5")
CHANGES = ("off", "flag", "names", "two")
_SCORES = re.compile(r"= .*(@.*\.transpose\(-2, -1\)|bhid|transpose\(2, 3\)|@.*\.mT|dot_product)")


def draw_changed(seed: int) -> Drawn:
    """Draw a right implementation and one to three changes of it, none of which changes what it computes by default."""
    rng = random.Random(seed)
    drawn = draw(10_000 + seed)
    changes = rng.sample(CHANGES, rng.randint(1, 3))
    lines = drawn.source.split("\n")
    if "flag" in changes:
        lines = _with_flag(rng, lines)
    if "off" in changes:
        lines = _with_rope(rng, lines)
    source, beside = "\n".join(lines), {}
    if "names" in changes:
        source = _renamed(rng, source)
    if "two" in changes:
        source, second = _in_two(source)
        beside = {f"{SECOND}.py": second}
    return replace(drawn, source=source, beside=beside, says=f"{drawn.says}, changed: {' '.join(sorted(changes))}")


def _at(lines: list[str], *starts: str) -> list[int]:
    return [n for n, line in enumerate(lines) if line.strip().startswith(starts)]


def _with_parameter(lines: list[str], parameter: str, made: str) -> list[str]:
    at = _at(lines, "def __init__(")[0]
    signature = lines[at].replace("):", f", {parameter}):")
    return [*lines[:at], signature, lines[at + 1], f"        {made}", *lines[at + 2 :]]


def _with_rope(rng: random.Random, lines: list[str]) -> list[str]:
    """Add rotary positions that are off before the scores."""
    at = _at(lines, "scores = ", "context = F.")[0]
    lines = [*lines[:at], *(f"        {line}" for line in TURNED), *lines[at:]]
    lines = _with_parameter(lines, *rng.choice(ROPES))
    return [*HEAD.rstrip().split("\n"), "", *UNUSED.rstrip().split("\n"), "", "", *lines[len(HEAD.split("\n")) - 1 :]]


def _with_flag(rng: random.Random, lines: list[str]) -> list[str]:
    """Put a causal mask that is made inside behind a flag, which is on or off by default."""
    flag, on = rng.choice(FLAGS), rng.random() < 0.5
    masking = [n for n in _at(lines, "scores = scores", "scores = torch.where") if "mask is not" not in lines[n - 1]]
    if not masking:
        kernel = [n for n in _at(lines, "context = F.") if "is_causal=True" in lines[n]]
        if not kernel:
            return lines
        lines[kernel[0]] = lines[kernel[0]].replace("is_causal=True", f"is_causal=self.{flag}")
    for n in masking:
        lines[n] = f"        if self.{flag}:\n    {lines[n]}"
    return _with_parameter("\n".join(lines).split("\n"), f"{flag}={on}", f"self.{flag} = {flag}")


def _renamed(rng: random.Random, source: str) -> str:
    new = dict(zip(LOCALS, rng.sample(OTHERS, len(LOCALS)), strict=True))
    head, forward, body = source.rpartition("    def forward(")
    body = re.sub(rf"(?<![.'])\b({'|'.join(LOCALS)})\b(?!['=])", lambda found: new[found.group()], body)
    return head + forward + body


def _in_two(source: str) -> tuple[str, str]:
    """Move what lies between the heads and the merge into a second file."""
    lines = source.split("\n")
    forward = _at(lines, "def forward(")[0]
    scores = next(n for n in range(forward, len(lines)) if _SCORES.search(lines[n]))
    context = max(n for n in range(scores, len(lines)) if re.search(r" @ (v|\w+)$|dot_product", lines[n]))
    marked = [
        *lines[:scores],
        f"        {BEGIN}",
        *lines[scores : context + 1],
        f"        {END}",
        *lines[context + 1 :],
    ]
    first, second, _ = outlined("\n".join(marked), 1)
    return first, second
