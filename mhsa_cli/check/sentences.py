"""Tables of sentences by code, and the functions that fill facts into them.

No decision reads a sentence. `{place}` is the first place at which two outputs differ. The sentences of laws stand in
`laws`, those of faults in `faults`.
"""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from typing import Any

from mhsa_cli.records.check import Note

# Masks that hide some later tokens, but not all.
PARTIAL_MASKS = {
    "some_later": "hides some later tokens but not all",
    "some_later_and_earlier": "hides some later tokens but not all, and some earlier ones",
}
# Masks of other kinds of attention; {seen} are the numbers in their names.
MASK_KINDS = {
    "sliding_window": "a sliding window of {seen} tokens",
    "prefix": "causal after a prefix of {seen} tokens, which all see",
    "blocks": "by blocks of {seen} tokens",
    "dilated": "dilated: keys at certain distances only ({seen})",
    "others": "every token sees all others, not itself",
    "mask_by_head": "another one for each head ({seen})",
}
# Kinds of attention beside the plain one.
KINDS = {
    **MASK_KINDS,
    "qk_norm": "queries and keys are normalised (QK-norm)",
    "partial_rope": "RoPE on {features} features of a head, base {base}",
    "alibi": "a bias that grows with the distance (ALiBi)",
    "relative_bias": "a bias by distance (relative positions)",
    "gate": "the output is gated",
    "mlp": "a whole block: attention and an MLP",
}
# Notes, by kind.
NOTES = {
    "frame": "the block holds more than attention ({frame}), which is taken off before comparing",
    "more_than_attention": "the block holds more than attention: {names:all}; check the attention inside it by itself",
    "time_first": "time comes first: x is (T, B, D); with (B, T, D) the block would attend over the rows of the batch",
    "padding": "{name} is a padding mask: none that hides a token is passed, so it is not tested",
    "untested": "argument {name} is not passed, so its effect is not tested",
    "bare_head": "one head without an output projection",
    "other_sizes": "graded with d_model {d_model} and d_head {d_head}: it cannot be called with the usual sizes",
    "unused_argument": "no parameter is called {name!r} (--with); there are {names:all}",
    "in_process": "graded in the process that defined it: without limits of time and memory, and no other process "
    "confirms that it is right; for both, save the code and grade FILE.py:{name}",
    "no_source": "its source is not found: no fault is located, and what is read from code is not known",
    "only_attention": "{name} is graded: nothing else in the file looks like attention",
    "failed": "{failure}; {name} is tried all the same",
    "more_failed": "{count} more statements failed",
    "skipped": "{where} at import, not needed by {name}: skipped",
    "more_skipped": "{count} more ranges of lines were skipped",
    "cell_skipped": "{where}: {message}: cell skipped",
    "code_block_skipped": "{where}: {message}: code block skipped",
}
# Failed attempts to build or call a block, by kind; `more` counts other attempts with the same error.
ATTEMPTS = {
    "other_library": "{name} is not torch or NumPy: it is written in {library}, which cannot be graded",
    "unknown_setting": "cannot infer config setting {name!r}; pass --with {name}=VALUE",
    "unknown_argument": "cannot infer constructor argument {name!r}; pass --with {name}=VALUE",
    "build": "building {how}{more}: {message}",
    "call": "calling {how}{more}: {message}",
    "no_call_form": "calling{more}: {message}",
}
MORE_ATTEMPTS = " (and {count} more)"
# Meaning of the values of a mask that is passed.
MASKS = {
    "true_attends": "True = may attend",
    "true_blocks": "True = blocked",
    "added": "added to the scores",
    "one_attends": "1 = may attend",
    "one_blocks": "1 = blocked",
    "counts": "the number of visible keys of each query",
}
# How the weights are read, by the kind of a `LayoutName`, and what may follow.
WEIGHTS = {
    "fused": "one fused matrix, {paths:all}",
    "fused_by_head": "one fused matrix for each head, {paths:all}",
    "fused_for_all": "one fused matrix for all heads, {paths:all}",
    "three": "q, k, v from {paths:all}",
    "query_and_kv": "q from {query}, k and v from {other}",
    "measured": "q, k, v from {paths:all} (by what each number moves)",
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
OUT_PROJECTIONS = {
    "by_head": "out {path} by head",
    "linear": "out {path}",
    "x_w": "out {path} as x @ W",
    "x_wt": "out {path} as x @ W.T",
    "none": "no output projection",
}
# Why a block cannot be called, by kind.
CALL_ERRORS = {
    "no_input": "the call takes no input",
    "no_entry_point": "{name} has no forward and no __call__",
    "not_callable": "{how} gave {name}, which is not callable",
    "returned_nothing": "the call returned nothing, wanted a tensor",
    "no_tensor": "the call returned {name}, wanted a tensor",
    "unknown_key": "the meaning of {path}[{key!r}] is not known: pass the weights one by one, as "
    "f(x, W_q, W_k, W_v, W_o, n_heads), or in a dict under these names",
}
# What to write instead, by the kind of an error.
WAYS_OUT = {"view": "use .reshape(...); .view needs the order in memory that .transpose and .chunk change"}
# How a block is built and called, by key and code.
DETECTED = {
    "kind": {
        "module": "torch module",
        "torch_function": "torch function",
        "numpy_function": "NumPy function",
        "numpy_class": "NumPy class",
        "plain_class": "plain class",
    },
    "weights": {
        "read": "{weights}",
        "likely": "{weights} (likely)",
        "not_understood": "not understood: {names:all}",
        "not_found": "none found",
    },
    "bias": {"none": "none", "all": "yes", "qkv": "of q, k, v only", "out": "of the output only"},
    "positions": {
        "none": "none inside",
        "rope": "rope, {pairs} pairs",
        "rope_base": "rope, {pairs} pairs, base {base}",
    },
    "mask": {
        **PARTIAL_MASKS,
        **MASK_KINDS,
        "argument": "argument {name}, {meaning}",
        "none": "none",
        "hides_nothing": "none that hides later tokens",
        "causal": "causal inside",
    },
    "returns": {"y": "y", "y_and_weights": "y and weights"},
    "right only if": {"time_first": "x is (T, B, D): your code calls its first axis {name}"},
    "precision": {"float32": "float32: float64 is not accepted"},
}


def make_note(kind: str, **facts: Any) -> Note:
    """Make a note."""
    return Note(kind, render(NOTES[kind], facts), facts)


def make_attempt(kind: str, others: int = 0, **facts: Any) -> Note:
    """Describe a failed attempt; `others` counts further attempts with the same error."""
    more = render(MORE_ATTEMPTS, {"count": others}) if others else ""
    return Note(kind, render(ATTEMPTS[kind], {**facts, "more": more}), facts)


class CallError(Exception):
    """A block cannot be built or called; `kind` is the reason, the message its sentence."""

    def __init__(self, kind: str, **facts: Any) -> None:
        super().__init__(render(CALL_ERRORS[kind], facts))
        self.kind, self.facts = kind, facts


class _Formatter(string.Formatter):
    """Writes shapes in brackets, names as a list (the first ones; all with `:all`), and where two outputs differ."""

    def get_value(self, key: int | str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        return difference_text(kwargs) if key == "place" else kwargs[str(key)]

    def format_field(self, value: Any, format_spec: str) -> str:
        if isinstance(value, str) or not isinstance(value, Sequence):
            return format(value, format_spec)
        if all(isinstance(one, int) for one in value):
            return str(tuple(value))
        return ", ".join(value) if format_spec == "all" else list_names(value)


def render(sentence: str, facts: Mapping[str, Any]) -> str:
    """Fill facts into a sentence."""
    return _Formatter().vformat(sentence, (), facts)


def difference_text(facts: Mapping[str, Any]) -> str:
    """Write where two outputs differ first, with both numbers, or both shapes."""
    if "at" not in facts:
        return render("found {found}, wanted {expected}", facts)
    return f"at [{', '.join(map(str, facts['at']))}] found {differing_figures(facts['found'], facts['expected'])}"


def differing_figures(found: float, expected: float) -> str:
    """Write two figures with as many digits as tell them apart; for close ones, their distance."""
    for digits in range(4, 9):
        one, other = f"{found:.{digits}g}", f"{expected:.{digits}g}"
        if one != other:
            return f"{one}, wanted {other}"
    return f"{found:.4g}, {abs(found - expected):.1g} off"


def list_names(names: Sequence[str], most: int = 2) -> str:
    """List names; of many, the first ones and the number of the others."""
    if len(names) <= most + 1:
        return ", ".join(names)
    return f"{', '.join(names[:most])} and {len(names) - most} more"
