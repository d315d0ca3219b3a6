"""The KV cache: keys and values of the tokens read so far, so that a new token costs one row of attention."""

from __future__ import annotations

import torch
from torch import Tensor

from mhsa_cli.core.ranges import check_size


class LayerCache:
    """One layer's cache: keys and values (B, G, T, d) of every token, or the running sums of linear attention.

    G are the KV heads. `length` counts the tokens.
    """

    def __init__(self) -> None:
        self.length = 0
        self.keys: Tensor | None = None
        self.values: Tensor | None = None
        self.positions: Tensor | None = None
        self.state: tuple[Tensor, Tensor] | None = None

    def extend(self, k: Tensor, v: Tensor, pos: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Append keys and values (B, G, T, d) at positions `pos`; returns those of all tokens so far.

        Raises: ValueError if their shapes do not continue the cached ones.
        """
        if self.state is not None:
            raise ValueError("the cache of linear attention holds no keys: pass all tokens at once to get weights")
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
        """Return the running sums (B, H, d, d) and (B, H, d, 1) that linear attention continues with q and v.

        Before the first token both are a single zero. Raises: ValueError if shapes do not fit, or the cache holds keys.
        """
        if self.keys is not None:
            raise ValueError("this cache holds keys of softmax attention: linear attention needs running sums")
        if self.state is None:
            return q.new_zeros(1), q.new_zeros(1)
        expected = (*q.shape[:-2], q.size(-1), v.size(-1))
        if tuple(self.state[0].shape) != expected:
            raise ValueError(f"the cache holds sums {tuple(self.state[0].shape)}, these tokens need {expected}")
        return self.state

    @property
    def tensors(self) -> list[Tensor]:
        """The cached keys and values, or running sums."""
        return [t for t in (self.keys, self.values, *(self.state or ())) if t is not None]


class KVCache(list[LayerCache]):
    """One `LayerCache` per layer."""

    def __init__(self, n_layers: int) -> None:
        check_size("n_layers", n_layers)
        super().__init__(LayerCache() for _ in range(n_layers))

    @property
    def length(self) -> int:
        """The number of tokens read so far."""
        return self[0].length


def check_continues(name: str, cached: Tensor, new: Tensor, axis: int) -> None:
    """Check that a tensor extends the cached one along `axis`. Raises: ValueError."""
    before, after = list(cached.shape), list(new.shape)
    if len(before) == len(after):
        before[axis] = after[axis]
    if before != after:
        raise ValueError(f"the cache holds {name} {tuple(cached.shape)}, which {tuple(new.shape)} does not continue")
