"""Copy: repeat a random prefix."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from mhsa_cli.core.tasks.recall import Recall


class Copy(Recall):
    """Repeat the prefix in order: every answer is L positions back.

    ```
    inputs   4 7 2 | 4 7
    targets  · · · 4 7 2
    ```
    Without a separator the answer to each token is the token itself.
    """

    name = "copy"
    summary = "a random prefix, a separator, the prefix again"
    in_place = "random tokens; the answer is the token itself"
    uniform_answers = True

    @property
    def gaps(self) -> Sequence[int]:  # type: ignore[override]
        return () if self.separator is None else range(self.min_length + 1, self.max_length + 2)

    def answer_index(self, ids: Tensor, length: Tensor) -> Tensor:
        return torch.arange(ids.size(1), device=ids.device).expand_as(ids)
