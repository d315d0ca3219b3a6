"""Autoregressive generation, one token at a time."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Generator, Tensor

from mhsa_cli.core.model.kv_cache import KVCache
from mhsa_cli.core.model.transformer import TransformerLM, eval_mode
from mhsa_cli.core.ranges import check_indices
from mhsa_cli.errors import UsageError
from mhsa_cli.text import plural


def sample(logits: Tensor, *, temperature: float = 0.0, top_k: int | None = None, generator: Generator) -> int:
    """Sample an id from logits (V,) among the `top_k` likeliest; temperature 0 is greedy. Ties: the lowest id first."""
    if temperature == 0:
        return int(logits.argmax())
    logits = logits.cpu().double()
    ids = torch.arange(len(logits)) if top_k is None else logits.argsort(descending=True, stable=True)[:top_k]
    # Subtract the maximum before dividing: a small temperature would overflow.
    p = ((logits[ids] - logits.max()) / temperature).softmax(-1)
    return int(ids[torch.multinomial(p, 1, generator=generator)])


@torch.no_grad()
def next_logits(model: TransformerLM, ids: Tensor, cache: KVCache | None) -> Tensor:
    """Compute the logits (V,) after ids (T,); with a cache, only the tokens it has not read are computed."""
    new = ids if cache is None else ids[cache.length :]
    with eval_mode(model):
        logits = model(new.unsqueeze(0), cache=cache)
    assert isinstance(logits, Tensor)
    return logits[0, -1]


def generate(
    model: TransformerLM,
    prompt: Tensor,
    steps: int,
    *,
    temperature: float = 0.0,
    top_k: int | None = None,
    seed: int = 0,
    use_cache: bool = True,
) -> Iterator[int]:
    """Yield `steps` ids that continue prompt (T,), each as soon as it is sampled.

    The cache changes the rounding of logits only, so the tokens differ at most at ties. The last token is not fed back:
    T + steps - 1 tokens must fit into max_seq_len. An encoder-decoder, without a cache, needs its source and separator.
    Raises: UsageError if they do not, if the model is not causal, or if the prompt is empty or has an id outside the
    vocabulary.
    """
    if not model.source and not all(attn.causal for attn in model.mixers):
        message = "this model is not causal (model.causal is false): each token was computed with all later ones"
        raise UsageError(message, "train with model.causal=true to generate; inspect-heads --tokens takes whole rows")
    if prompt.dim() != 1:
        raise UsageError(f"the prompt has the shape {tuple(prompt.shape)}", "give ids (T,)")
    longest, length = model.max_seq_len, len(prompt)
    if length < 1:
        raise UsageError("the prompt is empty", "give at least one token to start from")
    if length + steps - 1 > longest:
        most = longest - length + 1
        hint = f"generate at most {plural(most, 'token')} (the last one is not fed back)"
        if most < 1:
            hint = "shorten the prompt, or train with a larger max_seq_len"
        raise UsageError(f"prompt ({length}) + new tokens ({steps}) exceed max_seq_len ({longest})", hint)
    if length <= model.source:
        hint = f"give the {plural(model.source, 'token')} of the source and the separator"
        raise UsageError(f"the prompt has {plural(length, 'token')}, an encoder-decoder reads its whole source", hint)
    try:
        check_indices("id", prompt, model.tok_emb.weight.size(-2))  # before the prompt is moved to a device
    except ValueError as error:
        raise UsageError(f"the prompt: {error}") from error
    return _tokens(model, prompt.to(model.pos.device), steps, temperature, top_k, seed, use_cache and not model.source)


def _tokens(
    model: TransformerLM, ids: Tensor, steps: int, temperature: float, top_k: int | None, seed: int, use_cache: bool
) -> Iterator[int]:
    generator = torch.Generator().manual_seed(seed)
    cache = KVCache(len(model.blocks)) if use_cache else None
    for _ in range(steps):
        token = sample(next_logits(model, ids, cache), temperature=temperature, top_k=top_k, generator=generator)
        yield token
        ids = torch.cat([ids, ids.new_tensor([token])])
