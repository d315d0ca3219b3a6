"""Text: the next character of a file."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from statistics import median

import torch
from torch import Generator

from mhsa_cli.config.text_file import MAX_BYTES, read_text
from mhsa_cli.core.tasks.base import Batch, Task, next_token_rows, stream_generator
from mhsa_cli.errors import UsageError

COUNTED = 2**16  # characters in which repeats are counted


class Text(Task):
    """The characters of a UTF-8 file; its last `eval_fraction` is held out. The vocabulary is the file's characters.

    ```
    inputs   h e l l
    targets  e l l o
    ```
    The chance level predicts the evaluation part by the character frequencies of the training part. Rows begin anywhere
    in a part, so the position of a query adds nothing.
    Raises: UsageError if the file is missing, binary, or too short.
    """

    name = "text"
    summary = "the next character of your own file"
    space = ""
    holds_back = True

    def __init__(self, *, path: str, seq_len: int, eval_fraction: float) -> None:
        text = read_text(path)
        self.characters = sorted(set(text))
        self.vocab_size, self.seq_len = len(self.characters), seq_len
        cut = len(text) - int(len(text) * eval_fraction)
        shortest = min(cut, len(text) - cut)
        if shortest < seq_len + 1:
            fraction = min(eval_fraction, 1 - eval_fraction)
            way = f"task.eval_fraction={eval_fraction:g} is too small for any file: choose a larger one"
            if (seq_len + 1) / MAX_BYTES <= fraction:
                needed = math.ceil((seq_len + 1) / fraction)
                way = f"use a file of about {needed} characters, or a smaller task.seq_len"
            raise UsageError(
                f"{path}: {len(text)} characters leave {shortest} for one part; a row needs {seq_len + 1}", way
            )
        if self.vocab_size < 2:
            raise UsageError(f"{path}: only one distinct character; there is nothing to predict")
        number = {c: i for i, c in enumerate(self.characters)}
        ids = torch.tensor([number[c] for c in text])
        self.parts = {"train": ids[:cut], "eval": ids[cut:]}
        counts = (
            torch.bincount(self.parts["train"], minlength=self.vocab_size).double() + 1
        )  # no character has probability 0
        evaluated = torch.bincount(self.parts["eval"], minlength=self.vocab_size).double()
        share = evaluated / evaluated.sum()
        self.chance_loss = float(-(share * (counts / counts.sum()).log()).sum())
        self.chance_accuracy = float(share[counts.argmax()])

    @classmethod
    def small(cls) -> Text:
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "example.txt"
            file.write_text("hello attention " * 10, encoding="utf-8")
            return cls(path=str(file), seq_len=8, eval_fraction=0.5)

    @cached_property
    def gaps(self) -> Sequence[int]:  # type: ignore[override]
        """The distances in a row at which the training part repeats two characters in a row more than elsewhere.

        More than twice as often as at the median distance and as by chance.
        """
        rows = self.sample(stream_generator(0, "gaps", 0), max(1, COUNTED // self.seq_len)).inputs
        pairs = rows[:, 1:] * self.vocab_size + rows[:, :-1]
        if pairs.size(1) < 2:
            return ()
        rates = [float((pairs[:, gap:] == pairs[:, :-gap]).double().mean()) for gap in range(1, pairs.size(1))]
        share = torch.unique(pairs, return_counts=True)[1].double() / pairs.numel()
        usual = max(median(rates), float(share.square().sum()))
        return [gap for gap, rate in enumerate(rates, 1) if rate > 2 * usual]

    def sample(self, generator: Generator, rows: int) -> Batch:
        return self._rows("train", generator, rows)

    def held_out(self, generator: Generator, rows: int) -> Batch:
        return self._rows("eval", generator, rows)

    def _rows(self, part: str, generator: Generator, rows: int) -> Batch:
        ids = self.parts[part]
        start = torch.randint(len(ids) - self.seq_len, (rows, 1), generator=generator)
        return next_token_rows(ids[start + torch.arange(self.seq_len + 1)])

    def symbols(self, ids: Sequence[int]) -> list[str]:
        shown = {" ": "␣", "\n": "↵", "\t": "⇥"}
        return [shown.get(self.characters[i], self.characters[i]) for i in ids]

    def write(self, i: int) -> str:
        return self.characters[i]
