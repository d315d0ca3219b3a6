"""The text of each claim: the only place where a claim becomes a sentence, for the screen and for files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from mhsa_cli.records.claims import Claim, Predicate

# A claim's own fields and its evidence by name; `nats` is a format of this file.
WORDS: dict[Predicate, str] = {
    "pattern matters": "The pattern matters: with uniform attention in every head the loss rises from {loss:nats} to "
    "{without:nats} nats ({estimate:+nats}).",
    "no effect shown": "No effect of the pattern shown on {task}: with uniform attention in every head the loss goes "
    "from {loss:nats} to {without:nats} nats ({estimate:+nats}).",
    "frozen uniform": "Attention is frozen uniform: these heads cannot choose what they attend to.",
    "not learned": "The task is not learned: the loss at chance level is {reference:.4f} nats.",
    "heads not labelled": "Heads are not labelled.",
    "heads not measured": "Heads were not measured and are not labelled: {why}.",
    "patterns not measured": "The effect of the patterns was not measured: {why}. Labels say what heads attend to, not "
    "what they cause.",
    "custom attention": "the weights of custom attention cannot be replaced",
    "large model": "the model is large",
    "rows too long": "rows of {seq_len} tokens are too long; the maps are exact",
    "loss not finite": "the loss is not finite",
    "weights not finite": "the weights are not finite",
    "not all measured": "the model is large: effects and Shapley values were not measured for all heads",
    "joint effect too small": "uniform attention in every head costs {estimate:nats} nats, less than {reference:.4g}: "
    "too little to be divided among heads",
    "negative shares": "some Shapley values are negative: with other heads ablated, those patterns cost loss",
    "not labelled": "not labelled: no effect of the pattern shown here",
    "nothing measured": "not labelled: nothing could be measured",
    "weight on target": "{estimate:.0%} of its weight lies there (uniform: {reference:.0%}, lift {lift:.2f})",
    "above untrained heads": "untrained heads: lift below {reference:.2f} (99th percentile)",
    "content-based": "content-based: at distances not used in training its lift is {gaps}",
    "positional": "positional: on random rows its maps are alike (similarity {estimate:.2f})",
    "mostly positional": "mostly positional: on random rows its maps are similar (similarity {estimate:.2f})",
    "not only positional": "not only positional: on random rows its maps differ (similarity {estimate:.2f})",
    "sink": "an attention sink on the first token",
    "closest": "closest pattern: {target.text} (lift {estimate:.2f})",
    "closest is common": "closest pattern: {target.text} (lift {estimate:.2f}), no label here: a uniform head has "
    "{uniform:.0%} of its weight there",
    "closest not compared": "closest pattern: {target.text} (lift {estimate:.2f}), no label: it was not compared with "
    "untrained heads",
    "closest below untrained heads": "closest pattern: {target.text} (lift {estimate:.2f}), no label: 1% of untrained "
    "heads reach {reference:.2f}",
    "uniformity": "its similarity to uniform attention is {estimate:.2f}",
    "largest weight": "its largest weight is {estimate:.2f} on average",
    "not tested at other distances": "the rows are too short to test it at other distances",
    "tested at other distances": "at distances not used in training its induction lift is {gaps}",
    "resembles induction": "resembles induction but is not: at distances not used in training its induction lift is "
    "{gaps}",
    "effect": "making this head uniform changes the loss by {estimate:+.3f} nats",
    "effect and share": "making this head uniform changes the loss by {estimate:+.3f} nats, and it accounts for "
    "{part:.0%} of what attention is worth here (Shapley: {share:.3f} of {joint:.3f} nats)",
    "effect and negative share": "making this head uniform changes the loss by {estimate:+.3f} nats, and it accounts "
    "for {part:.0%} of what attention is worth here (Shapley: {share:.3f} of {joint:.3f} nats): with other heads "
    "ablated, its pattern costs loss",
    "effect not measured": "its effect was not measured: {why}",
    "backup heads": "with its backup heads ({others}) uniform, making it uniform too changes the loss by "
    "{estimate:+.3f} nats",
    "stored": "{text}",
}


def words(claim: Claim) -> str:
    """Return the text of a claim: a full sentence about a model, a clause about a head."""
    fields = {"estimate": claim.estimate, "reference": claim.reference}
    return _Figures().vformat(WORDS[claim.predicate], (), {**fields, **claim.evidence})


def sentences(claims: Iterable[Claim]) -> str:
    """Return the sentences about a model as one text."""
    return " ".join(map(words, claims))


class _Figures(Formatter):
    """Formats nats, and evidence that is neither number nor text: another claim, lifts by distance, names."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Claim):
            return words(value)
        if isinstance(value, Mapping):  # "0.91 at 5, 0.88 at 7"
            return ", ".join(f"{lift:.2f} at {gap}" for gap, lift in value.items())
        if isinstance(value, Sequence) and not isinstance(value, str):
            return ", ".join(map(str, value))
        if format_spec.endswith("nats"):  # a diverged model has losses of many digits
            return format(value, format_spec.removesuffix("nats") + (".4g" if abs(value) >= 1e6 else ".4f"))
        return format(value, format_spec)
