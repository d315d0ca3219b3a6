"""The table of faults: each wrong variant of the reference by name, why it is wrong, and what to write instead.

Source of which are common: a survey of 89 public implementations; the explanations follow Vaswani et al. 2017 and
Su et al. 2021.
"""

from __future__ import annotations

from dataclasses import dataclass

Form = dict[str, str]  # stage of a `Spec` -> its wrong form


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong variant: the forms of the reference that compute it (none: only a law shows it), in plain words.

    `says` and `instead` may use {D}, {H}, {d}, {T} and their roots {root_D} and {root_d}. `where` is the part of the
    code in which it most likely sits, a key of `lines.PLACES`.
    """

    says: str
    instead: str
    where: str
    forms: tuple[Form, ...] = ()


def _fills(**form: str) -> tuple[Form, ...]:
    """Give a form with every way of filling masked scores: they differ where a softmax has nothing else to see."""
    return tuple({**form, "fill": fill} for fill in ("inf", "finite", "added"))


_ROPE = ("interleaved", "half")

FAULTS: dict[str, Fault] = {
    # --- scale
    "scale_d_model": Fault(
        "scores are divided by sqrt(d_model) = {root_D}, not sqrt(d_head) = {root_d}: each head's dot product has d_head "
        "terms, so the softmax comes out too flat",
        "divide by the square root of the width of one head: math.sqrt(d_head), or q.size(-1) ** 0.5 after the split",
        "scale",
        ({"scale": "d_model"},),
    ),
    "scale_none": Fault(
        "scores are not divided by sqrt(d_head) = {root_d}: dot products grow with the width, the softmax saturates and "
        "gradients vanish",
        "divide the scores by math.sqrt(d_head) before the softmax",
        "scale",
        ({"scale": "none"},),
    ),
    "scale_d_head_unrooted": Fault(
        "scores are divided by d_head = {d} (or twice by its root), not once by sqrt(d_head) = {root_d}",
        "divide once, by the square root: math.sqrt(d_head)",
        "scale",
        ({"scale": "unrooted"},),
    ),
    "scale_multiplied": Fault(
        "scores are multiplied by sqrt(d_head) = {root_d} instead of divided by it",
        "divide the scores by math.sqrt(d_head), or multiply by d_head ** -0.5",
        "scale",
        ({"scale": "multiplied"},),
    ),
    "scale_root_2": Fault(
        "scores are sqrt(2) too large: they are divided by sqrt(d_head / 2), not sqrt(d_head) = {root_d}",
        "divide by math.sqrt(d_head) with d_head = d_model // n_heads",
        "scale",
        ({"scale": "root_2"},),
    ),
    "scale_seq_len": Fault(
        "scores are divided by the square root of the number of tokens, not of d_head = {d}: the wrong axis was read",
        "divide by q.size(-1) ** 0.5: the last axis of q is d_head",
        "scale",
        ({"scale": "seq_len"},),
    ),
    "scale_n_heads": Fault(
        "scores are divided by the square root of the number of heads, {H}, not of d_head = {d}",
        "divide by math.sqrt(d_head)",
        "scale",
        ({"scale": "n_heads"},),
    ),
    "scale_d_model_unrooted": Fault(
        "scores are divided by d_model = {D}, not sqrt(d_head) = {root_d}",
        "divide by math.sqrt(d_head)",
        "scale",
        ({"scale": "model_unrooted"},),
    ),
    "scale_d_model_multiplied": Fault(
        "scores are multiplied by sqrt(d_model) = {root_D} instead of divided by sqrt(d_head) = {root_d}",
        "divide the scores by math.sqrt(d_head)",
        "scale",
        ({"scale": "model_multiplied"},),
    ),
    "scale_constant": Fault(
        "scores are multiplied by {factor}, a constant, where 1 / sqrt(d_head) = {factor_right} is wanted",
        "compute the scale from the width of one head: 1 / math.sqrt(d_head)",
        "scale",
    ),
    "scale_after_softmax": Fault(
        "the division by sqrt(d_head) = {root_d} comes after the softmax: it shrinks the output and leaves the scores "
        "too large",
        "divide the scores first, then take the softmax",
        "scale",
        ({"scale": "after"},),
    ),
    # --- softmax
    "softmax_over_queries": Fault(
        "the softmax runs over the queries, not the keys: columns sum to one where rows should",
        "take the softmax over the last axis of the scores (dim=-1): the keys",
        "softmax",
        _fills(softmax="queries"),
    ),
    "softmax_over_heads": Fault(
        "the softmax runs over the heads: heads compete for a key where each should spread its own attention over keys",
        "take the softmax over the last axis of the scores (dim=-1); an implicit axis picks another one",
        "softmax",
        _fills(softmax="heads"),
    ),
    "softmax_over_batch": Fault(
        "the softmax runs over the rows of the batch: what one sequence gets depends on the others",
        "take the softmax over the last axis of the scores (dim=-1)",
        "softmax",
        _fills(softmax="batch"),
    ),
    "softmax_missing": Fault(
        "the scores are used as weights: there is no softmax over the keys, rows do not sum to one",
        "take the softmax over the last axis of the masked scores",
        "softmax",
        (*_fills(softmax="missing"), {"softmax": "missing", "fill": "zero"}, {"softmax": "missing", "mask": "after"}),
    ),
    "softmax_twice": Fault(
        "the softmax is taken twice: the weights come out nearly even, and the second one sees masked keys again",
        "take the softmax once; F.cross_entropy and scaled_dot_product_attention hold theirs already",
        "softmax",
        ({"softmax": "twice"},),
    ),
    # --- mask
    "mask_no_effect": Fault(
        "the causal mask has no effect: every token sees the future",
        "keep the result of the masking (scores = scores.masked_fill(...): without the underscore it returns a new "
        "tensor) and fill with -inf before the softmax",
        "mask",
        ({"mask": "none"},),
    ),
    "mask_inverted": Fault(
        "the mask is inverted: each token sees only what comes after it, and neither itself nor its past",
        "block the future: True above the diagonal for masked_fill, True on and below it for torch.where(mask, scores, "
        "-inf) and for scaled_dot_product_attention",
        "mask",
        _fills(mask="inverted"),
    ),
    "mask_transposed": Fault(
        "the mask is transposed: each token sees itself and the future, not the past",
        "keep the lower triangle (tril): rows are queries, columns are keys",
        "mask",
        ({"mask": "transposed"},),
    ),
    "mask_sees_next": Fault(
        "the mask is off by one: each token sees the one after it, which is the answer it should predict",
        "keep tril(diagonal=0), or block triu(diagonal=1)",
        "mask",
        ({"mask": "sees_next"},),
    ),
    "mask_hides_self": Fault(
        "the mask is off by one: no token sees itself, and the first sees nothing",
        "block triu(diagonal=1): the diagonal stays visible",
        "mask",
        _fills(mask="hides_self"),
    ),
    "mask_after_softmax": Fault(
        "the mask is applied after the softmax: weights of the past no longer sum to one, and depend on the future",
        "fill the scores with -inf before the softmax",
        "mask",
        ({"mask": "after"},),
    ),
    "mask_fill_zero": Fault(
        "masked scores become 0 (or a tiny number such as -1e-9), not -inf: a score of 0 still gets weight",
        "fill with float('-inf'), or a large negative number such as -1e9",
        "mask",
        ({"fill": "zero"},),
    ),
    # --- heads
    "split_by_view": Fault(
        "q, k and v are viewed as (B, H, T, d_head) without a transpose: a head gets pieces of different tokens",
        "view as (B, T, H, d_head), then transpose axes 1 and 2",
        "split",
        ({"split": "by_view"},),
    ),
    "merge_by_view": Fault(
        "the heads are merged without a transpose: (B, H, T, d_head) is reshaped to (B, T, D) as it lies, so tokens mix",
        "transpose axes 1 and 2 back to (B, T, H, d_head) before reshaping to (B, T, D)",
        "merge",
        ({"merge": "by_view"},),
    ),
    "split_and_merge_by_view": Fault(
        "heads are split and merged by view alone, without transposes: a head's 'tokens' are pieces of several tokens",
        "view as (B, T, H, d_head) and transpose to (B, H, T, d_head); undo both before the output projection",
        "split",
        ({"split": "by_view", "merge": "by_view"},),
    ),
    "key_reshaped": Fault(
        "K is reshaped to (B, H, d_head, T) where it should be transposed: its numbers land in other places",
        "use k.transpose(-2, -1); a reshape never swaps axes",
        "key",
        ({"split": "key_reshaped"},),
    ),
    "merge_interleaved": Fault(
        "the heads are merged feature by feature, (B, T, d_head, H), while they were split head by head",
        "permute the context to (B, T, H, d_head) before reshaping to (B, T, D)",
        "merge",
        ({"merge": "features_first"},),
    ),
    "split_interleaved_k": Fault(
        "keys are split with the features outermost, (d_head, H), queries and values with the heads outermost",
        "split q, k and v alike: view as (B, T, H, d_head), then transpose axes 1 and 2",
        "key",
        ({"split": "features_first_k"},),
    ),
    "batch_folded_wrong": Fault(
        "heads are folded into the batch in one order and unfolded in the other: rows of the batch mix",
        "unfold as you folded: (B, H, ...) to (B * H, ...) and back to (B, H, ...)",
        "merge",
        ({"merge": "folded_as_heads_first"}, {"merge": "folded_as_batch_first"}),
    ),
    "output_transposed": Fault(
        "the output is (B, D, T), not (B, T, D)",
        "return (B, T, D): the same shape as the input",
        "out",
        ({"out": "transposed"},),
    ),
    # --- projections
    "query_from_key": Fault(
        "queries come from the key projection: q and k are the same, so the scores are symmetric",
        "project the queries with their own matrix",
        "query",
        ({"project": "query_from_key"},),
    ),
    "key_from_query": Fault(
        "keys come from the query projection: q and k are the same, so the scores are symmetric",
        "project the keys with their own matrix",
        "key",
        ({"project": "key_from_query"},),
    ),
    "value_from_key": Fault(
        "values come from the key projection: what a token offers is what it is found by",
        "project the values with their own matrix",
        "value",
        ({"project": "value_from_key"},),
    ),
    "value_from_query": Fault(
        "values come from the query projection",
        "project the values with their own matrix",
        "value",
        ({"project": "value_from_query"},),
    ),
    "query_and_value_from_key": Fault(
        "queries and values come from the key projection",
        "project q, k and v with a matrix of their own each",
        "query",
        ({"project": "query_and_value_from_key"},),
    ),
    "value_unprojected": Fault(
        "the values are the input itself: the value projection is not applied",
        "project the values: v = x @ W_v",
        "value",
        ({"project": "value_unprojected"},),
    ),
    "names_q_k_swapped": Fault(
        "what is called query serves as key and the reverse: a state_dict of another implementation would be misread",
        "score queries against keys: q @ k.transpose(-2, -1)",
        "scores",
        ({"project": "names_q_k"},),
    ),
    "names_k_v_swapped": Fault(
        "what is called key serves as value and the reverse",
        "score q against k, and mix v",
        "scores",
        ({"project": "names_k_v"},),
    ),
    "names_q_v_swapped": Fault(
        "what is called query serves as value and the reverse",
        "score q against k, and mix v",
        "scores",
        ({"project": "names_q_v"},),
    ),
    "names_turned": Fault(
        "the names of q, k and v are turned round: each serves as another",
        "score q against k, and mix v",
        "scores",
        ({"project": "names_qkv_vqk"}, {"project": "names_qkv_kvq"}),
    ),
    "one_matrix_for_all_heads": Fault(
        "all heads share one (d_model, d_head) matrix: they compute the same, so there is one head, copied",
        "give every head its own: a projection to n_heads * d_head features",
        "query",
    ),
    "out_missing": Fault(
        "the output projection is missing or not applied: heads lie side by side and never mix",
        "return out_proj(merged), a linear map from d_model to d_model",
        "out",
        ({"out": "missing"},),
    ),
    "out_twice": Fault(
        "the output projection is applied twice",
        "apply it once, after the heads are merged",
        "out",
        ({"out": "twice"},),
    ),
    "out_bias_missing": Fault(
        "the output projection's bias is not added",
        "call the layer, out_proj(merged): it adds its own bias",
        "out",
        ({"out": "without_bias"},),
    ),
    "attention_transposed": Fault(
        "the weights are transposed before they meet the values: a token receives from those that look at it",
        "context = weights @ v, with rows as queries",
        "values",
        ({"values": "transposed"},),
    ),
    # --- rope
    "rope_on_value": Fault(
        "the values are rotated as well: only queries and keys carry positions",
        "rotate q and k, and leave v as it is",
        "rope",
        tuple({"rope": f"{layout}:on_value"} for layout in _ROPE),
    ),
    "rope_ignored": Fault(
        "positions have no effect: queries and keys are not rotated",
        "rotate q and k by their positions before the scores, with 0, 1, 2, ... where none are given",
        "rope",
        ({"rope": "none:ignored"},),
    ),
    "rope_over_heads": Fault(
        "the rotation runs over the heads, not the tokens: a head's number is taken for a position",
        "rotate (B, H, T, d_head) by the position of T; positions of shape (B, T) need an axis for the heads",
        "rope",
        tuple({"rope": f"{layout}:over_heads"} for layout in _ROPE),
    ),
    "rope_exponent": Fault(
        "the rates of the rotation are off: pair i should turn by theta ** (-2i / d_head), from i = 0",
        "rates = theta ** (-torch.arange(0, d_head, 2) / d_head)",
        "rates",
        tuple({"rope": f"{layout}:exponent_{kind}"} for layout in _ROPE
              for kind in ("next", "half", "single", "d_model", "before")),
    ),  # fmt: skip
    "rope_only_query": Fault(
        "only the queries are rotated: scores then depend on the absolute position of the query, not on the distance",
        "rotate q and k alike",
        "rope",
        tuple({"rope": f"{layout}:only_query"} for layout in _ROPE),
    ),
    "rope_only_key": Fault(
        "only the keys are rotated: scores then depend on the absolute position of the key, not on the distance",
        "rotate q and k alike",
        "rope",
        tuple({"rope": f"{layout}:only_key"} for layout in _ROPE),
    ),
    "rope_backwards": Fault(
        "the rotation runs backwards: the sign of the sine is turned",
        "(a, b) becomes (a cos - b sin, a sin + b cos)",
        "rope",
        tuple({"rope": f"{layout}:backwards"} for layout in _ROPE),
    ),
    # --- shown by a law
    "dropout_in_eval": Fault(
        "dropout still drops in eval: two calls on one input differ",
        "use nn.Dropout, or F.dropout(x, p, training=self.training)",
        "dropout",
    ),
    "projections_created_in_forward": Fault(
        "a projection is created anew in every call: it is random each time and never trained",
        "create the layers once, in __init__",
        "created",
    ),
    "weights_after_dropout": Fault(
        "the returned weights are those after dropout: in training their rows do not sum to one",
        "keep the weights before dropout for returning: dropped = dropout(weights); return dropped @ v, weights",
        "dropout",
    ),
    "weights_not_used": Fault(
        "the returned weights are not those that made the output",
        "return the weights that multiply v, of shape (B, H, T, T)",
        "values",
    ),
    "mask_argument_raises": Fault(
        "the mask argument raises for every usual mask: (T, T), (1, T, T), (B, T, T), (B, 1, T, T); boolean or additive",
        "let a mask of (T, T) broadcast over (B, H, T, T)",
        "mask",
    ),
    "heads_not_dividing": Fault(
        "a d_model that n_heads does not divide is accepted and gives a narrower output",
        "refuse it in the constructor: if d_model % n_heads: raise ValueError(...)",
        "init",
    ),
    "state_between_calls": Fault(
        "the answer depends on earlier calls: something is kept between them",
        "keep nothing on self in forward, or key it by what it depends on",
        "state",
    ),
    "parameter_unused": Fault(
        "a parameter has no influence on the output, so it gets no gradient and never trains",
        "use it in forward, or remove it",
        "init",
    ),
    "mask_not_a_buffer": Fault(
        "the mask is a plain tensor: it stays behind when the module moves to another device",
        "self.register_buffer('causal_mask', mask, persistent=False)",
        "mask_made",
    ),
    "input_changed_in_place": Fault(
        "the input is changed in place: the caller's tensor is another one afterwards",
        "write y = x * a, not x *= a",
        "forward",
    ),
    "parameters_not_registered": Fault(
        "weights are plain tensors or layers in a plain list: parameters() does not know them, so they are neither "
        "trained nor saved nor moved",
        "wrap tensors in nn.Parameter, and lists of layers in nn.ModuleList",
        "init",
    ),
}
