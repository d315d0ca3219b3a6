"""Positional schemes: each overrides one method of `Positions`.

`embed` adds to the token vectors, `rotate` rotates queries and keys, `bias` is added to the scores. Positions are
explicit, so that a sequence can start anywhere. `config.schema.SCHEMES` holds the same names.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.model.layers import AnyDevice, Embedding, WithTables
from mhsa_cli.core.ranges import check_dtype, check_indices, check_size

LAYOUTS = ("interleaved", "half")  # the pairs of features that rope rotates: (2i, 2i + 1), or (i, i + d/2)


class Positions(WithTables):
    """No positional information: no method changes anything. Every other scheme overrides one of the first three."""

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        """Add position vectors to x (..., T, D) at positions pos (T,) or (B, T)."""
        return x

    def rotate(self, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Rotate queries (..., H, T, d) and keys (..., G, T, d) by their positions."""
        return q, k

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor | None:
        """Return what is added to the scores, (H, Tq, Tk), or (B, H, Tq, Tk) for positions (B, T); None: nothing."""
        return None

    def overrides(self, method: str) -> bool:
        """Whether this scheme overrides "embed", "rotate" or "bias"."""
        return getattr(type(self), method) is not getattr(Positions, method)

    def check_fit(self, d_head: int, n_heads: int, kind: str, max_seq_len: int) -> None:
        """Check that the scheme fits a block's sizes and kind. Raises: ValueError."""
        if kind == "linear" and self.overrides("bias"):
            raise ValueError(f"linear attention has no scores that {type(self).__name__} could be added to")


