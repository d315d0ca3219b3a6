"""Reverse: say a random prefix backwards."""

from __future__ import annotations

from torch import Tensor

from mhsa_cli.core.tasks.recall import Recall


class Reverse(Recall):
    """Repeat the prefix from its end. The distance to the source grows by two with every answer.

    ```
    inputs   4 7 2 | 2 7
    targets  · · · 2 7 4
    ```
    """

    name = "reverse"
    summary = "a random prefix, a separator, the prefix backwards"

    def answer_index(self, i: Tensor, length: Tensor) -> Tensor:
        return length - 1 - i
