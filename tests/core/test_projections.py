"""The four projections by name: views of the fused parameters, read, written, saved and loaded."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load, save
from torch import Tensor, nn

from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.projections import NAMES
from tests.core.reference import draw, redraw, worst

D, H, G, D_HEAD, T, B = 20, 4, 2, 5, 7, 3
GROUPED = {
    "W_Q": (D, D),
    "W_K": (10, D),
    "W_V": (10, D),
    "W_O": (D, D),
    "b_Q": (D,),
    "b_K": (10,),
    "b_V": (10,),
    "b_O": (D,),
}


class FourMaps(nn.Module):
    """Multi-head attention as a textbook writes it: four square maps, a view per head, scores divided."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V, self.W_O = (nn.Linear(d_model, d_model, bias=False) for _ in range(4))
        self.n_heads = n_heads

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (m(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2) for m in (self.W_Q, self.W_K, self.W_V))
        scores = q @ k.transpose(-2, -1) / math.sqrt(q.size(-1))
        hidden = torch.ones(x.size(1), x.size(1), dtype=torch.bool).triu(1)
        context = scores.masked_fill(hidden, -math.inf).softmax(-1) @ v
        return self.W_O(context.transpose(1, 2).flatten(-2))


def block(**settings: object) -> MultiHeadSelfAttention:
    return redraw(MultiHeadSelfAttention(D, H, T, **settings), 3)


@pytest.mark.parametrize("n_heads", [1, 2, 4])
def test_four_maps_drawn_from_one_seed_are_ours_by_name(n_heads: int) -> None:
    torch.manual_seed(0)
    textbook = FourMaps(D, n_heads)
    torch.manual_seed(0)
    ours = MultiHeadSelfAttention(D, n_heads, T, bias=False)
    assert list(ours.projections()) == ["W_Q", "W_K", "W_V", "W_O"]
    for name, found in ours.projections().items():
        assert torch.equal(found, getattr(textbook, name).weight), name
    other = redraw(FourMaps(D, n_heads), 5)
    for name in ours.projections():
        setattr(ours, name, getattr(other, name).weight)
    assert worst(ours(draw(B, T, D)), other(draw(B, T, D)).double()) <= 2e-6
    assert [name for name, _ in ours.named_parameters()] == ["qkv_proj.weight", "out_proj.weight"]


def test_one_head_is_the_single_head_to_the_bit_where_it_computes_in_our_order() -> None:
    """The fused product, and q divided before its product with k; a head with three products that divides the scores
    rounds differently."""
    ours, x = redraw(MultiHeadSelfAttention(D, 1, T, bias=False), 2), draw(B, T, D)
    q, k, v = F.linear(x, torch.cat([ours.W_Q, ours.W_K, ours.W_V])).chunk(3, -1)
    hidden = torch.ones(T, T, dtype=torch.bool).triu(1)
    weights = (q / math.sqrt(D) @ k.transpose(-2, -1)).masked_fill(hidden, -math.inf).softmax(-1)
    y, found = ours(x, return_weights=True)
    assert torch.equal(found.squeeze(1), weights)
    assert torch.equal(y, F.linear(weights @ v, ours.W_O))
    textbook = FourMaps(D, 1)
    for name, view in ours.projections().items():
        getattr(textbook, name).weight = nn.Parameter(view)
    scale = float(y.detach().abs().max())
    assert worst(textbook(x), y.detach().double()) <= 4 * torch.finfo(torch.float32).eps * scale


def test_the_shapes_and_rows_of_grouped_queries() -> None:
    grouped = block(n_kv_heads=G)
    found = grouped.projections()
    assert {name: tuple(view.shape) for name, view in found.items()} == GROUPED
    assert torch.equal(torch.cat([found["W_Q"], found["W_K"], found["W_V"]]), grouped.qkv_proj.weight)
    assert torch.equal(torch.cat([found["b_Q"], found["b_K"], found["b_V"]]), grouped.qkv_proj.bias)
    assert found["W_O"].data_ptr() == grouped.out_proj.weight.data_ptr()


@pytest.mark.parametrize("name", NAMES)
def test_writing_one_changes_its_rows_alone(name: str) -> None:
    """In place, by assigning a tensor, and by assigning a parameter, which is copied."""
    for way in ("in place", "tensor", "parameter"):
        grouped = block(n_kv_heads=G)
        before = {other: view.clone() for other, view in grouped.projections().items()}
        new = draw(*GROUPED[name], seed=8)
        if way == "in place":
            with torch.no_grad():
                getattr(grouped, name).copy_(new)
        else:
            setattr(grouped, name, nn.Parameter(new) if way == "parameter" else new)
        assert torch.equal(getattr(grouped, name), new)
        assert all(torch.equal(getattr(grouped, o), b) for o, b in before.items() if o != name)
        assert len(list(grouped.parameters())) == 4


def test_gradients_flow_through_a_view() -> None:
    grouped = block(n_kv_heads=G)
    (grouped.W_K.sum() * 3).backward()
    assert grouped.qkv_proj.weight.grad.sum(1).tolist() == [0] * D + [3 * D] * 10 + [0] * 10


def test_a_file_of_the_names_goes_from_block_to_block() -> None:
    """Biases that are not given become 0."""
    source, target, x = block(n_kv_heads=G), redraw(MultiHeadSelfAttention(D, H, T, n_kv_heads=G), 9), draw(B, T, D)
    target.load_projections(**load(save(source.projections())))
    assert torch.equal(target(x), source(x))
    target.load_projections(**{name: view for name, view in source.projections().items() if name[0] == "W"})
    assert torch.equal(target.W_Q, source.W_Q) and not any(
        float(target.projections()[n].abs().sum()) for n in NAMES[4:]
    )


def test_a_stack_has_the_names_of_its_models() -> None:
    stack = block(n_kv_heads=G)
    for part in (stack.qkv_proj, stack.out_proj):
        part.weight = nn.Parameter(torch.stack([part.weight, part.weight * 2]))
    assert stack.W_K.shape == (2, 10, D)
    stack.W_K = draw(2, 10, D)
    assert torch.equal(stack.qkv_proj.weight[1, D : D + 10], draw(2, 10, D)[1])


def test_what_does_not_fit_is_refused_before_anything_changes() -> None:
    """Also a shape that could be stretched, and a bias for a block without."""
    grouped, plain = block(n_kv_heads=G), block(bias=False)
    named = grouped.projections()
    before = {name: view.clone() for name, view in named.items()}
    fit = {name: torch.zeros_like(view) for name, view in named.items()}
    for name in NAMES:
        with pytest.raises(ValueError, match=name):
            setattr(grouped, name, fit[name][:1])
        with pytest.raises(ValueError, match=name):
            grouped.load_projections(**{**fit, name: fit[name][:1]})
    with pytest.raises(ValueError, match="b_R"):
        grouped.load_projections(**fit, b_R=fit["b_Q"])
    assert all(torch.equal(view, before[name]) for name, view in named.items())
    assert plain.b_Q is None and plain.b_O is None
    with pytest.raises(ValueError, match="b_V"):
        plain.b_V = torch.zeros(D)
    with pytest.raises(ValueError, match="b_O"):
        plain.load_projections(**plain.projections(), b_O=torch.zeros(D))
