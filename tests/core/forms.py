"""Every form of attention a config can ask for, in one list, and the tiny models the tests make of them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mhsa_cli.config.schema import SCHEMES, ModelConfig
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.model.transformer import TransformerLM
from tests.core.reference import redraw

# No two sizes are equal: equal sizes hide swapped axes.
B, T, H, D_HEAD, V, MAX, WINDOW, D_MLP = 3, 9, 4, 6, 17, 13, 5, 29
D = H * D_HEAD

POSITION_FORMS = [*SCHEMES, "rope half"]
KINDS = ["softmax", "window", "linear"]


def fits(positions: str, kind: str) -> bool:
    """Linear attention has no scores that positions could be added to."""
    return kind != "linear" or SCHEMES[positions.split()[0]] != "bias"


class Form(NamedTuple):
    """One form: scheme of positions, kind of attention, heads of keys and values, layers."""

    scheme: str
    kind: str
    n_kv_heads: int
    n_layers: int

    def __str__(self) -> str:
        return f"{self.scheme}, {self.kind}, G={self.n_kv_heads}, L={self.n_layers}"

    def config(self, **more: object) -> ModelConfig:
        """One layer is attention and nothing else; two are whole transformer blocks."""
        settings: dict[str, object] = {
            "d_model": D,
            "n_heads": H,
            "n_kv_heads": self.n_kv_heads,
            "n_layers": self.n_layers,
            "positions": self.scheme.split()[0],
            "rope_layout": "half" if "half" in self.scheme else "interleaved",
            "attention": "softmax" if self.kind == "window" else self.kind,
            "window": WINDOW if self.kind == "window" else None,
        }
        if self.n_layers > 1:
            settings |= {"residual": True, "norm": "rmsnorm", "d_mlp": D_MLP, "mlp": "swiglu"}
        return ModelConfig(**settings | more)  # type: ignore[arg-type]

    def model(self, seed: int = 0, dtype: torch.dtype = torch.float32) -> TransformerLM:
        """Build it with wide weights: with narrow ones every softmax is nearly uniform, which hides faults."""
        model = TransformerLM(self.config(), vocab_size=V, max_seq_len=MAX)
        redraw(model, seed)
        return model.to(dtype).eval()


EVERY = [
    *(
        Form(scheme, kind, n_kv_heads, n_layers)
        for scheme in POSITION_FORMS
        for kind in KINDS
        for n_kv_heads in (1, 2, H)
        for n_layers in (1, 2)
        if fits(scheme, kind)
    ),
    Form("rope", "uniform", 2, 2),
    Form("alibi", "uniform", 1, 2),
    Form("learned", "uniform", H, 1),
]


def _in_turn(form: Form) -> bool:
    """Whether a form has the number of layers assigned to its scheme, kind and heads."""
    turn = POSITION_FORMS.index(form.scheme) + KINDS.index(form.kind) + (1, 2, H).index(form.n_kv_heads)
    return form.n_layers == 1 + turn % 2


# Every scheme with every kind and number of heads, one layer and two in turn; tests/long has the other half.
FORMS = [form for form in EVERY if form.kind == "uniform" or _in_turn(form)]


def tokens(*shape: int, seed: int = 1) -> Tensor:
    """Draw ids."""
    return torch.randint(0, V, shape, generator=torch.Generator().manual_seed(seed))


@torch.no_grad()
def check_same_but_for_ties(model: TransformerLM, prompt: Tensor, steps: int, roundings: float = 64) -> list[int]:
    """Compare greedy generation with and without a cache; the first difference must be a tie.

    There the logits of both tokens, computed without a cache, differ by rounding. Returns the tokens with a cache.
    """
    cached, plain = (list(generate(model, prompt, steps, use_cache=use)) for use in (True, False))
    assert len(cached) == len(plain) == steps
    at = next((i for i, pair in enumerate(zip(cached, plain, strict=True)) if pair[0] != pair[1]), None)
    if at is not None:
        read = torch.cat([prompt, prompt.new_tensor(cached[:at])])
        logits = model(read.unsqueeze(0))[0, -1]
        gap = abs(float(logits[cached[at]] - logits[plain[at]]))
        limit = roundings * torch.finfo(logits.dtype).eps * max(1.0, float(logits.abs().max()))
        assert gap <= limit, (
            f"token {at} is {cached[at]} with a cache, {plain[at]} without: their logits are {gap} apart"
        )
    return cached
