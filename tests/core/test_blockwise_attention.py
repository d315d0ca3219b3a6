"""Attention by blocks of queries equals the materialised weights, forward and backward, and makes no (T, T) tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mhsa_cli.core.model import attention, blockwise_attention
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, attention_weights, causal_window, mask_all
from mhsa_cli.core.model.layers import Dropout
from mhsa_cli.core.model.positions import AlibiPositions, Positions, RopePositions
from mhsa_cli.core.tasks import TrainBatches, build_task
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import Stack, learning_rate, unstack
from tests.core import test_attention_stack
from tests.core.reference import draw, redraw, worst
from tests.core.test_engine import CPU, rich

B, H, T, D_HEAD, D_VALUE, ROWS = 5, 6, 23, 3, 7, 4  # the last block has 3 queries
P = 0.25  # a multiple of 2^-16

FORMS: dict[str, dict[str, Any]] = {
    "causal": {},
    "unmasked": {"causal": False},
    "a window within a block": {"window": 2},
    "a window over blocks": {"window": 10},
    "a window of all": {"window": T + 1},
    "alibi": {"positions": AlibiPositions(H)},
    "unmasked alibi": {"positions": AlibiPositions(H), "causal": False},
    "alibi in a window": {"positions": AlibiPositions(H), "window": 9},
    "positions of another moment": {"positions": RopePositions(T, D_HEAD + 1), "window": 3},
}
POSITIONS = {"one row": torch.arange(T), "a row each": torch.stack([torch.arange(T) * (b + 1) for b in range(B)])}


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make blocks and long rows small."""
    monkeypatch.setattr(blockwise_attention, "QUERIES", ROWS)
    monkeypatch.setattr(attention, "LONG", T)


def materialised(q: Tensor, k: Tensor, v: Tensor, pos: Tensor, kept: Tensor | None = None, **form: Any) -> Tensor:
    """Attend with all weights, and those of them dropped that are not `kept`."""
    mask = causal_window(T, T, form.get("window")) if form.get("causal", True) else mask_all(T, T, CPU)
    weights = attention_weights(q, k, mask, form.get("positions", Positions()).bias(pos, pos))
    return (weights if kept is None else weights * kept / (1 - P)) @ v


def with_gradients(attend: Callable[[Tensor, Tensor, Tensor], Tensor]) -> list[Tensor]:
    """Attend to drawn queries, keys and values; returns the output and their gradients."""
    widths = (D_HEAD, D_HEAD, D_VALUE)
    leaves = [draw(B, H, T, d, seed=d + i).double().requires_grad_() for i, d in enumerate(widths)]
    out = attend(*leaves)
    return [out, *torch.autograd.grad((out * draw(*out.shape, seed=9)).sum(), leaves)]


# Together: one head, a divisor of the 6 heads, those of one row, of two rows, of all.
@pytest.mark.parametrize("weights", [1, 3 * ROWS * T, 6 * ROWS * T, 13 * ROWS * T, 2**17])
@pytest.mark.parametrize("pos", POSITIONS)
@pytest.mark.parametrize("form", FORMS)
def test_it_equals_the_materialised_weights(form: str, pos: str, weights: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise_attention, "WEIGHTS", weights)
    found = with_gradients(lambda *qkv: blockwise_attention.blockwise_attention(*qkv, POSITIONS[pos], **FORMS[form]))
    wanted = with_gradients(lambda *qkv: materialised(*qkv, POSITIONS[pos], **FORMS[form]))
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.shape == theirs.shape and worst(ours, theirs) < 1e-11


@pytest.mark.parametrize("rows", [(2, 5), (2, 3, 4)], ids=str)
def test_rows_may_have_more_axes_and_positions_of_their_own(rows: tuple[int, ...]) -> None:
    q, k, v = (draw(*rows, H, T, d, seed=d) for d in (D_HEAD, D_HEAD, D_VALUE))
    scheme = AlibiPositions(H)
    for shape in ((1,), rows[1:], (*rows[:-1], 1), rows):
        pos = torch.arange(T) * torch.arange(1, 1 + torch.Size(shape).numel()).view(*shape, 1)
        found = blockwise_attention.blockwise_attention(q, k, v, pos, positions=scheme)
        assert worst(found, materialised(q, k, v, pos, positions=scheme)) < 1e-5


