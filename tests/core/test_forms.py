"""One suite for every form of attention: positions x kind x heads of keys and values x layers x cache."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from mhsa_cli.core.model import linear_attention
from mhsa_cli.core.model.kv_cache import KVCache
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.training.stack import stack_models
from tests.core.forms import (
    D_HEAD,
    FORMS,
    KINDS,
    MAX,
    WINDOW,
    B,
    D,
    Form,
    H,
    T,
    V,
    check_same_but_for_ties,
    fits,
    tokens,
)
from tests.core.reference import draw, worst

each_form = pytest.mark.parametrize("form", FORMS, ids=str)


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Linear attention carries its sums across blocks of tokens: make several of these few tokens."""
    monkeypatch.setattr(linear_attention, "BLOCK", 4)


def bound(wanted: Tensor, relative: float = 1e-6) -> float:
    return relative * max(1.0, float(wanted.detach().abs().max()))


def gradients(model: TransformerLM, logits: Tensor) -> dict[str, Tensor]:
    """Send a random gradient back through logits (..., T, V)."""
    leaves = dict(model.named_parameters())
    loss = (logits * draw(*logits.shape[-3:], seed=9)).sum()
    return dict(zip(leaves, torch.autograd.grad(loss, list(leaves.values())), strict=True))


@each_form
def test_looking_at_the_weights_changes_nothing(form: Form) -> None:
    """Logits and gradients by way of materialised weights are those of the fused or blocked path."""
    for dtype, relative in ((torch.float32, 1e-6), (torch.float64, 1e-13)):
        model, ids = form.model(dtype=dtype), tokens(B, T)
        fused, (explicit, weights) = model(ids), model(ids, return_weights=True)
        assert fused.dtype == dtype and len(weights) == form.n_layers
        assert worst(explicit, fused) <= bound(fused, relative)
    wanted = gradients(model, fused)  # in float64
    for name, gradient in gradients(model, explicit).items():
        assert worst(gradient, wanted[name]) <= bound(wanted[name], 1e-12), name


@each_form
def test_weights_are_a_distribution_over_what_may_be_seen(form: Form) -> None:
    """Rows sum to one; the future, and what lies before the window, is exactly 0; the rest is above 0."""
    _, layers = form.model()(tokens(B, T), return_weights=True)
    far = torch.arange(T).unsqueeze(1) - torch.arange(T)
    seen = (far >= 0) & (far < (WINDOW if form.kind == "window" else T))
    for weights in layers:
        assert weights.shape == (B, H, T, T)
        assert worst(weights.sum(-1), torch.ones(B, H, T)) <= 1e-6
        assert bool((weights[..., ~seen] == 0).all()) and bool((weights[..., seen] > 0).all())


@each_form
def test_a_changed_future_leaves_the_past_bit_equal(form: Form) -> None:
    """On both paths; the changed token itself does see itself."""
    model, ids = form.model(), tokens(B, T)
    for cut in (1, 4, T - 1):
        changed = ids.clone()
        changed[:, cut:] = (changed[:, cut:] + 1 + tokens(B, T - cut, seed=cut) % (V - 1)) % V
        for looking in (False, True):
            before, after = (model(i, return_weights=looking) for i in (ids, changed))
            before, after = (before[0], after[0]) if looking else (before, after)
            assert torch.equal(before[:, :cut], after[:, :cut]), f"token {cut} reached back"
            assert bool((before[:, cut] != after[:, cut]).any(-1).all())


CHUNKS = {"one by one": [1] * T, "threes": [3] * 3, "a prompt, then one by one": [5, 1, 1, 1, 1], "late": [1, T - 1]}


@each_form
@torch.no_grad()
def test_a_cache_changes_no_logit(form: Form) -> None:
    """Whatever the pieces in which the tokens are read, every one gets the logits of reading all at once."""
    model, ids = form.model(), tokens(B, T)
    full = model(ids)
    for name, sizes in CHUNKS.items():
        cache = KVCache(form.n_layers)
        pieces = [model(piece, cache=cache) for piece in ids.split(sizes, 1)]
        assert cache.length == T
        assert worst(torch.cat(pieces, 1), full) <= bound(full), name
    held = {"linear": H * D_HEAD * (D_HEAD + 1)}.get(form.kind, 2 * form.n_kv_heads * T * D_HEAD)
    assert [sum(t.numel() for t in layer.tensors) for layer in cache] == [B * held] * form.n_layers


