"""What is said of what was found: the one table of sentences, by id and code. Nothing that decides reads it.

`say` puts facts into a sentence: `{place}` is where two outputs differ first. Those of the faults are in `faults`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class LawWords(NamedTuple):
    """The name of a law, and the sentence of each of its outcomes."""

    name: str
    outcomes: Mapping[str, str]


NOT_SURE = "which numbers are a head's is not sure: "
AFTER_DROPOUT = "the weights returned in training are those after dropout: rows do not sum to one"
SOFTMAX_FIRST = "drop weights, after the softmax, not scores"
ASKED_OF_SHORTER = "asked of what is right on shorter rows"
# Outcomes that several laws have.
SHARED = {
    "raised": "{said}",
    "no_module": "it is no torch module",
    "numpy": "NumPy has no gradient",
    "no_reading": "its weights could not be read",
    "no_weights": "it does not return its weights",
    "scores": "it returns its scores, not its weights",
    "one_head": "it has one head",
    "heads_share": "its heads share weights",
    "left_out": NOT_SURE + "the reading leaves out {names:all}",
    "not_borne_out": NOT_SURE + "its output does not bear the reading out",
}
# What is said of a mask that hides some of the future.
HIDES = {
    "some_later": "hides some later tokens but not all",
    "some_later_and_earlier": "hides some later tokens but not all, and some earlier ones",
}
LAWS: dict[str, LawWords] = {
    "shape": LawWords("shape", {"other_shape": "{wanted} in, {found} out"}),
    "equal_to_reference": LawWords(
        "equal to the reference",
        {
            "no_match": "no reading of its weights gives the reference, nor a known fault of it",
            "differs": "{place}",
        },
    ),
    "causal": LawWords(
        "causal",
        {
            **{code: f"it {hides}" for code, hides in HIDES.items()},
            "no_mask": "it has no causal mask: every token sees all",
            "leaks": "token {later} changes the output of token {first}",
        },
    ),
    "rows_sum_to_one": LawWords(
        "rows of weights sum to one",
        {
            "no_weights_and_more": "it does not return its weights, and it holds more than attention: {names:all}",
            "scores_and_more": "it returns its scores, not its weights, and it holds more than attention: {names:all}",
            "row_differs": "a row of weights does not sum to one: {place}",
            "tokens_differ": "equal tokens come out different: rows of weights have different sums: {place}",
        },
    ),
    "one_token": LawWords("one token attends to itself", {"differs": "T=1: y is not out(v): {place}"}),
    "several_sizes": LawWords(
        "other batch and row sizes",
        {
            "one_length": "it takes rows of exactly {T} tokens, and fails on shorter ones",
            "raised_at": "B={B}, T={T}: {said}",
            "other_shape": "B={B}, T={T}: the output is {found}",
        },
    ),
    "batch_rows_independent": LawWords(
        "batch rows are independent", {"row_moves": "another row of the batch changes row 0"}
    ),
    "heads_separate": LawWords(
        "heads are separate",
        {
            "normalised": "its queries or keys are normalised, maybe over all heads at once",
            "queries_move": "the queries of head 0 move the output although its values are zero: {place}",
        },
    ),
    "order_of_heads": LawWords(
        "order of heads",
        {
            "no_out": "it has no output projection",
            "kept_by_head": "{names:all} belongs to the heads as well, and stays in its order",
            "positions_by_head": "each head sees positions in its own way: another kind of attention",
            "differs": "heads in another order give another output: {place}",
        },
    ),
    "parameters_used": LawWords(
        "every parameter is used",
        {"no_parameters": "it has no parameters", "no_gradient": "no gradient reaches {names}"},
    ),
    "parameters_registered": LawWords("parameters are registered", {"unknown": "parameters() does not know {names}"}),
    "same_answer_twice": LawWords("same answer twice in eval", {"differs": "two calls on one input differ"}),
    "dropout_only_in_training": LawWords(
        "dropout only in training",
        {
            "drops_in_eval": "it drops in eval as well",
            "changes_in_eval": "dropout changes the output in eval: {place}",
            "two_differ": "two of it with the same weights differ without dropout",
            "not_finite": f"in training the output is not finite: {SOFTMAX_FIRST}",
            "never_drops": "dropout never drops, not in training either",
            "no_dropout": "it has no dropout",
            "leaks": f"in training dropout lets a later token through the mask: {SOFTMAX_FIRST}",
        },
    ),
    "no_memory": LawWords(
        "no memory of earlier calls",
        {
            "remembers": "the same input gives another output after other calls",
            "stale": "a second input is answered otherwise than by one that saw no first",
        },
    ),
    "weights_returned": LawWords(
        "weights returned are those used",
        {"differs": "the weights returned are not those that made the output: {place}"},
    ),
    "weights_before_dropout": LawWords(
        "weights returned in training",
        {
            "after_dropout": AFTER_DROPOUT,
            "after_dropout_in_torch": f"torch's own nn.MultiheadAttention: {AFTER_DROPOUT}",
        },
    ),
    "saved_and_loaded": LawWords(
        "saved and loaded", {"differs": "a module with the same state_dict gives another output: {place}"}
    ),
    "mask_moves": LawWords(
        "the mask moves with the module",
        {"stays": "{names} stays on its device when the module moves"},
    ),
    "gradients_finite": LawWords(
        "gradients are finite", {"not_finite": "the gradient of the input is missing or not finite"}
    ),
    "input_left_alone": LawWords("the input is left alone", {"changed": "x is changed in place"}),
    "heads_must_divide": LawWords(
        "heads that do not divide",
        {
            "fixed": "its sizes are fixed",
            "head_width_given": "the width of a head is given, and need not divide",
            "narrower": "d_model={D} with {H} heads is accepted, and {columns} columns come out",
        },
    ),
    "too_long": LawWords(
        "rows that are too long",
        {
            "no_longest": "it has no longest row",
            "not_right": ASKED_OF_SHORTER,
            "positions_given": "its positions are given",
            "differs": "T={T} with a longest row of {longest} is accepted, and answered wrongly",
        },
    ),
    "second_step": LawWords(
        "a second step of training",
        {
            "no_gradient": "asked of what has a gradient",
            "kept_graph": "it keeps tensors with their graph between calls: the second backward fails; keep them with "
            ".detach()",
        },
    ),
    "nan_stays_in_its_row": LawWords(
        "a NaN stays in its row", {"row_moves": "a NaN in another row of the batch changes row 0"}
    ),
    "extreme_scores": LawWords(
        "extreme scores",
        {
            "not_right": "asked of what is right at usual scores",
            "not_finite": "scores of about 10^5 give NaN or infinity: subtract the largest of a row first",
            "leaks": "at scores of about 10^5 the fill no longer hides masked keys: use -inf",
        },
    ),
    "half_precision": LawWords(
        "half precision",
        {
            "raised_in": "{dtype}: {said}",
            "fill_overflows": "{dtype}: the number that fills masked scores does not fit: use -inf, or "
            "torch.finfo(scores.dtype).min",
            "not_finite": "{dtype}: the output is not finite",
            "off": "{dtype}: the output is off by {off:.2g}",
        },
    ),
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