def dropout(seed: int = 5, models: int = 1) -> Dropout:
    module = Dropout(P)
    module.generators = [torch.Generator().manual_seed(seed + model) for model in range(models)]
    return module


@pytest.mark.parametrize("form", FORMS)
def test_dropout_draws_the_same_in_both_passes(form: str) -> None:
    """With values that are the unit vectors, the output shows which weights were kept."""
    pos, zeros, units = POSITIONS["one row"], torch.zeros(B, H, T, D_HEAD), torch.eye(T).expand(B, H, T, T)
    shown = blockwise_attention.blockwise_attention(zeros, zeros, units, pos, **FORMS[form], dropout=dropout())
    kept = shown != 0
    found = with_gradients(
        lambda *qkv: blockwise_attention.blockwise_attention(*qkv, pos, **FORMS[form], dropout=dropout())
    )
    wanted = with_gradients(lambda *qkv: materialised(*qkv, pos, kept, **FORMS[form]))
    for ours, theirs in zip(found, wanted, strict=True):
        assert worst(ours, theirs) < 1e-11
    assert not torch.equal(kept[0], kept[1]) and not torch.equal(kept[:, 0], kept[:, 1])


def test_dropout_drops_its_share_in_training_only_and_draws_anew() -> None:
    n = 400
    zeros, units = torch.zeros(1, 2, n, 3), torch.eye(n).expand(1, 2, n, n)
    module = Dropout(P)

    def shown() -> Tensor:
        return blockwise_attention.blockwise_attention(
            zeros, zeros, units, torch.arange(n), causal=False, dropout=module
        )

    torch.manual_seed(3)
    first, second = shown(), shown()
    assert torch.allclose(first.unique(), torch.tensor([0.0, 1 / n / (1 - P)]))
    dropped, both = first == 0, (first == 0) & (second == 0)
    # As a whole, of each query and of each key, and independently of the draw before: within six standard deviations.
    for part, count, share in (
        (dropped.double().mean(), dropped.numel(), P),
        (dropped.double().mean(-1), n, P),
        (dropped.double().mean(-2), n, P),
        (both.double().mean(), both.numel(), P * P),
    ):
        assert float((part - share).abs().max()) < 6 * (share * (1 - share) / count) ** 0.5
    torch.manual_seed(3)
    assert torch.equal(shown(), first)
    module.eval()
    assert torch.allclose(shown(), torch.full((n,), 1 / n))


PIECES: dict[str, Callable[[int, int, int], MultiHeadSelfAttention]] = {
    "window": lambda t, h, d: MultiHeadSelfAttention(h * d, h, t + 4, window=3),
    "alibi": lambda t, h, d: MultiHeadSelfAttention(h * d, h, t + 4, positions=AlibiPositions(h)),
    "dropout": lambda t, h, d: MultiHeadSelfAttention(h * d, h, t + 4, dropout=0.3),
    "all, with shared heads": lambda t, h, d: MultiHeadSelfAttention(
        h * d, h, t + 4, n_kv_heads=1, window=5, positions=AlibiPositions(h), dropout=0.2
    ),
    "dropout, unmasked": lambda t, h, d: MultiHeadSelfAttention(h * d, h, t + 4, dropout=0.3, causal=False),
}


@pytest.mark.parametrize("piece", PIECES)
def test_a_slot_is_bit_equal_to_a_stack_of_one(piece: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "LONG", 1)
    monkeypatch.setitem(test_attention_stack.PIECES, piece, PIECES[piece])
    for sizes in test_attention_stack.SIZES + test_attention_stack.VECTORS:
        test_attention_stack.assert_slots_equal_singles(piece, sizes, 3)


@pytest.mark.parametrize("settings", ["model.window=5", "model.positions=alibi", "model.positions=rope"])
def test_training_in_a_stack_is_bit_for_bit_that_of_single_models(settings: str) -> None:
    """With dropout, on rows of as many tokens as are long here."""
    config, seeds = rich(settings, f"task.seq_len={T + 1}", "model.dropout=0.2"), [3, 1]
    task = build_task(config.task)
    stacks = [
        Stack([build_model(config, task, seed) for seed in some], some, config.train, CPU)
        for some in (seeds, seeds[:1], seeds[1:])
    ]
    for step in range(1, 4):
        rows = [TrainBatches(task, seed, 4)[step] for seed in seeds]
        inputs, targets = (torch.stack([getattr(r, part) for r in rows]) for part in ("inputs", "targets"))
        for stack, some in zip(stacks, (slice(0, 2), slice(0, 1), slice(1, 2)), strict=True):
            stack.step(inputs[some], targets[some], learning_rate(config.train, step))
    for slot, alone in enumerate(stacks[1:]):
        assert weights_sha256(unstack(stacks[0].model, slot)) == weights_sha256(unstack(alone.model)), f"slot {slot}"


