"""The text of each claim: the only place where a claim becomes a sentence, for the screen and for files."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from string import Formatter
from typing import Any

from mhsa_cli.records.claims import Claim, Predicate, Status
from mhsa_cli.records.heads import GapLimit
from mhsa_cli.records.labels import Label

# A claim's own fields and its evidence by name. Formats of this file: `nats`, `pm` (a standard error, or nothing), ...
WORDS: dict[Predicate, str] = {
    "solved by": "Solved by {way}: {groups:groups}{others}.",
    "works by": "Not solved ({accuracy:.0%} accuracy); what attention gains: {groups:groups}{others}.",
    "path": "Patching {path} costs {estimate:.2f}{se:pm} nats (random writers: up to {reference:.2f}).",
    "pattern matters": "Attention is worth {estimate:nats}{se:pm} nats here: with uniform attention in every head the "
    "loss rises from {loss:nats} to {without:nats}.",
    "attention harmful": "Attention is harmful on these rows: with uniform attention in every head the loss falls from "
    "{loss:nats} to {without:nats} nats ({estimate:+nats}{se:pm}).",
    "no effect shown": "No effect of the pattern above {reference:g} nats shown on {task}: with uniform attention in "
    "every head the loss goes from {loss:nats} to {without:nats} nats ({estimate:+nats}{se:pm}).",
    "heads cancel": "The heads cancel each other: made uniform alone, they change the loss by {singles} nats.",
    "single effects": "Single heads have an effect: made uniform alone, they change the loss by {singles} nats.",
    "frozen uniform": "Attention is frozen uniform: these heads cannot choose what they attend to.",
    "below chance": "The loss is worse than at chance level on these rows: {estimate:nats} nats against "
    "{reference:nats}.",
    "not learned": "The task is not solved: the loss at chance level is {reference:.4f} nats.",
    "over-fitted": "The model is over-fitted: its loss is {train:nats} nats on training rows, {loss:nats} on held-out "
    "rows.",
    "rows trained on": "{seen} of these {rows} rows were trained on.",
    "heads not labelled": "Heads are not labelled.",
    "labels account": "These labels account for {part:share} of what attention is worth here.",
    "labels account for nothing": "No label accounts for what attention is worth here.",
    "singles and joint": "One head at a time, uniform attention costs {singles:nats} nats in total, in all heads at "
    "once {estimate:nats} (redundancy {redundancy:.2f}).",
    "heads depend": "One head at a time, uniform attention costs {singles:nats} nats in total, in all heads at "
    "once {estimate:nats}: the heads depend on each other.",
    "need each other": "{heads:and} need each other: one of them uniform costs {singles:costs} nats, both "
    "together {estimate:.3f}{se:pm}.",
    "back each other up": "{heads:and} back each other up: one of them uniform costs {singles:costs} nats, all "
    "together {estimate:.3f}{se:pm}.",
    "heads not measured": "Heads were not measured and are not labelled: {why}.",
    "patterns not measured": "The effect of the patterns was not measured: {why}. Labels say what heads attend to, not "
    "what they cause.",
    "custom attention": "the weights of custom attention cannot be replaced",
    "large model": "the model is large",
    "rows too long": "rows of {seq_len} tokens are too long; the maps are exact",
    "loss not finite": "the loss is not finite",
    "weights not finite": "the weights are not finite",
    "not all measured": "effects and Shapley values were not measured for all heads (more than 10, or a large model)",
    "joint effect too small": "uniform attention in every head costs {estimate:nats} nats, less than {reference:.4g} "
    "or within its error: nothing to divide among heads",
    "negative shares": "some Shapley values are negative: with other heads ablated, those patterns cost loss",
    "not labelled": "not labelled: no effect of the pattern shown here",
    "nothing measured": "not labelled: nothing could be measured",
    "weight on target": "{estimate:.0%} of its weight lies there (uniform: {reference:.0%}, lift {lift:.2f})",
    "weight on target where it is": "{estimate:.0%} of its weight lies there where there is one (uniform: "
    "{reference:.0%}, lift {lift:.2f})",
    "lift on scored queries": "lift over the scored queries alone: {estimate:.2f}",
    "above untrained heads": "untrained heads: lift below {reference:.2f} (99th percentile)",
    "above random heads": "heads of this model with random queries and keys: lift up to {reference:.2f}",
    "on the answer": "{estimate:.0%} of its weight is on the answer (uniform: {reference:.0%})",
    "also attends": "of the weight left, {estimate:.0%} lies on: {target:label}",
    "content-based": "content-based: at distances that training does not favour its lift is {gaps}",
    "positional": "positional: same map on shuffled tokens (similarity {estimate:.2f})",
    "partly positional": "partly positional: on shuffled tokens its map changes (similarity {estimate:.2f})",
    "depends on tokens": "not positional: another map on shuffled tokens (similarity {estimate:.2f})",
    "sink": "an attention sink on the first token: no effect of its output was shown",
    "closest": "closest pattern: {target:label} (lift {estimate:.2f})",
    "closest is common": "closest pattern: {target:label} (lift {estimate:.2f}), no label here: a uniform head has "
    "{uniform:.0%} of its weight there",
    "closest not compared": "closest pattern: {target:label} (lift {estimate:.2f}), no label: it was not compared with "
    "untrained heads",
    "closest below untrained heads": "closest pattern: {target:label} (lift {estimate:.2f}), no label: 1% of untrained "
    "heads reach {reference:.2f}",
    "closest below random heads": "closest pattern: {target:label} (lift {estimate:.2f}), no label: of 64 heads with "
    "random queries and keys one reaches {reference:.2f}",
    "uniformity": "its similarity to uniform attention is {estimate:.2f}",
    "largest weight": "its largest weight is {estimate:.2f} on average",
    "not tested at other distances": "it was not tested at other distances{limit:limit}",
    "tested at other distances": "at distances that training does not favour its induction lift is {gaps}",
    "weaker at other distances": "at distances that training does not favour it finds repeats too, but weaker (lift "
    "{gaps})",
    "effect": "making this head uniform costs {estimate:.3f}{se:pm} nats",
    "share": "it accounts for {part:share} of what attention is worth here (Shapley: {share:.3f} of {joint:.3f} nats)",
    "negative share": "averaged over sets of other heads, its pattern is harmful: {estimate:.0%}{se:pm%} of what "
    "attention is worth here (Shapley: {share:.3f} of {joint:.3f} nats)",
    "harmful": "its pattern is harmful on these rows",
    "suppresses": "it suppresses the answer: without its output the loss changes by {estimate:+.3f}{se:pm} nats",
    "only output": "only its output matters: without it the loss changes by {estimate:+.3f}{se:pm} nats",
    "cancels": "{others} cancels its effect: both uniform cost nothing",
    "effect not measured": "its effect was not measured: {why}",
    "backup heads": "backup heads ({others}): with them uniform, making it uniform too costs "
    "{estimate:.3f}{se:pm} nats",
    "kept": "an ideal head of its label ({target:label}) keeps {part:share} of its effect",
    "onset": "from between steps {low} and {high} on it has at least half of its final lift ({estimate:.2f})",
    "lead": "it formed before the largest drop of the loss, by {low} to {high} steps",
    "order": "{first} formed before {second:and}, by {low} to {high} steps.",
    "stored": "{text}",
    # circuits
    "no circuits": "The weights contain NaN or infinity: nothing was measured.",
    "low precision": "The model computes in {dtype}: the residual error is mostly rounding of its logits.",
    "no scores for QK shares": "No QK shares: {attention} attention has no scores of queries times keys.",
    "no QK shares after a norm": "No QK shares: after a norm the score is not a sum of token and position terms.",
    "QK shares of layer 0 only": "QK shares are of layer 0 only: later layers do not read a plain sum of token and "
    "position.",
    "no QK shares of constant scores": "No QK shares for {heads}: the variance of the scores is zero or not finite.",
    "no OV circuits": "No OV circuits: without residuals no head connects the embeddings directly to the logits.",
    "OV circuits ignore norms": "OV circuits are computed from the weights and ignore norms.",
    "top-1 of some tokens": "OV top-1 is over {tokens:,} evenly spaced tokens of {vocab_size:,}.",
    "no direct logits": "No direct logits: head outputs reach the logits only through the MLP.",
    "direct logits of the last layer only": "Direct logits are of the last layer only: earlier layers are not added to "
    "the logits.",
    "direct logits hold the norm": "Direct logits hold the final norm at its measured scale.",
    "no scored token": "No direct logits: these rows have no scored token.",
    "logits not finite": "The logits are not finite: the residual error is unknown.",
    "no composition without residuals": "No composition: without a residual stream later heads do not read single "
    "heads' outputs.",
    "too many pairs of heads": "No composition: {pairs:,} pairs of heads exceed the limit of {limit:,}.",
    "composition ignores": "Composition is computed from the weights and ignores: {omitted}.",
    "V-composition only": "V-composition only: {attention} attention has no scores of queries times keys.",
    "pairs without composition": "{missing:,} of {pairs:,} pairs of heads have no composition: a matrix is zero.",
    "composition not compared": "No composition is shown: the model is too large to compare it with random directions.",
}
PLURALS = {"attends": "attend", "matches": "match", "copies": "copy", " its ": " their ", "itself": "themselves"}
GAP_LIMITS = {None: "", GapLimit.LENGTH: ": the rows are too short", GapLimit.SYMBOLS: ": the task has too few symbols"}
# Where the figures do not show it.
NOT_SHOWN: dict[Predicate, str] = {
    "path": "No effect of patching {path} shown ({estimate:.2f}{se:pm} nats; random writers: up to {reference:.2f}).",
    "effect": "no effect above {reference:g} nats shown when made uniform ({estimate:+.3f}{se:pm} nats)",
    "share": "no share of what attention is worth shown (Shapley: {share:.3f} of {joint:.3f} nats)",
    "labels account": "No part of what attention is worth here is shown to lie in these labels.",
    "kept": "an ideal head of its label ({target:label}) is not shown to keep any of its effect",
    "heads depend": "One head at a time, uniform attention costs {singles:nats} nats in total, in all heads at once "
    "{estimate:nats}.",
    "onset": "no onset: its final lift is below {reference:.1f}, or most of it was there from the start",
    "lead": "no lead shown: from {low} to {high} steps before the largest drop of the loss",
    "order": "No order of formation shown between {first} and {second:and}: their rises overlap.",
}


OPPOSITE: dict[Predicate, str] = {
    **NOT_SHOWN,
    "effect": "making this head uniform changes the loss by {estimate:+.3f}{se:pm} nats",
    "labels account": "These labels do not account for what attention is worth: ideal heads of them are harmful.",
    "kept": "an ideal head of its label ({target:label}) is harmful in its place",
    "lead": "it formed after the largest drop of the loss, by {high:minus} to {low:minus} steps",
    "order": "{first} formed after {second:and}, by {high:minus} to {low:minus} steps.",
}


def words(claim: Claim) -> str:
    """Return the text of a claim: a full sentence about a model, a clause about a head."""
    text = {Status.NOT_SHOWN: NOT_SHOWN, Status.OPPOSITE: OPPOSITE}.get(claim.status, WORDS).get(claim.predicate)
    figures = {"estimate": claim.estimate, "se": claim.se, "reference": claim.reference, **claim.evidence}
    figures["part"] = claim.estimate, claim.se
    if "groups" in figures:  # a headline: its parts make one phrase
        figures["way"] = "an induction circuit" if figures["circuit"] == "induction" else "attention"
        figures["others"] = "" if figures.get("needed", True) else "; other heads do it too"
        figures["groups"] = {name: figures[name] for name in ("circuit", "groups", "suffice", "answers")}
    return _Figures().vformat(text or WORDS[claim.predicate], (), figures)


def sentences(claims: Iterable[Claim]) -> str:
    """Return the sentences about a model as one text."""
    return " ".join(map(words, claims))


class _Figures(Formatter):
    """Formats nats, errors, shares, and evidence that is neither number nor text: a claim, a label, figures by name."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, Claim):
            return words(value)
        if format_spec == "limit":
            return GAP_LIMITS[value]
        if format_spec == "label":
            return target_words(value)
        if format_spec.startswith("pm"):
            return f" +- {_error(value, format_spec == 'pm%')}" if value else ""
        if format_spec == "minus":
            return str(-value)
        if format_spec == "share":
            return _share(*value)
        if format_spec == "groups":
            return _groups(**value)
        if format_spec == "costs":
            return f"{min(value.values()):z.3f} {'or' if len(value) == 2 else 'to'} {max(value.values()):z.3f}"
        if isinstance(value, Mapping):
            return ", ".join(map(_entry, value.items()))
        if isinstance(value, Sequence) and not isinstance(value, str):
            return _and(value) if format_spec == "and" else ", ".join(map(str, value))
        if format_spec.endswith("nats"):  # a diverged model has losses of many digits
            format_spec = format_spec.removesuffix("nats") + (".4g" if abs(value) >= 1e6 else ".4f")
        if isinstance(value, float):
            format_spec = format_spec.replace(".", "z.")  # no minus before zero
        return format(value, format_spec)


