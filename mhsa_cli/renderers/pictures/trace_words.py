"""Sentences for the checks of a trace."""

from __future__ import annotations

from collections.abc import Sequence

from mhsa_cli.records.trace import TraceCheck

WORDS = {
    "shapes": "{right} of {count} tensors have the expected shape{wrong}",
    "gradients": "{right} of {count} parts have a finite gradient{wrong}",
    "sum to one": "{rows:,} rows of {weights} sum to one, error {off}",
    "future is zero": "largest of the {weights} {where}: {value}",
    "scaling": "scores are divided by {divisor:.4g}{wanted} = sqrt(d_head){instead}:\nstd {std[0]:.3g} -> {std[1]:.3g}",
    "mask first": "the mask is applied before the softmax:\nsoftmax(masked) and the weights differ by {off}",
    "causal": "another last token changes earlier logits by {off}",
    "unmasked": "another last token changes earlier logits, which see it, by {off}",
    "two paths": "{roads} differ by {off}",
    "logits": "traced logits and the logits of the model differ by {off}",
    "parameters": "{counted:,} attention parameters = {product}{which}",
    "cache": "the cache holds {each:,g} numbers per {per} and layer = {sum}{which}",
}


def check_words(check: TraceCheck) -> str:
    """Write what a check found."""
    return " ".join(check_phrases(check))


def check_phrases(check: TraceCheck) -> list[str]:
    """Write what a check found, in two phrases where it is long: the claim and the measurement."""
    facts, value = dict(check.facts), check.figure
    facts["off"] = "exactly 0" if value == 0 else f"at most {value:.1e}"
    facts["value"] = "exactly 0" if value == 0 else f"{value:.1e}"
    if "count" in facts:
        facts |= {"right": facts["count"] - len(facts["wrong"]), "wrong": _not(facts["wrong"])}
    if "attention" in facts:
        kind = facts["attention"]
        facts["weights"] = "implied weights" if kind == "linear" else "weights"
        facts["where"] = "outside the window" if facts.get("window") else "on the future"
        linear, softmax = "implied weights and running sums", "materialised and fused attention"
        facts["roads"] = softmax if kind == "softmax" else linear
    if "divisor" in facts:
        right, other = facts["sqrt(d_head)"], facts["sqrt(D)"]
        facts["wanted"] = "" if check.passed else f", wanted {right:.4g}"
        facts["instead"] = f", not by {other:.4g} = sqrt(D)" if other != right else ""
    if "formula" in facts:
        facts["sum"] = spaced = facts["formula"].replace("+", " + ")
        layers = facts.get("layers", 1)
        facts["product"] = f"{layers} x ({spaced})" if layers > 1 else spaced
        facts["which"] = "" if check.passed else f", which is {facts['wanted']:,}"
    return WORDS[check.name].format(**facts).splitlines()


def _not(names: Sequence[str]) -> str:
    return f", not {', '.join(dict.fromkeys(names))}" if names else ""