class SinusoidalPositions(Positions):
    """Fixed sines and cosines of geometrically spaced wavelengths, added to the token vectors.

    max_seq_len: number of positions. d_model: width. device, dtype: those of the table.
    Source: Vaswani et al. 2017.
    """

    table: Tensor

    def __init__(
        self, max_seq_len: int, d_model: int, *, device: AnyDevice = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        check_dtype(dtype)
        self.max_seq_len, self.d_model = max_seq_len, d_model
        self.register_tables(device, dtype)

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        return {"table": sinusoidal_table(self.max_seq_len, self.d_model)}

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        check_indices("position", pos, len(self.table), self.table.device)
        return x + self.table[pos]


class LearnedPositions(Positions):
    """One trained vector of width d_model per position below max_seq_len. device, dtype: those of the table."""

    def __init__(
        self, max_seq_len: int, d_model: int, *, device: AnyDevice = None, dtype: torch.dtype | None = None
    ) -> None:
        super().__init__()
        check_size("max_seq_len", max_seq_len)
        check_size("d_model", d_model)
        self.pos_emb = Embedding(max_seq_len, d_model, device=device, dtype=dtype)

    def embed(self, x: Tensor, pos: Tensor) -> Tensor:
        table = self.pos_emb.weight  # (max, D), in a stack (M, max, D)
        check_indices("position", pos, table.size(-2), table.device)
        rows = table[..., pos, :]  # (T, D) or (M, T, D)
        return x + (rows if table.dim() == 2 else rows.unsqueeze(1))


def sinusoidal_table(max_seq_len: int, d_model: int) -> Tensor:
    """Compute sin(p / 10000^(2i/D)) in even columns and the cosine in odd ones: (max_seq_len, D)."""
    check_size("max_seq_len", max_seq_len)
    check_size("d_model", d_model)
    # In float64, rounded once: a late position times a rounded rate would be far from its angle.
    position = torch.arange(max_seq_len, dtype=torch.float64).unsqueeze(1)
    rate = torch.exp(torch.arange(0, d_model, 2, dtype=torch.float64) * (-math.log(10000.0) / d_model))
    table = torch.zeros(max_seq_len, d_model, dtype=torch.float64)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate[: d_model // 2])
    return table.float()


class RopePositions(Positions):
    """Rotate pairs of query and key features by an angle proportional to the position.

    Scores then depend on distances only. max_seq_len: positions are below it. d_head: width of a head, even. theta:
    base; pair i is rotated by pos * theta^(-2i/d_head) radians. layout: which features are a pair, "interleaved"
    (2i, 2i + 1) as in the paper, or "half" (i, i + d/2) as in Llama.
    Raises: ValueError for an argument out of range. Source: Su et al. 2021.
    """

    def __init__(self, max_seq_len: int, d_head: int, theta: float = 10000.0, layout: str = "interleaved") -> None:
        super().__init__()
        check_size("max_seq_len", max_seq_len)
        check_size("d_head", d_head)
        if d_head % 2:
            raise ValueError(f"rope rotates pairs of features: d_head ({d_head}) must be even")
        if not 0 < theta < math.inf:
            raise ValueError(f"rope theta ({theta}) must be a finite number above 0")
        check_layout(layout)
        self.layout, self.max_seq_len, self.d_head, self.theta = layout, max_seq_len, d_head, theta
        # Not buffers: converting a model to half precision would make late positions equal.
        self._tables: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def table(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """Return cosine and sine of all angles, (2, max_seq_len, d/2), computed once in float64."""
        if (device, dtype) not in self._tables:
            rate = self.theta ** (-torch.arange(0, self.d_head, 2, dtype=torch.float64) / self.d_head)
            angle = torch.arange(self.max_seq_len, dtype=torch.float64).unsqueeze(1) * rate
            self._tables[device, dtype] = torch.stack([angle.cos(), angle.sin()]).to(dtype).to(device)
        return self._tables[device, dtype]

    def angles(self, x: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        """Look up cosine and sine for x (..., H, T, d) at positions (T,) or (B, T): (T, d/2) or (B, 1, T, d/2)."""
        check_indices("position", pos, self.max_seq_len, x.device)
        table = self.table(x.device, torch.promote_types(x.dtype, torch.float32))
        cos, sin = table[:, pos] if pos.dim() == 1 else table[:, pos].unsqueeze(-3)  # for all heads
        return cos, sin

    def turn(self, x: Tensor, pos: Tensor) -> Tensor:
        """Rotate x (..., H, T, d) by positions (T,) or (B, T)."""
        return self.turn_by(x, *self.angles(x, pos))

    def turn_by(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Rotate x (..., H, T, d) by angles with the given cosine and sine, (T, d/2)."""
        a, b = x.chunk(2, dim=-1) if self.layout == "half" else (x[..., 0::2], x[..., 1::2])
        pair = a * cos - b * sin, a * sin + b * cos
        turned = torch.cat(pair, -1) if self.layout == "half" else torch.stack(pair, -1).flatten(-2)
        return turned.to(x.dtype)

    def rotate(self, q: Tensor, k: Tensor, pos: Tensor) -> tuple[Tensor, Tensor]:
        cos, sin = self.angles(q, pos)
        return self.turn_by(q, cos, sin), self.turn_by(k, cos, sin)

    def check_fit(self, d_head: int, n_heads: int, kind: str, max_seq_len: int) -> None:
        if d_head != self.d_head:
            raise ValueError(f"these rope positions are for d_head {self.d_head}, the block's is {d_head}")
        if self.max_seq_len < max_seq_len:
            found = f"rope positions have max_seq_len={self.max_seq_len}, the block {max_seq_len}"
            raise ValueError(f"{found}: the positions must be at least as long")


def check_layout(layout: str) -> None:
    """Check the name of a rope layout. Raises: ValueError."""
    if layout not in LAYOUTS:
        raise ValueError(f"rope layout {layout!r} is not one of {', '.join(LAYOUTS)}")


def swap_rope_layout(weight: Tensor, n_heads: int, to: str) -> Tensor:
    """Reorder the rows of a query or key projection (H*d, D) of the other layout for layout `to`."""
    check_layout(to)
    check_size("n_heads", n_heads)
    if weight.size(0) % (2 * n_heads):
        raise ValueError(f"{weight.size(0)} rows are not {n_heads} heads of an even width")
    d = weight.size(0) // n_heads
    order = torch.arange(d).view(2, d // 2).t() if to == "interleaved" else torch.arange(d).view(d // 2, 2).t()
    return weight.view(n_heads, d, -1)[:, order.flatten()].reshape(weight.shape)


class AlibiPositions(Positions):
    """Lower every score by slope * |distance|, each of n_heads heads with its own slope, 2^-8 to below 1.

    device, dtype: those of the slopes. Source: Press et al. 2021.
    """

    slopes: Tensor

    def __init__(self, n_heads: int, *, device: AnyDevice = None, dtype: torch.dtype | None = None) -> None:
        super().__init__()
        check_dtype(dtype)
        self.n_heads, self._made_in = n_heads, dtype or torch.get_default_dtype()  # rounded again in the same dtype
        self.register_tables(device)

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        return {"slopes": torch.tensor(alibi_slopes(self.n_heads), device=device, dtype=self._made_in)}

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        distance = (q_pos.unsqueeze(-1) - k_pos.unsqueeze(-2)).abs()  # (Tq, Tk) or (B, Tq, Tk)
        return -self.slopes.view(-1, 1, 1) * distance.unsqueeze(-3)

    def check_fit(self, d_head: int, n_heads: int, kind: str, max_seq_len: int) -> None:
        if n_heads != len(self.slopes):
            raise ValueError(f"these alibi positions have {len(self.slopes)} slopes, the block has {n_heads} heads")
        super().check_fit(d_head, n_heads, kind, max_seq_len)


def alibi_slopes(n_heads: int) -> list[float]:
    """Compute the slopes 2^(-8i/H) for a power of two, else those of the power below and every other of the next."""
    check_size("n_heads", n_heads)
    below = 2 ** int(math.log2(n_heads))
    slopes = [2 ** (-8 * i / below) for i in range(1, below + 1)]
    return slopes + [2 ** (-4 * i / below) for i in range(1, 2 * (n_heads - below), 2)]


# How to build each scheme for a model's config and the longest row.
POSITIONS: dict[str, Callable[[ModelConfig, int], Positions]] = {
    "learned": lambda c, longest: LearnedPositions(longest, c.d_model),
    "sinusoidal": lambda c, longest: SinusoidalPositions(longest, c.d_model),
    "rope": lambda c, longest: RopePositions(longest, c.head_width, c.rope_theta, c.rope_layout),
    "alibi": lambda c, longest: AlibiPositions(c.n_heads),
    "none": lambda c, longest: Positions(),
}
