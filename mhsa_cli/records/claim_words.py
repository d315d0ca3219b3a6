"""The words of claims: the one place where what is said of heads becomes a sentence, on screen and in files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from mhsa_cli.records.claims import Claim, Predicate

# A claim's own fields and its evidence by name; `nats` is a format of this file.
WORDS: dict[Predicate, str] = {
    "pattern matters": "The pattern matters: with every head spread evenly the loss rises from {loss:nats} to "
    "{without:nats} nats ({estimate:+nats}).",
    "no effect shown": "The pattern does not matter on {task}: with every head spread evenly the loss goes "
    "from {loss:nats} to {without:nats} nats ({estimate:+nats}).",
    "frozen uniform": "Attention is frozen uniform: these heads cannot choose where they look.",
    "not learned": "The task is not learned: guessing scores {reference:.4f} nats.",
    "heads not labelled": "Heads are not labelled.",
    "heads not measured": "Heads were not measured and are not labelled: {why}.",
    "patterns not measured": "What the patterns are worth was not measured: {why}. Names say where heads look, not "
    "what they cause.",
    "custom block": "in a block that is not ours no head's weights can be replaced",
    "large model": "the model is large",
    "rows too long": "rows of {seq_len} tokens are too long for it; the maps are exact",
    "loss not finite": "the loss is not finite",
    "weights not finite": "the weights are not finite",
    "not all measured": "the model is large: single heads and their shares were not all measured",
    "shares mean nothing": "all patterns together are worth {estimate:nats} nats, less than {reference:.4g}: shares of "
    "it mean nothing",
    "shares negative": "some shares are negative: those patterns mislead where others are missing",
    "not labelled": "not labelled: the pattern does not matter here",
    "nothing measured": "not labelled: nothing could be measured",
    "weight on target": "{estimate:.2f} of its weight lies there, where an even head has {reference:.2f} "
    "(lift {lift:.2f})",
    "above random heads": "99 % of random heads stay below lift {reference:.2f}",
    "by content": "it goes by content: at distances that training never used its lift is {gaps}",
    "by position": "it goes by position: on random rows its maps are {estimate:.2f} alike",
    "mostly by position": "it goes mostly by position: on random rows its maps are {estimate:.2f} alike",
    "not by position alone": "it does not go by position alone: on random rows its maps are {estimate:.2f} alike",
    "sink": "it is a sink, which parks its weight on the first token",
    "closest": "closest is {target.text}, with lift {estimate:.2f}",
    "closest is common": "closest is {target.text}, with lift {estimate:.2f}: no name here, where an even head already "
    "has {uniform:.2f} of its weight there",
    "closest not compared": "closest is {target.text}, with lift {estimate:.2f}: no name, for it was not compared with "
    "random heads",
    "closest is random": "closest is {target.text}, with lift {estimate:.2f}: no name, for 1 % of random heads reach "
    "{reference:.2f}",
    "near uniform": "it is {estimate:.2f} like an even head",
    "largest weight": "its largest weight is {estimate:.2f} on average",
    "not tried elsewhere": "the rows are too short to try it at other distances",
    "tried elsewhere": "at distances that training never used its lift as induction is {gaps}",
    "resembles induction": "it resembles induction but is not: at distances that training never used its lift as "
    "induction is {gaps}",
    "effect": "spread evenly instead, it alone changes the loss by {estimate:+.3f} nats",
    "effect and share": "spread evenly instead, it alone changes the loss by {estimate:+.3f} nats, and its share of "
    "what all patterns are worth is {share:.3f} of {joint:.3f} nats ({part:.0%})",
    "effect and negative share": "spread evenly instead, it alone changes the loss by {estimate:+.3f} nats, and its "
    "share of what all patterns are worth is {share:.3f} of {joint:.3f} nats ({part:.0%}): where others are missing "
    "its pattern misleads",
    "effect not measured": "what it causes was not measured: {why}",
    "backup heads": "with its look-alikes ({others}) spread evenly, taking it as well changes the loss by "
    "{estimate:+.3f} nats",
    "stored": "{text}",
}


def words(claim: Claim) -> str:
    """Say a claim: a whole sentence of a model, a part of one of a head."""
    own = {"estimate": claim.estimate, "reference": claim.reference}
    return _Figures().vformat(WORDS[claim.predicate], (), {**own, **claim.evidence})


def sentences(claims: Iterable[Claim]) -> str:
    """Say what is claimed of a model, sentence after sentence."""
    return " ".join(map(words, claims))


class _Figures(Formatter):
    """Formats what evidence holds besides numbers and texts: reasons, lifts by distance, names; and nats."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Claim):
            return words(value)
        if isinstance(value, Mapping):  # "0.91 at 5, 0.88 at 7"
            return ", ".join(f"{lift:.2f} at {gap}" for gap, lift in value.items())
        if isinstance(value, Sequence) and not isinstance(value, str):
            return ", ".join(map(str, value))
        if format_spec.endswith("nats"):  # those of a model that exploded are written short
            return format(value, format_spec.removesuffix("nats") + (".4g" if abs(value) >= 1e6 else ".4f"))
        return format(value, format_spec)
