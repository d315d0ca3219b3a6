"""What a model keeps of the tokens it has read, so that the next one costs one row and not all of them again."""

from __future__ import annotations

import torch
from torch import Tensor

from mhsa_cli.core.ranges import check_size


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
        """Add keys and values (B, G, T, d) at positions `pos`; returns those of every token so far.

        Raises: ValueError if they do not continue what it holds, as those of another batch.
        """
        if self.state is not None:
            raise ValueError("linear attention's cache keeps no keys: read all tokens at once to see its weights")
        if self.keys is not None and self.values is not None and self.positions is not None:
            check_continues("keys", self.keys, k, -2)
            check_continues("values", self.values, v, -2)
            check_continues("positions", self.positions, pos, -1)
            k, v = torch.cat([self.keys, k], -2), torch.cat([self.values, v], -2)
            pos = torch.cat([self.positions, pos], -1)
        self.keys, self.values, self.positions = k, v, pos
        self.length = k.size(-2)
        return k, v, pos

    def sums(self, q: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        """Give linear attention's running sums, (B, H, d, d) and (B, H, d, 1), for queries and values to go on from.

        Before the first token both are one zero. Raises: ValueError if these are of another batch, or it holds keys.
        """
        if self.keys is not None:
            raise ValueError("this cache holds keys that were looked at: linear attention goes on from sums")
        if self.state is None:
            return q.new_zeros(1), q.new_zeros(1)
        wanted = (*q.shape[:-2], q.size(-1), v.size(-1))
        if tuple(self.state[0].shape) != wanted:
            raise ValueError(f"the cache holds sums {tuple(self.state[0].shape)}, these tokens go on from {wanted}")
        return self.state

    @property
    def numel(self) -> int:
        """Count the numbers it holds."""
        held = [self.keys, self.values, *(self.state or ())]
        return sum(t.numel() for t in held if t is not None)


class KVCache(list[LayerCache]):
    """One `LayerCache` a layer; `length` counts the tokens read so far."""

    def __init__(self, n_layers: int) -> None:
        check_size("n_layers", n_layers)
        super().__init__(LayerCache() for _ in range(n_layers))

    @property
    def length(self) -> int:
        """Count the tokens read so far."""
        return self[0].length


def check_continues(name: str, held: Tensor, new: Tensor, axis: int) -> None:
    """Refuse a tensor that does not go on along `axis` where the held one ends. Raises: ValueError."""
    before, after = list(held.shape), list(new.shape)
    if len(before) == len(after):
        before[axis] = after[axis]
    if before != after:
        raise ValueError(f"the cache holds {name} {tuple(held.shape)}, which {tuple(new.shape)} does not continue")
