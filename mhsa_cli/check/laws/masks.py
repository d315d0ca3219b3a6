"""The law of masks that a call takes beside the causal one: a mask that is applied has an effect."""

from __future__ import annotations

from dataclasses import replace

from mhsa_cli.check.laws.outcome import HOLDS, Outcome, fails, not_tested
from mhsa_cli.check.locate.evidence import masks
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.tensors import max_difference


def given_masks(c: Context) -> Outcome:
    """A mask (B, T) that hides the first key changes the output, if code of the call applies it."""
    names = c.other_masks
    if c.match is None or c.match.faults or not names:
        return not_tested("no_masks")
    tested = False
    for name in names:
        effects = [effect for meaning in (True, False) if (effect := _effect(c, name, meaning)) is not None]
        if effects and not any(effects):
            return fails("no_effect", name=name)
        tested = tested or bool(effects)
    return HOLDS if tested else not_tested("no_masks")


def _effect(c: Context, name: str, meaning: bool) -> bool | None:
    """Whether a mask changes the output; None if it raises, or if no code applies it."""
    given = replace(c, instance=c.with_mask(name, meaning))
    try:
        changed = max_difference(given.y(c.x), c.y(c.x)) > 0
    except (Exception, SystemExit):
        return None
    known = set(map(c.called.place, c.called.run))
    applied = any(masks(given.called, node) for node in given.called.run if given.called.place(node) not in known)
    return changed if changed or applied else None
