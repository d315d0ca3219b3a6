"""Attention against loops in float64: any size, mask, scale, width of numbers, stack and cache; and twelve mutants."""

from __future__ import annotations

import random
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest

from tests.faults.row import Place, Row

MUTANT = "mask one diagonal too far"
TRIED = 150  # cases in which a mutant must show
MASKS = ["none", "keys of a row", "each head's own", "one for all", "a window", "nothing to see"]
# Weights and inputs are drawn with this spread: zero makes every score equal, the last ones lie far below -1e9.
SPREADS = {"zero": 0.0, "narrow": 0.05, "usual": 0.4, "wide": 3.0, "extreme": 60.0, "beyond any fill": 2e4}
# Of the largest output, for every unit that the scores reach; bfloat16 has 8 bits.
ROUNDING = {"float64": 1e-14, "float32": 4e-6, "bfloat16": 0.05}
SMALLEST_FILL = 1e-6


class Case(NamedTuple):
    """Sizes (M 0: no stack), the kind of mask, the spread, the numbers; or the name of a mutant that must show."""

    M: int
    B: int
    T: int
    H: int
    d: int
    G: int
    mask: str
    spread: str
    dtype: str
    seed: int
    mutant: str = ""


def cases(count: int, seed: int) -> Iterator[Case]:
    """The twelve mutants, then drawn cases."""
    from tests.core.mutants import MUTANTS

    for name in list(MUTANTS)[:count]:
        yield Case(0, 0, 0, 0, 0, 0, "", "", "", seed, name)
    yield from drawn(count - len(MUTANTS), seed)


def drawn(count: int, seed: int) -> Iterator[Case]:
    """Draw cases: edges of sizes among them, no width of a head that is a length."""
    draw = random.Random(seed)
    while count > 0:
        H, T, d = draw.choice([1, 2, 3, 4, 6]), draw.choice([1, 1, 2, *range(3, 10)]), draw.randint(1, 7)
        if T in (d, H * d):
            continue
        count -= 1
        G = draw.choice([g for g in range(1, H + 1) if H % g == 0]) if draw.random() < 0.4 else H
        dtype = draw.choice(["float64", "float32", "float32", "bfloat16"])
        spreads = ["zero", "narrow", "usual"] if dtype == "bfloat16" else list(SPREADS)
        M = draw.choice([0, 0, 0, 1, 2, 3]) if dtype != "bfloat16" else 0
        mask, spread = draw.choice(MASKS), draw.choice(spreads)
        yield Case(M, draw.randint(1, 4), T, H, d, G, mask, spread, dtype, draw.randrange(10**9))


def mask_too_wide(patch: pytest.MonkeyPatch) -> None:
    """The mutant of the row: every query sees the token after it as well, on both paths."""
    from mhsa_cli.core.model import attention

    module = mutated(MUTANT)
    for name in ("MultiHeadSelfAttention", "causal_window", "attention_weights", "masked_softmax", "fused_attention"):
        patch.setattr(attention, name, getattr(module, name))


def mutated(name: str) -> ModuleType:
    """Compile the block's source with a fault in it."""
    from tests.core.mutants import MUTANTS, ONE_PATH, mutate

    return mutate([ONE_PATH, *MUTANTS[name]])


def check(case: Case, place: Place) -> None:
    """Compare every path with the loops; or see that a mutant does not survive."""
    import torch

    from mhsa_cli.core.model import attention

    torch.set_num_threads(1)  # for sizes like these a second one only waits
    if not case.mutant:
        compare(case, attention)
        return
    block = mutated(case.mutant)
    try:
        for other in drawn(TRIED, case.seed):
            compare(other, block)
    except Exception:  # whatever its kind, the fault is noticed
        return
    raise AssertionError(f"it survives {TRIED} cases")


