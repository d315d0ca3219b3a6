"""The laws of attention: each tests one property of a block and returns one of a few outcomes.

A law is a function of a `Context` that returns an `Outcome`. A new law is a function and an entry in `LAWS`, which also
holds its sentences.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mhsa_cli.check.laws import cache, dropout, gradients, heads, masks, modules, outputs
from mhsa_cli.check.laws.outcome import Outcome, fails, not_tested
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.sentences import PARTIAL_MASKS, CallError, render
from mhsa_cli.check.source.packages import error_line
from mhsa_cli.records.check import REFERENCE

AFTER_DROPOUT = "the weights returned in training are those after dropout: rows do not sum to one"
SOFTMAX_FIRST = "drop weights, after the softmax, not scores"
# Outcomes of several laws.
SHARED = {
    "raised": "{message}",
    "no_module": "the block is no torch module",
    "numpy": "NumPy has no gradient",
    "no_layout": "the layout of the weights is not known",
    "no_weights": "no weights are returned",
    "scores": "scores are returned, not weights",
    "one_head": "there is one head",
    "heads_share": "heads share weights",
}


class Entry(NamedTuple):
    """A law: its function, its title, the sentence of each outcome, and the fault that an outcome shows.

    Such a fault is named if the output named none. Of several failed laws, that of the smallest `rank` is reported
    first: some are the cause of others. A failed `edge` law does not make a block wrong.
    """

    check: Callable[[Context], Outcome]
    title: str
    says: Mapping[str, str]
    shows: Mapping[str, str] = {}
    rank: int = 8
    edge: bool = False
    of_module: bool = False  # only for torch modules

    def finding(self, outcome: Outcome) -> str:
        """Write an outcome in words; "" for one without a code."""
        return render({**SHARED, **self.says}[outcome.code], outcome.facts) if outcome.code else ""


LAWS: dict[str, Entry] = {
    "shape": Entry(outputs.shape, "shape", {"other_shape": "{expected} in, {found} out"}, rank=0),
    REFERENCE: Entry(outputs.equal_to_reference, "equal to the reference", {  # does not say what differs
        "no_match": "no layout of the weights gives the reference, nor a known fault of it",
        "differs": "{place}",
    }, rank=9),
    "causal": Entry(outputs.causal, "causal", {
        **{code: f"the mask {hides}" for code, hides in PARTIAL_MASKS.items()},
        "no_mask": "no causal mask: every token sees all others",
        "leaks": "token {later} changes the output of token {first}",
    }, rank=4),
    "rows_sum_to_one": Entry(outputs.rows_sum_to_one, "rows of weights sum to one", {
        "row_differs": "a row of weights does not sum to one: {place}",
        "tokens_differ": "equal tokens give different outputs: rows of weights have different sums: {place}",
    }, rank=7),
    "one_token": Entry(outputs.one_token, "one token attends to itself", {"differs": "T=1: y is not out(v): {place}"}),
    "several_sizes": Entry(outputs.several_sizes, "other batch sizes and lengths", {
        "raised_at": "B={B}, T={T}: {message}",
        "other_shape": "B={B}, T={T}: the output is {found}",
    }),
    "batch_rows_independent": Entry(outputs.batch_rows_independent, "batch rows are independent", {
        "row_moves": "another row of the batch changes row 0",
    }, rank=6),
    "heads_separate": Entry(heads.heads_separate, "heads are separate", {
        "normed_together": "the queries or keys of all heads are normalised together",
        "queries_move": "the queries of head 0 change the output although its values are zero: {place}",
    }),
    "order_of_heads": Entry(heads.order_of_heads, "order of heads", {
        "no_out": "there is no output projection",
        "by_head": "each head has positions, a gate or a norm of its own",
        "differs": "heads in another order give another output: {place}",
    }),
    "parameters_used": Entry(gradients.parameters_used, "every parameter is used", {
        "no_parameters": "there are no parameters",
        "no_gradient": "no gradient reaches {names}",
    }, rank=5, of_module=True),
    "parameters_registered": Entry(gradients.parameters_registered, "parameters are registered", {
        "unknown": "parameters() does not list {names}",
    }, {"unknown": "parameters_not_registered"}, of_module=True),
    "same_answer_twice": Entry(outputs.same_answer_twice, "same output twice in eval", {
        "differs": "two calls on one input differ",
    }, rank=2),
    "dropout_only_in_training": Entry(dropout.dropout_only_in_training, "dropout only in training", {
        "drops_in_eval": "dropout is active in eval as well",
        "changes_in_eval": "dropout changes the output in eval: {place}",
        "two_differ": "two instances with the same weights differ without dropout",
        "not_finite": f"in training the output is not finite: {SOFTMAX_FIRST}",
        "never_drops": "dropout never drops, not even in training",
        "no_dropout": "there is no dropout",
        "leaks": f"in training dropout lets a later token through the mask: {SOFTMAX_FIRST}",
    }, {
        **dict.fromkeys(("drops_in_eval", "changes_in_eval"), "dropout_in_eval"),
        **dict.fromkeys(("not_finite", "leaks"), "dropout_on_scores"),
    }, of_module=True),
    "no_memory": Entry(outputs.no_memory, "no memory of earlier calls", {
        "remembers": "the same input gives another output after other calls",
        "stale": "the output for a second input depends on the first one",
    }, dict.fromkeys(("remembers", "stale"), "state_between_calls"), rank=3),
    "weights_returned": Entry(outputs.weights_returned, "returned weights are those used", {
        "differs": "the returned weights are not those that produced the output: {place}",
    }, {"differs": "weights_not_used"}),
    "weights_before_dropout": Entry(dropout.weights_before_dropout, "weights returned in training", {
        "after_dropout": AFTER_DROPOUT,
        "after_dropout_in_torch": f"torch's own nn.MultiheadAttention: {AFTER_DROPOUT}",
    }, {"after_dropout": "weights_after_dropout"}, edge=True),
    "saved_and_loaded": Entry(modules.saved_and_loaded, "saved and loaded", {
        "differs": "a module with the same state_dict gives another output: {place}",
    }, of_module=True),
    "mask_moves": Entry(modules.mask_moves, "the mask moves with the module", {
        "stays": "{names} stays on its device when the module moves",
    }, {"stays": "mask_not_a_buffer"}, of_module=True),
    "gradients_finite": Entry(gradients.gradients_finite, "gradients are finite", {
        "not_finite": "the gradient of the input is missing or not finite",
        "overwritten": "the backward pass needs a tensor that the call has changed in place",
    }, {"overwritten": "inplace_breaks_backward"}, rank=4),
    "input_left_alone": Entry(outputs.input_left_alone, "the input is not changed", {
        "changed": "x is changed in place",
    }, {"changed": "input_changed_in_place"}, rank=1),
    "heads_must_divide": Entry(modules.heads_must_divide, "heads that do not divide", {
        "fixed": "the sizes are fixed",
        "head_width_given": "the width of a head is an argument, so n_heads need not divide d_model",
        "narrower": "d_model={D} with {H} heads is accepted, and {columns} columns are returned",
    }, {"narrower": "heads_not_dividing"}),
    "shorter_sequences": Entry(outputs.shorter_sequences, "shorter sequences", {
        "one_length": "only sequences of exactly {T} tokens are accepted, not shorter ones",
    }, edge=True),
    "given_masks": Entry(masks.given_masks, "other masks", {
        "no_masks": "no other mask is taken",
        "no_effect": "{name} is applied, and has no effect",
    }, {"no_effect": "mask_no_effect"}),
    "cached_steps": Entry(cache.cached_steps, "steps with a cache", {
        "no_cache": "no cache is returned and taken",
        "differs": "two steps with the cache differ from one call",
        "hides": "a step with the cache does not see token {token} of the cache",
    }, {"hides": "cache_hides_wrong_keys"}),
    "inputs_used": Entry(outputs.inputs_used, "queries, keys and values given apart", {
        "one_input": "keys and values are those of the queries",
        "no_effect": "a change of {name} changes nothing",
    }),
    "too_long": Entry(modules.too_long, "sequences that are too long", {  # fails for many reasons, and explains none
        "no_longest": "there is no longest sequence",
        "not_right": "tested only if shorter sequences are right",
        "positions_given": "positions are passed",
        "differs": "T={T} is accepted although the longest sequence is {longest}, and the output is wrong",
    }, rank=10),
    "second_step": Entry(gradients.second_step, "a second training step", {
        "no_gradient": "tested only if there is a gradient",
        "kept_graph": "tensors are kept with their graph between calls, so the second backward fails; keep them with "
        ".detach()",
    }, edge=True),
    "nan_stays_in_its_row": Entry(outputs.nan_stays_in_its_row, "a NaN stays in its row", {
        "row_moves": "a NaN in another row of the batch changes row 0",
    }, edge=True),
    "extreme_scores": Entry(outputs.extreme_scores, "extreme scores", {
        "not_right": "tested only if usual scores are right",
        "not_finite": "scores of about 10^5 give NaN or infinity: subtract the largest of a row first",
        "leaks": "at scores of about 10^5 the fill no longer hides masked keys: use -inf",
    }, edge=True),
    "half_precision": Entry(modules.half_precision, "half precision", {
        "raised_in": "{dtype}: {message}",
        "fill_overflows": "{dtype}: the fill of masked scores overflows: use -inf, or "
        "torch.finfo(scores.dtype).min",
        "not_finite": "{dtype}: the output is not finite",
        "off": "{dtype}: the output is off by {off:.2g}",
    }, edge=True, of_module=True),
}  # fmt: skip


def check_laws(c: Context, *, edges: bool = True) -> dict[str, Outcome]:
    """Check every law, or all but those at the edge; one on which the block raises fails, with the error."""
    found = {}
    for name, law in LAWS.items():
        if law.edge and not edges:
            continue
        try:
            found[name] = not_tested("no_module") if law.of_module and c.instance.module is None else law.check(c)
        except (Exception, SystemExit) as error:
            message = str(error) if isinstance(error, CallError) else error_line(error)
            found[name] = fails("raised", message=message)
    return found