def block(**form: Any) -> MultiHeadSelfAttention:
    return redraw(MultiHeadSelfAttention(H * D_HEAD, H, T + 2, **form), 0)


@pytest.mark.parametrize("autocast", [False, True], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("form", [form for form in FORMS if not form.startswith("positions of")])
def test_the_block_attends_so_on_long_rows_in_every_mode(form: str, autocast: bool) -> None:
    """The output beside the weights is computed from them."""
    x, module = draw(B, T, H * D_HEAD), block(**FORMS[form])
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        wanted, _ = module(x, return_weights=True)
        found = [module(x), module.eval()(x)]
        with torch.no_grad():
            found.append(module(x))
    gradient = lambda y: torch.autograd.grad(y.float().square().sum(), list(module.parameters()))  # noqa: E731
    limit = 0.03 if autocast else 1e-5
    pairs = [(y.detach(), wanted.detach()) for y in found]
    for ours, theirs in (*pairs, *zip(gradient(found[0]), gradient(wanted), strict=True)):
        assert ours.dtype == theirs.dtype and worst(ours, theirs) < limit * max(1.0, float(theirs.abs().max()))


def test_shapes_are_found_without_numbers() -> None:
    for form in ({"window": 3}, {"positions": AlibiPositions(H)}, {"dropout": P}):
        module = MultiHeadSelfAttention(H * D_HEAD, H, T, **form).to("meta")
        assert module(torch.empty(B, T, H * D_HEAD, device="meta")).shape == (B, T, H * D_HEAD)


def test_short_rows_and_masks_keep_their_draws() -> None:
    """One number for each weight, from torch's generator, as on the materialised road."""
    module = block(dropout=P)
    for x, mask in ((draw(B, T - 1, H * D_HEAD), None), (draw(B, T, H * D_HEAD), torch.ones(T, T).bool())):
        _, weights = module.eval()(x, mask, return_weights=True)
        _, _, v = module.project(x, torch.arange(x.size(1)))
        torch.manual_seed(1)
        dropped = F.dropout(weights, P)
        context = F.dropout(module.out_proj((dropped @ v).transpose(1, 2).flatten(2)), P)
        torch.manual_seed(1)
        assert worst(module.train()(x, mask).detach(), context.detach()) < 1e-6


class Trained(AlibiPositions):
    """Slopes with a gradient of their own."""

    def __init__(self, n_heads: int) -> None:
        super().__init__(n_heads)
        self.scale = torch.nn.Parameter(torch.ones(()))

    def bias(self, q_pos: Tensor, k_pos: Tensor) -> Tensor:
        return self.scale * super().bias(q_pos, k_pos)


def test_a_trained_bias_gets_its_gradient() -> None:
    scheme = Trained(H)
    block(positions=scheme)(draw(B, T, H * D_HEAD)).sum().backward()
    assert scheme.scale.grad is not None and scheme.scale.grad.abs() > 0


class Largest(TorchDispatchMode):
    """Notes the size of the largest tensor that is made."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        sizes = [t.numel() for t in tree_leaves(made) if isinstance(t, Tensor)]
        self.numbers = max([self.numbers, *sizes])
        return made


@pytest.mark.parametrize("form", [{"window": 20}, {"positions": AlibiPositions(2)}, {"dropout": 0.1}], ids=str)
def test_no_tensor_has_a_number_for_each_query_and_key(form: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blockwise_attention, "WEIGHTS", 2**10)
    n, module = 300, MultiHeadSelfAttention(8, 2, 300, **form)
    found = []
    for long in (n, n + 1):
        monkeypatch.setattr(attention, "LONG", long)
        with Largest() as largest:
            module(draw(1, n, 8)).sum().backward()
        found.append(largest.numbers)
    assert found[0] <= n * 8 * 3 < n * n <= found[1]  # q, k and v of a row are the largest
