"""Reverse: repeat a random prefix backwards."""

from __future__ import annotations

import torch
from torch import Tensor

from mhsa_cli.core.tasks.recall import Recall


class Reverse(Recall):
    """Repeat the prefix from its end: the distance to the answer grows by two with every query.

    ```
    inputs   4 7 2 | 2 7
    targets  · · · 2 7 4
    ```
    Without a separator the answer to each token is that of the mirrored position.
    """

    name = "reverse"
    summary = "a random prefix, a separator, the prefix backwards"
    in_place = "random tokens; the answer is the token at the mirrored position"
    uniform_answers = True

    def answer_index(self, ids: Tensor, length: Tensor) -> Tensor:
        return length - 1 - torch.arange(ids.size(1), device=ids.device)
