"""The law of a cache: steps that are given earlier keys and values equal one call on the whole sequence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.check.call.call_form import CallForm, parts_of
from mhsa_cli.check.call.name_lexicon import normalized, signature_of
from mhsa_cli.check.laws.outcome import HOLDS, Outcome, close, fails, not_tested
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.read.masks import allowed
from mhsa_cli.check.tensors import max_difference, scale_of

CACHE = re.compile(r"past|cache|kv$|memory|state|present")
SWITCH = re.compile(r"^(use|return)\w*(cache|kv|past|present)")


def cached_steps(c: Context) -> Outcome:
    """All tokens but the last, then the last with the cache that the first call returned: as in one call."""
    form = c.call_form
    if c.match is None or c.match.faults or form.mask is not None or form.positions or form.angles or form.unbatched:
        return not_tested("no_cache")
    x = c.x[:, :-1]  # the number of cached tokens differs from all other sizes
    for step in _steps(c, x):
        outcome = close(step.last(step.cache), c.y(x)[:, -1:], "differs")
        if outcome.passed:
            return HOLDS
        with suppress(Exception, SystemExit):
            if step.grows() and (hidden := step.hidden()) is not None:
                return fails("hides", outcome.max_difference, token=hidden)
        return not_tested("differs")
    return not_tested("no_cache")


@dataclass
class _Step:
    """A call with the last token and a cache of the earlier ones."""

    c: Context
    form: CallForm
    name: str
    index: int  # of the cache in what is returned
    cache: Any
    x: Tensor

    def last(self, cache: Any) -> Tensor:
        """Output for the last token: (B, 1, D)."""
        instance = replace(self.c.instance, supplied={**self.c.instance.supplied, self.name: cache})
        with torch.no_grad():
            return instance.run(self.form, self.x[:, -1:].to(instance.dtype)).y.to(torch.float64)

    def grows(self) -> bool:
        """Whether the step returns the cache with one more token; a memory of another sequence stays as it is."""
        form = replace(self.form, fixed={**self.form.fixed, self.name: self.cache})
        parts = parts_of(self.c.instance.call, form, self.x[:, -1:].to(self.c.instance.dtype))
        return len(parts) > self.index and _has_axis(parts[self.index], self.x.size(1))

    def hidden(self) -> int | None:
        """The first token of the cache that the last token does not see, and sees in one call."""
        assert self.c.match is not None
        before, tokens = self.last(self.cache), self.x.size(1) - 1
        seen = allowed(self.c.match.spec.mask, tokens + 1)[..., -1, :].view(-1, tokens + 1).any(0)
        for token in (token for token in range(tokens) if bool(seen[token])):
            changed = _changed(self.cache, tokens, token)
            if max_difference(self.last(changed), before) <= 1e-9 * scale_of(before):
                return token
        return None


def _steps(c: Context, x: Tensor) -> Iterator[_Step]:
    """List the ways to pass what a call on all tokens but the last returns to a call with the last one."""
    parameters = signature_of(c.instance.call).parameters
    switches = {name: True for name, one in parameters.items() if isinstance(one.default, bool) and SWITCH.search(name)}
    names = [name for name, one in parameters.items()
             if one.default is None and CACHE.search(normalized(name)) and name not in c.call_form.inputs]  # fmt: skip
    form = replace(c.call_form, fixed={**c.call_form.fixed, **switches})
    for name in names:
        with suppress(Exception, SystemExit):
            for index, part in enumerate(parts_of(c.instance.call, form, x[:, :-1].to(c.instance.dtype))):
                step = _Step(c, form, name, index, part, x)
                with suppress(Exception, SystemExit):
                    if step.last(part).shape[:2] == (x.size(0), 1) and _has_axis(part, x.size(1) - 1):
                        yield step


def _has_axis(part: Any, size: int) -> bool:
    tensors = [part] if isinstance(part, Tensor) else list(part)
    return bool(tensors) and all(isinstance(t, Tensor) and t.dim() > 2 and size in t.shape for t in tensors)


def _changed(part: Any, tokens: int, token: int) -> Any:
    """Change one token of a cache, along the axis whose length is the number of tokens."""
    if not isinstance(part, Tensor):
        parts = [_changed(one, tokens, token) for one in part]
        return type(part)(*parts) if hasattr(part, "_fields") else type(part)(parts)  # a named tuple takes each alone
    axis = [at for at, size in enumerate(part.shape) if size == tokens][-1]
    index: list[Any] = [slice(None)] * part.dim()
    index[axis] = token
    new = part.clone()
    new[tuple(index)] *= -1.5
    return new
