"""Heads with each target planted in models of many sizes, with softer attention and noise on its weights."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import torch

from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks.base import IGNORE, fixed_batch, stream_generator
from tests.core.compiler import Copy, Head, Program, ProgramTask, Row, compiled
from tests.core.program_parts import (
    BEFORE,
    DUPLICATE,
    FIRST,
    INDUCTION,
    OWN,
    PREVIOUS,
    SAME,
    back,
    follows,
    found,
    mirror,
    modulo,
    nearest,
    one_of,
    part,
    place,
    share_of,
    to,
    token_at,
)
from tests.core.referee import name_of

SOFT = (1.0, 0.3, 0.15)  # factors of the scores
NOISE = 0.006  # standard deviation of the noise on each matrix of attention, in its own


def sizes(draw: random.Random) -> tuple[int, int]:
    """Draw the number of symbols and the length of a row; they differ."""
    length = draw.randrange(13, 19)
    return draw.choice([n for n in range(8, 15) if n != length]), length


def one_head(head: Head, answer: Callable[[Row, int], int | None], n: int, length: int, **more: object) -> Program:
    return Program("planted", [[head]], answer, n_symbols=n, length=length, **more)  # type: ignore[arg-type]


def marked(head: Head, answer: Callable[[Row, int], int | None], n: int, length: int) -> Program:
    """A head that reads what a previous-token head below has written."""
    layers = [[Head(PREVIOUS, BEFORE, {"previous"})], [head]]
    return Program("planted", layers, answer, n_symbols=n, length=length, blocks={"before": n})


def place_of(key: int, n: int, length: int, separator: bool) -> Program:
    """One key token in every row; the answer is its place."""

    def rows(draw: random.Random, n: int, length: int) -> list[int]:
        row = [draw.choice([i for i in range(n) if i != key]) for _ in range(length)]
        row[draw.randrange(1, length // 2)] = key
        return row

    def answer(row: Row, q: int) -> int | None:
        return row.index(key) % n if key in row[: q + 1] else None

    copies = to("answer", lambda k, j: j == k % n, "position")
    more: dict[str, object] = {"specials": 1, "separator": key} if separator else {}
    name = "separator" if separator else f"token:{key}"
    return one_head(Head(one_of(key), copies, {name}), answer, n, length, rows=rows, **more)


def distance(d: int, n: int, length: int) -> Program:
    return one_head(Head(back(d), labels={f"offset:{d}"}), token_at(back(d).keys), n, length)


def cycle(d: int, period: int, n: int, length: int) -> Program:
    chosen = tuple(range(n // 2))

    def answer(row: Row, q: int) -> int | None:
        keys = range(q - d, -1, -period)
        return nearest(part(row, keys, *chosen), 0, 1) if len(keys) else None

    head = Head(modulo(d, period), share_of(*chosen), {f"modulo:{d}:{period}"})
    return one_head(head, answer, n, length, levels=(0, 1))


def same(n: int, length: int) -> Program:
    """The mean place of the query's token: early, in the middle, or late."""

    def mean(row: Row, q: int) -> int | None:
        keys = SAME.keys(row, q)
        return nearest(sum(keys) / len(keys), 1, length // 2, length - 2)

    head = Head(SAME, (Copy("position", "share", lambda k, _: k),), {"same"})
    return one_head(head, mean, 5, length, levels=(1, length // 2, length - 2))


def earlier(row: Row, q: int) -> Sequence[int]:
    """The tokens before earlier occurrences of the query's token, where none is the first of the row."""
    return [k - 1 for k in found(row, q, [row[q]]) if k < q] if row[0] != row[q] else []


def named_answer(draw: random.Random, n: int, length: int) -> Program:
    """The answer at a constant place, or in the mirror; the task says where."""
    at = draw.randrange(2, length // 2)
    job = place(at) if draw.random() < 0.5 else mirror(length - 1)

    def source(row: Row, q: int) -> int | None:
        keys = list(job.keys(row, q))
        return keys[0] if keys and keys[0] < q else None

    def answer(row: Row, q: int) -> int | None:
        key = source(row, q)
        return None if key is None else row[key]

    return one_head(Head(job, labels={"answer"}), answer, n, length, source=source)


OLD: dict[str, Callable[[random.Random, int, int], Program]] = {
    "previous": lambda draw, n, T: one_head(Head(PREVIOUS, labels={"previous"}), token_at(PREVIOUS.keys), n, T),
    "self": lambda draw, n, T: one_head(
        Head(OWN, to("answer", lambda i, j: j == (i + 1) % n), {"self"}), lambda row, q: (row[q] + 1) % n, n, T
    ),
    "first": lambda draw, n, T: one_head(Head(FIRST, labels={"first"}), lambda row, q: row[0] if q else None, n, T),
    "offset": lambda draw, n, T: distance(draw.randrange(2, T - max(2, T // 4)), n, T),
    "duplicate": lambda draw, n, T: marked(
        Head(DUPLICATE, to("answer", source="before"), {"duplicate"}), token_at(earlier), n, T
    ),
    "induction": lambda draw, n, T: marked(Head(INDUCTION, labels={"induction"}), token_at(follows), n, T),
}
NEW: dict[str, Callable[[random.Random, int, int], Program]] = {
    "same": lambda draw, n, T: same(n, T),
    "modulo": lambda draw, n, T: cycle(draw.randrange(3), draw.randrange(3, 6), n, T),
    "answer": named_answer,
    "separator": lambda draw, n, T: place_of(n, n, T, True),
    "token": lambda draw, n, T: place_of(draw.randrange(n), n, T, False),
    "far offset": lambda draw, n, T: distance(draw.randrange(T - max(2, T // 4), T), n, T),
}


def planted(kind: str, seed: int) -> tuple[Program, TransformerLM]:
    """Plant a head of a kind: its program, and the model with softer attention and noise on its weights."""
    draw = random.Random(f"{kind} {seed}")
    program = (OLD | NEW)[kind](draw, *sizes(draw))
    model, soft = compiled(program), draw.choice(SOFT)
    generator = stream_generator(seed, kind, 0)
    with torch.no_grad():
        for attn in model.attention:
            attn.qkv_proj.weight[: attn.d_model] *= soft
            for weight in (*attn.qkv_proj.weight.chunk(3), attn.out_proj.weight):
                weight += NOISE * float(weight.std()) * torch.randn(weight.shape, generator=generator)
    return program, model


def recalled(kind: str, seed: int) -> list[tuple[str, str | None]]:
    """Plant heads of a kind, and return for each its true label and the one that names its effect."""
    program, model = planted(kind, seed)
    task = ProgramTask(program)
    batch = fixed_batch(task, seed, "planted", 16)
    scored = batch.targets != IGNORE
    right = (model(batch.inputs).argmax(-1) == batch.targets)[scored].double().mean()
    assert right > 0.95, f"{kind} {seed}: the noise broke the program"
    found = []
    for head, known in zip(head_report(model, task, seed).heads, program.heads, strict=True):
        for name in known.labels:
            found.append((name, name_of(head.label) if head.label is not None and head.label.names_effect else None))
    return found