def compare(case: Case, attention: Any) -> None:
    """Hold a block of the module `attention` to the loops: fused, materialised, in training, cached, in a stack."""
    import torch

    from mhsa_cli.core.model.kv_cache import LayerCache
    from mhsa_cli.core.training.stack import stack_models
    from tests.core.reference import draw, loop_attention, redraw, worst

    M, B, T, H, d, G, *_ = case
    dtype, spread, D = getattr(torch, case.dtype), SPREADS[case.spread], case.H * case.d
    window = 1 + case.seed % T if case.mask == "a window" else None
    blocks, rows, wanted = [], [], []
    mask = given_mask(case)
    for slot in range(max(1, M)):
        block = attention.MultiHeadSelfAttention(
            D, H, max_seq_len=T + 1 + case.seed % 3, n_kv_heads=G, window=window, dropout=0.5 * (case.seed % 2)
        )
        block = redraw(block, case.seed + slot, min(spread, 3.0)).to(dtype).eval()
        x = (draw(B, T, D, seed=case.seed + slot + 7) * max(1.0, spread / 3)).to(dtype)
        blocks.append(block)
        rows.append(x)
        wanted.append((*loop_attention(full_heads(block), x, seen(case, mask, window)), largest_score(block, x, T)))
    model, x = (stack_models(blocks).eval(), torch.stack(rows)) if M else (blocks[0], rows[0])
    found = {"fused": (model(x, mask), None), "materialised": model(x, mask, return_weights=True)}
    model.train()
    for dropout in (model.weights_dropout, model.out_dropout):
        dropout.generators = [torch.Generator().manual_seed(slot) for slot in range(max(1, M))]
    found["in training"] = (None, model(x, mask, return_weights=True)[1])  # the weights before dropout
    model.eval()
    if mask is None and not M:
        cache, cut = LayerCache(), case.seed % T
        parts = [part for part in (x[:, :cut], x[:, cut:]) if part.size(1)]
        found["cached"] = (torch.cat([model(part, cache=cache) for part in parts], 1), None)
    for path, results in found.items():
        for slot, (y, weights, score) in enumerate(wanted):
            bound = ROUNDING[case.dtype] * (1 + min(score, 1e5) if case.dtype != "bfloat16" else 1)
            sizes = (bound * max(1.0, float(abs(y).max())), max(bound, SMALLEST_FILL))
            for result, want, most in zip(results, (y, weights), sizes, strict=True):
                if result is not None:
                    off = worst((result[slot] if M else result).double(), want)
                    assert off <= most, f"{path} is {off:.2g} off, at most {most:.2g}: scores reach {score:.2g}"


def given_mask(case: Case) -> Any:
    """Draw the mask that a caller brings, or None."""
    from tests.core.reference import coins

    shapes = {
        "keys of a row": (case.B, 1, 1, case.T),
        "each head's own": (case.B, case.H, case.T, case.T),
        "one for all": (case.T, case.T),
        "nothing to see": (case.B, 1, case.T, case.T),
    }
    if case.mask not in shapes:
        return None
    mask = coins(*shapes[case.mask], seed=case.seed + 3)
    if case.mask == "nothing to see":
        mask[0, :, case.seed % case.T] = False
    itself = mask.expand(*mask.shape[:-2], case.T, case.T).diagonal(dim1=-2, dim2=-1)
    mask[..., -1, -1] |= not bool(itself.any())  # one that shows no query a key is refused as an inverted one
    return mask


def seen(case: Case, mask: Any, window: int | None) -> Any:
    """Join the mask with the window."""
    import torch

    near = torch.ones(case.T, case.T, dtype=torch.bool)
    for query in range(case.T):
        for key in range(case.T):
            near[query, key] = window is None or query - key < window
    return near if mask is None else near & mask


def full_heads(block: Any) -> Any:
    """Write out a block of few key and value heads as one in which every head has its own."""
    H, G, d = block.n_heads, block.n_kv_heads, block.d_head

    def each(rows: Any) -> Any:
        q, k, v = rows.split([H * d, G * d, G * d])
        widened = [[part[g * d : (g + 1) * d] for g in range(G) for _ in range(H // G)] for part in (k, v)]
        return q.new_tensor([row for part in ([q], *widened) for rows in part for row in rows.tolist()])

    wide = SimpleNamespace(weight=each(block.qkv_proj.weight.detach()), bias=each(block.qkv_proj.bias.detach()))
    return SimpleNamespace(n_heads=H, qkv_proj=wide, out_proj=block.out_proj)


def largest_score(block: Any, x: Any, T: int) -> float:
    """Give an upper bound of the scores' size: what their rounding is measured by."""
    rows = x.double() @ block.qkv_proj.weight.detach().double().T + block.qkv_proj.bias.detach().double()
    q, k = rows[..., : block.d_model], rows[..., block.d_model : block.d_model + block.n_kv_heads * block.d_head]
    return float(q.norm(dim=-1).max() * k.norm(dim=-1).max()) / block.d_head**0.5


ROW = Row(
    fault="attention against float64 loops: sizes, masks, extreme scores, widths, stacks, caches; 12 mutants",
    promise="P11",
    quick=560,
    long=20000,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.attention:mask_too_wide",
)
