"""The laws of attention: each asks one thing of a block and says which of a few outcomes it saw.

A law is a function of a `Context`; it gives whether it holds (None: it cannot be asked), the worst figure, a code and
facts. A new law is a function and an entry in `LAWS`, in which its words stand as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from mhsa_cli.check.call.call_plan import raised
from mhsa_cli.check.laws import dropout, gradients, heads, modules, outputs, state
from mhsa_cli.check.laws.seen import Seen, fails, not_asked
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.sentences import HIDES, CallError, say
from mhsa_cli.records.check import REFERENCE

NOT_SURE = "which numbers are a head's is not sure: "
AFTER_DROPOUT = "the weights returned in training are those after dropout: rows do not sum to one"
SOFTMAX_FIRST = "drop weights, after the softmax, not scores"
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


class Entry(NamedTuple):
    """A law: how it is asked, its name, the sentence of each of its outcomes, and the fault that an outcome shows.

    A fault is named where the output named none. The smaller its `rank`, the sooner is a law told of those that fail:
    some say why, others follow from it. An edge does not make a block wrong.
    """

    ask: Callable[[Context], Seen]
    name: str
    says: Mapping[str, str]
    shows: Mapping[str, str] = {}
    rank: int = 8
    edge: bool = False
    of_module: bool = False  # asked of a torch module alone

    def words(self, seen: Seen) -> str:
        """Say what it saw; nothing where it has no code."""
        return say({**SHARED, **self.says}[seen.code], seen.facts) if seen.code else ""


LAWS: dict[str, Entry] = {
    "shape": Entry(outputs.shape, "shape", {"other_shape": "{wanted} in, {found} out"}, rank=0),
    REFERENCE: Entry(outputs.equal_to_reference, "equal to the reference", {  # that it differs does not say in what
        "no_match": "no reading of its weights gives the reference, nor a known fault of it",
        "differs": "{place}",
    }, rank=9),
    "causal": Entry(outputs.causal, "causal", {
        **{code: f"it {hides}" for code, hides in HIDES.items()},
        "no_mask": "it has no causal mask: every token sees all",
        "leaks": "token {later} changes the output of token {first}",
    }, rank=4),
    "rows_sum_to_one": Entry(outputs.rows_sum_to_one, "rows of weights sum to one", {
        "no_weights_and_more": "it does not return its weights, and it holds more than attention: {names:all}",
        "scores_and_more": "it returns its scores, not its weights, and it holds more than attention: {names:all}",
        "row_differs": "a row of weights does not sum to one: {place}",
        "tokens_differ": "equal tokens come out different: rows of weights have different sums: {place}",
    }, rank=7),
    "one_token": Entry(outputs.one_token, "one token attends to itself", {"differs": "T=1: y is not out(v): {place}"}),
    "several_sizes": Entry(outputs.several_sizes, "other batch and row sizes", {
        "one_length": "it takes rows of exactly {T} tokens, and fails on shorter ones",
        "raised_at": "B={B}, T={T}: {said}",
        "other_shape": "B={B}, T={T}: the output is {found}",
    }),
    "batch_rows_independent": Entry(outputs.batch_rows_independent, "batch rows are independent", {
        "row_moves": "another row of the batch changes row 0",
    }, rank=6),
    "heads_separate": Entry(heads.heads_separate, "heads are separate", {
        "normalised": "its queries or keys are normalised, maybe over all heads at once",
        "queries_move": "the queries of head 0 move the output although its values are zero: {place}",
    }),
    "order_of_heads": Entry(heads.order_of_heads, "order of heads", {
        "no_out": "it has no output projection",
        "kept_by_head": "{names:all} belongs to the heads as well, and stays in its order",
        "positions_by_head": "each head sees positions in its own way: another kind of attention",
        "differs": "heads in another order give another output: {place}",
    }),
    "parameters_used": Entry(gradients.parameters_used, "every parameter is used", {
        "no_parameters": "it has no parameters",
        "no_gradient": "no gradient reaches {names}",
    }, rank=5, of_module=True),
    "parameters_registered": Entry(gradients.parameters_registered, "parameters are registered", {
        "unknown": "parameters() does not know {names}",
    }, {"unknown": "parameters_not_registered"}, of_module=True),
    "same_answer_twice": Entry(state.same_answer_twice, "same answer twice in eval", {
        "differs": "two calls on one input differ",
    }, rank=2),
    "dropout_only_in_training": Entry(dropout.dropout_only_in_training, "dropout only in training", {
        "drops_in_eval": "it drops in eval as well",
        "changes_in_eval": "dropout changes the output in eval: {place}",
        "two_differ": "two of it with the same weights differ without dropout",
        "not_finite": f"in training the output is not finite: {SOFTMAX_FIRST}",
        "never_drops": "dropout never drops, not in training either",
        "no_dropout": "it has no dropout",
        "leaks": f"in training dropout lets a later token through the mask: {SOFTMAX_FIRST}",
    }, {
        **dict.fromkeys(("drops_in_eval", "changes_in_eval"), "dropout_in_eval"),
        **dict.fromkeys(("not_finite", "leaks"), "dropout_on_scores"),
    }, of_module=True),
    "no_memory": Entry(state.no_memory, "no memory of earlier calls", {
        "remembers": "the same input gives another output after other calls",
        "stale": "a second input is answered otherwise than by one that saw no first",
    }, dict.fromkeys(("remembers", "stale"), "state_between_calls"), rank=3),
    "weights_returned": Entry(outputs.weights_returned, "weights returned are those used", {
        "differs": "the weights returned are not those that made the output: {place}",
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
    }),
    "input_left_alone": Entry(state.input_left_alone, "the input is left alone", {
        "changed": "x is changed in place",
    }, {"changed": "input_changed_in_place"}, rank=1),
    "heads_must_divide": Entry(modules.heads_must_divide, "heads that do not divide", {
        "fixed": "its sizes are fixed",
        "head_width_given": "the width of a head is given, and need not divide",
        "narrower": "d_model={D} with {H} heads is accepted, and {columns} columns come out",
    }, {"narrower": "heads_not_dividing"}),
    "too_long": Entry(modules.too_long, "rows that are too long", {  # fails for many reasons, and tells none
        "no_longest": "it has no longest row",
        "not_right": "asked of what is right on shorter rows",
        "positions_given": "its positions are given",
        "differs": "T={T} with a longest row of {longest} is accepted, and answered wrongly",
    }, rank=10),
    "second_step": Entry(gradients.second_step, "a second step of training", {
        "no_gradient": "asked of what has a gradient",
        "kept_graph": "it keeps tensors with their graph between calls: the second backward fails; keep them with "
        ".detach()",
    }, edge=True),
    "nan_stays_in_its_row": Entry(outputs.nan_stays_in_its_row, "a NaN stays in its row", {
        "row_moves": "a NaN in another row of the batch changes row 0",
    }, edge=True),
    "extreme_scores": Entry(outputs.extreme_scores, "extreme scores", {
        "not_right": "asked of what is right at usual scores",
        "not_finite": "scores of about 10^5 give NaN or infinity: subtract the largest of a row first",
        "leaks": "at scores of about 10^5 the fill no longer hides masked keys: use -inf",
    }, edge=True),
    "half_precision": Entry(modules.half_precision, "half precision", {
        "raised_in": "{dtype}: {said}",
        "fill_overflows": "{dtype}: the number that fills masked scores does not fit: use -inf, or "
        "torch.finfo(scores.dtype).min",
        "not_finite": "{dtype}: the output is not finite",
        "off": "{dtype}: the output is off by {off:.2g}",
    }, edge=True, of_module=True),
}  # fmt: skip


def ask(c: Context) -> dict[str, Seen]:
    """Ask every law; one that the block answers with an exception fails, and says with which."""
    found = {}
    for name, law in LAWS.items():
        try:
            found[name] = not_asked("no_module") if law.of_module and c.built.module is None else law.ask(c)
        except (Exception, SystemExit) as error:
            found[name] = fails("raised", said=str(error) if isinstance(error, CallError) else raised(error))
    return found