@each_form
@torch.no_grad()
def test_cached_weights_are_the_last_rows_of_all(form: Form) -> None:
    """Also when the tokens before were read without looking; linear attention's sums hold no keys to look at."""
    model, ids, cache = form.model(), tokens(B, T), KVCache(form.n_layers)
    model(ids[:, :4], cache=cache)
    if form.kind == "linear":
        with pytest.raises(ValueError, match="holds no keys"):
            model(ids[:, 4:], cache=cache, return_weights=True)
        return
    logits, weights = model(ids[:, 4:], cache=cache, return_weights=True)
    full, wanted = model(ids, return_weights=True)
    assert worst(logits, full[:, 4:]) <= bound(full)
    for found, whole in zip(weights, wanted, strict=True):
        assert worst(found, whole[:, :, 4:]) <= 1e-6


@each_form
@torch.no_grad()
def test_a_cache_changes_no_token(form: Form) -> None:
    """Greedy continuations up to the last position, from prompts of several lengths."""
    model = form.model()
    for length in (2, T):
        prompt, steps = tokens(length, seed=length), MAX - length + 1
        cached = check_same_but_for_ties(model, prompt, steps)
        assert len({*cached, *tokens(9).tolist()}) > 1


@pytest.mark.parametrize("scheme", ["learned", "rope", "alibi"])
@pytest.mark.parametrize("kind", KINDS)
def test_where_a_cache_changes_a_token_the_two_tie(scheme: str, kind: str) -> None:
    """Rows of the head that differ by about a rounding: which of them is the likeliest is often for rounding to say."""
    if not fits(scheme, kind):
        return
    for seed in range(2):
        model = Form(scheme, kind, 2, 2).model(seed)
        rows, bias = model.lm_head.weight.data, model.lm_head.bias
        assert bias is not None
        bias.data.zero_()
        rows.copy_(rows[:1] * (1 + 1e-7 * torch.randn(V, D, generator=torch.Generator().manual_seed(seed))))
        check_same_but_for_ties(model, tokens(2, seed=seed), MAX - 1)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """How many share a product decides its bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@each_form
@pytest.mark.usefixtures("one_thread")
def test_a_slot_of_a_stack_is_bit_equal_to_a_stack_of_one(form: Form) -> None:
    """Logits, loss gradients of every parameter, and weights."""
    models = [form.model(seed) for seed in range(3)]
    ids = tokens(3, B, T)
    stacked = stack_models(models)
    logits, weights = stacked(ids), stacked(ids, return_weights=True)[1]
    slots = gradients(stacked, logits)
    for m, model in enumerate(models):
        alone = stack_models([model])
        wanted = alone(ids[m : m + 1])
        assert torch.equal(logits[m], wanted[0])
        assert worst(logits[m], model(ids[m])) <= bound(wanted)
        for name, gradient in gradients(alone, wanted).items():
            assert torch.equal(slots[name][m], gradient[0]), name
        for found, one in zip(weights, alone(ids[m : m + 1], return_weights=True)[1], strict=True):
            assert torch.equal(found[m], one[0])


@each_form
def test_gradients_are_finite_and_reach_what_they_should(form: Form) -> None:
    """Every parameter, and of the fused map queries, keys and values each; unused rows of tables stay at 0."""
    model, ids = form.model(), tokens(B, T)
    for name, gradient in gradients(model, model(ids)).items():
        assert bool(gradient.isfinite().all()), name
        if "qkv_proj.weight" in name:
            kv = form.n_kv_heads * D_HEAD
            q, k, v = (part.abs().amax() for part in gradient.split([D, kv, kv]))
            assert v > 1e-3, name
            assert (q == k == 0) if form.kind == "uniform" else (q > 1e-3 and k > 1e-3), name
        else:
            assert gradient.abs().amax() > 1e-3, name
        if name == "tok_emb.weight":
            used = torch.zeros(V, dtype=torch.bool).scatter_(0, ids.flatten(), True)
            assert torch.equal(gradient.abs().sum(-1) > 0, used) and not used.all()
        if name == "positions.pos_emb.weight":
            assert torch.equal(gradient.abs().sum(-1) > 0, torch.arange(MAX) < T)


@each_form
def test_what_is_saved_is_the_parameters_and_gives_the_same_bits(form: Form) -> None:
    model, other, ids = form.model(1), form.model(2), tokens(B, T)
    saved, own = model.state_dict(), dict(model.named_parameters())
    assert own.keys() <= saved.keys()  # a table that the blocks share has a name in each
    assert {t.data_ptr() for t in saved.values()} == {p.data_ptr() for p in own.values()}
    assert not torch.equal(model(ids), other(ids))
    other.load_state_dict(model.state_dict())
    assert torch.equal(model(ids), other(ids))
