"""What a model keeps of the tokens it has read, so that the next one costs one row and not all of them again."""

from __future__ import annotations

import torch
from torch import Tensor


class LayerCache:
    """One layer's memory: keys and values of every token for softmax, or one running sum for linear attention.

    Keys and values are (B, G, T, d), G the KV heads: sharing heads shrinks this. `length` counts the tokens.
    """

    def __init__(self) -> None:
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.positions: Tensor | None = None
        self.state: tuple[Tensor, Tensor] | None = None

    def extend(self, k: Tensor, v: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Add keys and values (B, G, T, d) at positions `pos`; returns those of every token so far."""
        if self.keys is not None and self.values is not None and self.positions is not None:
            k, v = torch.cat([self.keys, k], -2), torch.cat([self.values, v], -2)
            pos = torch.cat([self.positions, pos], -1)
        self.keys, self.values, self.positions = k, v, pos
        self.length = k.size(-2)
        return k, v, pos

    @property
    def numel(self) -> int:
        """Count the numbers it holds."""
        held = [self.keys, self.values, *(self.state or ())]
        return sum(t.numel() for t in held if t is not None)


class KVCache(list[LayerCache]):
    """One `LayerCache` a layer; `length` counts the tokens read so far."""

    def __init__(self, n_layers: int) -> None:
        super().__init__(LayerCache() for _ in range(n_layers))

    @property
    def length(self) -> int:
        """Count the tokens read so far."""
        return self[0].length if self else 0
