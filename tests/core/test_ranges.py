"""What is out of its range is refused by name and with what was found, whichever argument of whichever module it is."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from mhsa_cli.config.schema import SCHEMES, ModelConfig
from mhsa_cli.core.model.attention import MultiHeadSelfAttention
from mhsa_cli.core.model.cross_attention import MultiHeadCrossAttention
from mhsa_cli.core.model.kv_cache import KVCache, LayerCache
from mhsa_cli.core.model.linear_attention import linear_attention
from mhsa_cli.core.model.positions import (
    AlibiPositions,
    LearnedPositions,
    RopePositions,
    SinusoidalPositions,
    alibi_slopes,
    sinusoidal_table,
    swap_rope_layout,
)
from mhsa_cli.core.model.transformer import TransformerLM
from tests.core.reference import draw

B, T, D, H, MAX, V = 2, 5, 12, 3, 7, 11
D_HEAD = D // H


def attend(**more: Any) -> MultiHeadSelfAttention:
    return MultiHeadSelfAttention(**{"d_model": D, "n_heads": H, "max_seq_len": MAX} | more)


def look(**more: Any) -> MultiHeadCrossAttention:
    return MultiHeadCrossAttention(**{"d_model": D, "n_heads": H} | more)


def rope(**more: Any) -> RopePositions:
    return RopePositions(**{"max_seq_len": MAX, "d_head": D_HEAD} | more)


def model(**more: Any) -> TransformerLM:
    config = ModelConfig(d_model=D, n_heads=H, n_layers=2, positions=more.pop("scheme", "rope"))
    return TransformerLM(config, **{"vocab_size": V, "max_seq_len": MAX} | more)


def refusal(call: Callable[[], Any]) -> str:
    """The message with which a call is refused; "" if it is not."""
    try:
        call()
    except Exception as error:
        assert type(error) is ValueError
        return str(error)
    return ""


SIZES: list[tuple[Callable[..., Any], str]] = [
    (attend, "d_model"),
    (attend, "n_heads"),
    (attend, "n_kv_heads"),
    (attend, "max_seq_len"),
    (attend, "window"),
    (look, "d_model"),
    (look, "n_heads"),
    (look, "n_kv_heads"),
    (look, "d_context"),
    (rope, "max_seq_len"),
    (rope, "d_head"),
    (lambda **n: SinusoidalPositions(**{"max_seq_len": MAX, "d_model": D} | n), "max_seq_len"),
    (lambda **n: SinusoidalPositions(**{"max_seq_len": MAX, "d_model": D} | n), "d_model"),
    (lambda **n: LearnedPositions(**{"max_seq_len": MAX, "d_model": D} | n), "max_seq_len"),
    (lambda **n: LearnedPositions(**{"max_seq_len": MAX, "d_model": D} | n), "d_model"),
    (lambda **n: sinusoidal_table(**{"max_seq_len": MAX, "d_model": D} | n), "max_seq_len"),
    (AlibiPositions, "n_heads"),
    (alibi_slopes, "n_heads"),
    (lambda **n: swap_rope_layout(torch.zeros(D, D), **n, to="half"), "n_heads"),
    (KVCache, "n_layers"),
    (model, "vocab_size"),
    (model, "max_seq_len"),
]


@pytest.mark.parametrize(("make", "name"), SIZES)
def test_every_size_is_a_whole_number_of_at_least_one(make: Callable[..., Any], name: str) -> None:
    for size in (0, -1, -7, 2.0, 1.5, "2", True):
        refused = refusal(lambda size=size: make(**{name: size}))
        assert name in refused and repr(size) in refused, size
    # One is enough where nothing else must divide by it; so the check is not above its limit.
    if name == "d_model" and make in (attend, look):
        make(d_model=1, n_heads=1)
    elif name == "d_head":
        make(d_head=2)
    else:
        make(**{name: 1})


CHOICES: list[tuple[Callable[[], Any], tuple[object, ...]]] = [
    (lambda: attend(d_model=13), ("d_model", 13, "n_heads", H)),
    (lambda: attend(n_kv_heads=2), ("n_kv_heads", 2, "n_heads", H)),
    (lambda: look(n_heads=5), ("d_model", D, "n_heads", 5)),
    (lambda: attend(kind="sofmax"), ("sofmax", "softmax", "linear", "uniform")),
    (lambda: attend(kind="linear", window=2), ("window", 2, "linear")),
    (lambda: attend(dropout=1.0), ("dropout", 1.0)),
    (lambda: attend(dropout=math.nan), ("dropout", math.nan)),
    (lambda: attend(dtype=torch.int64), ("dtype", torch.int64)),
    (lambda: look(dtype=torch.bool), ("dtype", torch.bool)),
    (lambda: LearnedPositions(MAX, D, dtype=torch.int32), ("dtype", torch.int32)),
    (lambda: AlibiPositions(H, dtype=torch.int64), ("dtype", torch.int64)),
    (lambda: SinusoidalPositions(MAX, D, dtype=torch.int64), ("dtype", torch.int64)),
    (lambda: attend(positions="rope"), ("rope", "positions")),
    (lambda: attend(positions=RopePositions(MAX, 2)), (2, D_HEAD)),  # would be stretched over all pairs
    (lambda: attend(positions=rope(max_seq_len=MAX - 1)), (MAX - 1, MAX)),  # the block would take what these cannot
    (lambda: attend(positions=AlibiPositions(1)), (1, H)),  # would be every head's slope
    (lambda: attend(positions=AlibiPositions(H), kind="linear"), ("linear", "AlibiPositions")),  # would be left out
    (lambda: rope(d_head=3), ("d_head", 3)),
    (lambda: rope(layout="twisted"), ("twisted", "interleaved", "half")),
    *((lambda theta=theta: rope(theta=theta), ("theta", theta)) for theta in (0.0, -2.0, math.inf, math.nan)),
    (lambda: swap_rope_layout(torch.zeros(D, D), H, "halves"), ("halves", "interleaved", "half")),
    (lambda: swap_rope_layout(torch.zeros(9, D), 3, "half"), (9, 3)),
]


def test_what_does_not_fit_is_refused_with_what_was_found() -> None:
    for row, (make, named) in enumerate(CHOICES):
        refused = refusal(make)
        assert all(str(one) in refused for one in named) and refused, (row, named, refused)


def places(*numbers: int) -> Tensor:
    return torch.tensor(numbers)


def filled(block: MultiHeadSelfAttention, rows: int = B) -> LayerCache:
    """A cache that has read two tokens."""
    cache = LayerCache()
    block(draw(rows, 2, D), cache=cache)
    return cache


META, ANYWHERE = torch.device("meta"), torch.zeros(B, T, dtype=torch.int64, device="meta")
X = draw(B, T, D)
ROPE, ALIBI, LINEAR = (
    attend(positions=rope()),
    attend(positions=AlibiPositions(H)),
    attend(kind="linear"),
)
CALLS: list[tuple[Callable[[], Any], tuple[object, ...]]] = [
    # Positions past the table, before it (torch would read its end), or no positions at all.
    (lambda: ROPE(X, pos=places(0, 1, 2, 3, MAX)), (MAX, (4,), MAX - 1)),
    (lambda: ROPE(X, pos=places(0, 1, -1, 3, 4)), (-1, (2,), MAX - 1)),
    (lambda: rope().turn(draw(1, 1, 1, D_HEAD), places(MAX)), (MAX, MAX - 1)),
    (lambda: rope().rotate(draw(1, 1, 1, D_HEAD), draw(1, 1, 1, D_HEAD), places(-1)), (-1, MAX - 1)),
    (lambda: SinusoidalPositions(MAX, D).embed(draw(1, 1, D), places(MAX)), (MAX, MAX - 1)),
    (lambda: SinusoidalPositions(MAX, D).embed(draw(1, 1, D), places(-1)), (-1, MAX - 1)),
    (lambda: LearnedPositions(MAX, D).embed(draw(1, 1, D), places(MAX)), (MAX, MAX - 1)),
    (lambda: LearnedPositions(MAX, D).embed(draw(1, 1, D), places(-1)), (-1, MAX - 1)),
    (lambda: rope().turn(draw(1, 1, 1, D_HEAD), torch.tensor([1.0])), (torch.float32,)),
    (lambda: rope().turn(draw(1, 1, MAX, D_HEAD), torch.ones(MAX, dtype=torch.bool)), (torch.bool,)),
    *(
        (lambda block=block, dtype=dtype: block(X, pos=torch.ones(T, dtype=dtype)), (dtype,))
        for block in (attend(), ROPE, ALIBI)
        for dtype in (torch.float32, torch.bool, torch.uint8, torch.int16, torch.complex64)
    ),
    # Ids and positions without numbers, for tables that have them.
    *((lambda block=block: block(X, pos=ANYWHERE), ("cpu", "meta")) for block in (attend(), ROPE, ALIBI)),
    (lambda: rope().turn(draw(B, 1, T, D_HEAD), ANYWHERE), ("cpu", "meta")),
    (lambda: SinusoidalPositions(MAX, D).embed(X, ANYWHERE), ("cpu", "meta")),
    (lambda: LearnedPositions(MAX, D).embed(X, ANYWHERE), ("cpu", "meta")),
    (lambda: model()(ANYWHERE), ("cpu", "meta")),
    (lambda: ALIBI(X, pos=places(0, 1)), ((2,), (T,))),
    (lambda: attend()(X, pos=places(0)), ((1,), (T,))),
    (lambda: ROPE(X, pos=torch.zeros(B + 1, T, dtype=torch.int64)), ((B + 1, T), (B, T))),
    (lambda: attend()(X, pos=torch.tensor(3)), ((), (T,))),
    # Inputs.
    (lambda: attend()(draw(B, MAX + 1, D)), (MAX + 1, MAX)),
    (lambda: attend()(draw(B, T, D + 1)), ((B, T, D + 1), D)),
    (lambda: attend()(draw(T, D)), ((T, D), D)),
    (lambda: attend()(torch.zeros(B, T, D, dtype=torch.int64)), (torch.int64,)),
    (lambda: look()(X, X.int()), (torch.int32,)),
    (lambda: look()(X, draw(B, T, D + 1)), ((B, T, D + 1), D)),
    (lambda: look()(X, draw(B + 1, T, D)), ((B + 1, T, D),)),
    (lambda: look()(X, draw(B, 0, D)), ((B, 0, D),)),
    (lambda: look()(X, X, padding=torch.ones(B, T)), (torch.float32,)),
    (lambda: look()(X, X, padding=torch.ones(B, T + 1, dtype=torch.bool)), ((B, T + 1), (B, T))),
    (lambda: linear_attention(draw(B, H, T, 4), draw(B, H, T, 4), draw(B, H, T + 1, 4)), ((B, H, T + 1, 4),)),
    (lambda: linear_attention(draw(B, H, T, 4), draw(B, 1, T, 4), draw(B, H, T, 4)), ((B, 1, T, 4),)),
    # Caches of another batch, kind, model or length.
    (lambda: attend()(X, cache=filled(attend(), B + 1)), ((B + 1, H, 2, D_HEAD), (B, H, T, D_HEAD))),
    (lambda: attend(n_kv_heads=1)(X, cache=filled(attend())), ((B, H, 2, D_HEAD), (B, 1, T, D_HEAD))),
    (lambda: LINEAR(X, cache=filled(LINEAR, 1)), ((1, H, D_HEAD, D_HEAD), (B, H, D_HEAD, D_HEAD))),
    (lambda: LINEAR(X, cache=filled(attend())), ("keys",)),
    (lambda: attend()(X, cache=filled(LINEAR)), ("keys",)),
    (lambda: ROPE(X, pos=torch.zeros(B, T, dtype=torch.int64), cache=filled(ROPE)), ((2,), (B, T))),
    (lambda: attend()(draw(B, MAX - 1, D), cache=filled(attend())), (MAX - 1, 2, MAX)),
    (lambda: model()(torch.zeros(B, T, dtype=torch.int64), cache=KVCache(1)), (1, 2)),
    (lambda: model()(torch.zeros(B, T, dtype=torch.int64), cache=KVCache(3)), (3, 2)),
    # Ids.
    (lambda: model()(torch.tensor([[0, V]])), (V, (0, 1), V - 1)),
    (lambda: model()(torch.tensor([[0, 3], [-1, V]])), (-1, (1, 0), V - 1)),
    (lambda: model()(torch.zeros(B, T)), (torch.float32,)),
    (lambda: model()(torch.zeros(T, dtype=torch.int64)), ((T,),)),
    (lambda: model()(torch.zeros(B, MAX + 1, dtype=torch.int64)), (MAX + 1, MAX)),
]


def test_what_a_call_cannot_take_is_refused_with_what_was_found() -> None:
    for row, (call, named) in enumerate(CALLS):
        refused = refusal(call)
        assert all(str(one) in refused for one in named) and refused, (row, named, refused)


@pytest.mark.parametrize("kind", ["softmax", "linear", "uniform"])
@pytest.mark.parametrize("looking", [False, True])
@pytest.mark.parametrize("rows", [(0, T), (B, 0), (0, 0)], ids=str)
def test_no_rows_and_no_tokens_are_nothing_and_no_error(kind: str, looking: bool, rows: tuple[int, int]) -> None:
    blocks = [attend(kind=kind), attend(kind=kind, positions=rope())]
    blocks += [attend(window=2), attend(positions=AlibiPositions(H))] if kind == "softmax" else []
    for block in blocks:
        y = block(draw(*rows, D), return_weights=looking)
        assert (y[0] if looking else y).shape == (*rows, D)
    if rows[1]:
        assert look()(draw(*rows, D), draw(*rows, D)).shape == (*rows, D)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_last_position_and_the_last_id_are_taken(scheme: str) -> None:
    """The limits are the last ones that fit: a table of MAX rows ends at MAX - 1."""
    ids = torch.full((B, MAX), V - 1)
    for dtype in (torch.int64, torch.int32):
        assert model(scheme=scheme)(ids.to(dtype)).shape == (B, MAX, V)


@pytest.mark.parametrize("kind", ["softmax", "linear", "uniform"])
@pytest.mark.parametrize("looking", [False, True])
def test_on_the_meta_device_shapes_come_out(kind: str, looking: bool) -> None:
    for positions in (rope(), None):
        y = attend(kind=kind, positions=positions, device="meta")(X.to(META), return_weights=looking)
        assert (y[0] if looking else y).shape == X.shape
        assert not looking or y[1].shape == (B, H, T, T)
    logits, maps = model().to(META)(ANYWHERE, return_weights=True)
    assert logits.shape == (B, T, V) and {each.shape for each in maps} == {(B, H, T, T)}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_what_was_made_without_numbers_has_them_all_once_its_weights_are_loaded(scheme: str) -> None:
    """Masks, positions and slopes are in no state dict, and `to_empty` leaves whatever was in memory."""
    with torch.device("meta"):
        made, held = model(scheme=scheme), attend(window=3)
    ids, wanted, own = torch.arange(B * T).view(B, T) % V, model(scheme=scheme), attend(window=3)
    for here, there in ((made, wanted), (held, own)):
        with _memory_of_others():
            here.to_empty(device="cpu").load_state_dict(there.state_dict())
    (logits, maps), (right, right_maps) = (one.eval()(ids, return_weights=True) for one in (made, wanted))
    assert torch.equal(logits, right) and all(map(torch.equal, maps, right_maps))
    for looking in (False, True):
        found, due = (block(X, return_weights=looking) for block in (held, own))
        assert all(map(torch.equal, found, due))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_moving_a_model_rounds_its_tables_once(dtype: torch.dtype) -> None:
    for made in (SinusoidalPositions(MAX, D), AlibiPositions(H), attend(), model(scheme="alibi")):
        wanted = [
            (buffer if buffer.dtype in (torch.bool, torch.int64) else buffer.to(dtype)) for buffer in made.buffers()
        ]
        assert all(map(torch.equal, made.to(dtype).buffers(), wanted))


@contextlib.contextmanager
def _memory_of_others() -> Iterator[None]:
    """Let what torch leaves empty hold ones, as memory that was used before may."""
    real = torch.empty_like
    with mock.patch.object(torch, "empty_like", lambda *given, **more: real(*given, **more).fill_(1)):
        yield
