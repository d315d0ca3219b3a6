"""What is said of what was found: tables of sentences by code, and the one road from codes and facts to words.

Nothing that decides reads a sentence. `{place}` is where two outputs differ first. The words of a law stand with it in
`laws`, those of a fault in `faults`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from mhsa_cli.records.check import Note

# What is said of a mask that hides some of the future.
HIDES = {
    "some_later": "hides some later tokens but not all",
    "some_later_and_earlier": "hides some later tokens but not all, and some earlier ones",
}
# Notes, by kind.
NOTES = {
    "frame": "inside it there is more than attention ({frame}): this was taken off before comparing",
    "more_than_attention": "it holds more than attention: {names:all}; check the attention inside it by itself",
    "time_first": "time comes first: its x is (T, B, D); given (B, T, D) it would attend over the rows of the batch",
    "padding": "{name} says which tokens are there (B, T): it was not given, so it is not tested",
    "untested": "argument {name} was not given, so what it does is not tested",
    "no_mask": "it has no causal mask: every token sees all; as a decoder's attention it would need one",
    "bare_head": "it is one head without an output projection",
    "not_taken": "nothing takes {name!r} (--with): it was left out; there are {names:all}",
    "taken": "{name} was taken: the one thing in the file that looks like attention",
    "failed": "{failure}: {name} is tried all the same",
    "more_failed": "{count} more statements failed",
    "at_import": "{where} at import, not needed by {name}: left out",
    "more_at_import": "{count} more ranges of lines were left out",
    "cell_left_out": "{where}: {said}: this cell is left out",
    "block_left_out": "{where}: {said}: this code block is left out",
}
# What was tried and failed, by kind; `more` says how many other ways came to the same.
TRIED = {
    "guess_setting": "nobody can guess {name!r} of its config: --with {name}=VALUE",
    "guess_parameter": "nobody can guess its parameter {name!r}: --with {name}=VALUE",
    "build": "building it ({how}){more}: {said}",
    "call": "calling it {how}{more}: {said}",
    "no_way_to_call": "calling it{more}: {said}",
}
OTHER_WAYS = " (and {count} other ways)"
# What the numbers of a mask that is given mean.
MASKS = {
    "true_attends": "True = may attend",
    "true_blocks": "True = blocked",
    "added": "added to the scores",
    "one_attends": "1 = may attend",
    "one_blocks": "1 = blocked",
    "counts": "the number of keys that each query sees",
}
# How the weights are read, by the kind of a `layouts.Name`, and what may follow.
WEIGHTS = {
    "fused": "one fused matrix, {paths:all}",
    "fused_for_all": "one fused matrix for all heads, {paths:all}",
    "three": "q, k, v from {paths:all}",
    "query_and_kv": "q from {query}, k and v from {other}",
}
ORDER, KEY_HEADS = "order {order}", "{count} key/value heads"
ARRANGEMENTS = {
    "nhd": "in blocks",
    "hnd": "head by head",
    "hdn": "innermost",
    "ndh": "blocks, features first",
    "dnh": "features first",
}
MATRICES = {"x_w": "x @ W", "x_wt": "x @ W.T"}
HEADS = {
    "by_head": "by head",
    "between": "features, heads",
    "shared": "shared",
    "features_first": "features first",
    "on_slices": "on slices",
}
OUTS = {
    "by_head": "out {path} by head",
    "linear": "out {path}",
    "x_w": "out {path} as x @ W",
    "x_wt": "out {path} as x @ W.T",
    "none": "no output projection",
}
# Why it cannot be called, by kind.
CALLS = {
    "no_input": "its call takes no input",
    "no_entry": "{name} has no forward and no __call__",
    "not_callable": "{how} gave {name}, which cannot be called",
    "no_tensor": "it returned {name}, where a tensor is wanted",
    "key_says_nothing": "{path} is a dict, and what its {key!r} holds is not understood: hand the weights over one by "
    "one, as f(x, W_q, W_k, W_v, W_o, n_heads), or in a dict by these names",
}
# How it is built and called, by what is found and its code.
FOUND = {
    "kind": {
        "module": "torch module",
        "torch_function": "torch function",
        "numpy_function": "NumPy function",
        "numpy_class": "NumPy class",
        "plain_class": "plain class",
    },
    "weights": {
        "read": "{weights}",
        "guessed": "{weights}, as far as can be told",
        "not_understood": "not understood: {names:all}",
        "not_found": "not understood: none found",
    },
    "bias": {"none": "none", "all": "yes", "qkv": "of q, k, v only", "out": "of the output only"},
    "positions": {"none": "none inside", "rope": "rope, {pairs} pairs"},
    "mask": {
        **HIDES,
        "argument": "argument {name}, {meaning}",
        "none": "none",
        "hides_nothing": "none that hides the future",
        "causal": "causal inside",
    },
    "returns": {"y": "y", "y_and_weights": "y and weights"},
    "right only if": {"time_first": "x is (T, B, D): your code calls its first axis {name}"},
    "precision": {"float32": "float32: it does not take float64"},
}


def noted(kind: str, **facts: Any) -> Note:
    """Make a note."""
    return Note(kind, say(NOTES[kind], facts), facts)


def attempted(kind: str, others: int = 0, **facts: Any) -> Note:
    """Say what was tried and what came of it; `others` counts the ways that came to the same."""
    more = say(OTHER_WAYS, {"count": others}) if others else ""
    return Note(kind, say(TRIED[kind], {**facts, "more": more}), facts)


class CallError(Exception):
    """A block could not be built or called; `kind` is the reason, the message says it."""

    def __init__(self, kind: str, **facts: Any) -> None:
        super().__init__(say(CALLS[kind], facts))
        self.kind, self.facts = kind, facts


class _Words(string.Formatter):
    """Writes shapes in brackets, names in a row (of many the first ones, all with `:all`), and where outputs differ."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return difference(kwargs) if key == "place" else kwargs[str(key)]

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return format(value, format_spec)
        if all(isinstance(one, int) for one in value):
            return str(tuple(value))
        return ", ".join(value) if format_spec == "all" else listed(value)


def say(sentence: str, facts: Mapping[str, Any]) -> str:
    """Put facts into a sentence."""
    return _Words().vformat(sentence, (), facts)


def difference(facts: Mapping[str, Any]) -> str:
    """Say where two outputs differ first, with both numbers, or that their shapes do."""
    if "at" not in facts:
        return say("{found} where {wanted} is wanted", facts)
    return f"at [{', '.join(map(str, facts['at']))}] it is {both(facts['found'], facts['wanted'])}"


def both(found: float, wanted: float) -> str:
    """Write two different figures with as many digits as tell them apart; of close ones, how far they are apart."""
    for digits in range(4, 9):
        one, other = f"{found:.{digits}g}", f"{wanted:.{digits}g}"
        if one != other:
            return f"{one}, wanted {other}"
    return f"{found:.4g}, {abs(found - wanted):.1g} off"


def listed(names: Sequence[str], most: int = 2) -> str:
    """List names, of many the first ones and how many more there are."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