def target_words(label_id: str) -> str:
    """Return the name of a label's target."""
    label = Label.from_id(label_id)
    return label_id if label is None else label.pattern


def _groups(
    circuit: str, groups: Mapping[str, Sequence[str]], suffice: Mapping[str, str], answers: Sequence[str]
) -> str:
    """Write which heads attend to what: "L0.H1 attends to the previous token; L1.H0 ..."."""
    parts = []
    for name, heads in groups.items():
        label = Label.from_id(name)
        does = name if label is None else label.attends_to
        if circuit == "induction" and label is not None and label.kind == "induction":
            does = "matches it and copies (induction)"
        elif name in answers and (label is None or label.kind != "induction"):  # which does, by definition
            does += ", to the answer"
        if len(heads) > 1:
            does = _plural(does)
        one = {"any": ": either suffices" if len(heads) == 2 else ": any one suffices"}.get(suffice.get(name, ""), "")
        parts.append(f"{_and(heads)} {does}{one}")
    return "; ".join(parts)


def _plural(does: str) -> str:
    """Turn what one head does into what several do."""
    for one, many in PLURALS.items():
        does = does.replace(one, many)
    return does


def _and(names: Sequence[str]) -> str:
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}" if first else last


def _share(part: float, se: float | None) -> str:
    """Write a part with its error, never above 100%: an ideal head may do better than the head itself."""
    if round(part, 2) > 1:
        return "all"
    return f"{part:.0%} +- {_error(se, True)}" if se and se >= 0.0005 else f"{part:.0%}"


def _error(value: float, percent: bool) -> str:
    """Write a standard error: in percent, or with the digits of nats."""
    if percent:
        return format(value, ".0%" if value >= 0.005 else ".1%")
    return format(value, ".3f" if 0.0005 <= value < 1e6 else ".1g")


def _entry(item: tuple[Any, float]) -> str:
    """Write a lift by distance, "0.91 at 5", or an effect by head, "+0.91 (L0.H1)"."""
    key, value = item
    return f"{value:z.2f} at {key}" if str(key).isdigit() else f"{value:+z.3f} ({key})"
