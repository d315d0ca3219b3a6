"""Faults of the scores and of the weights made from them: scale, softmax, mask."""

from __future__ import annotations

from mhsa_cli.check.faults.base import Fault, fills

SCORES: dict[str, Fault] = {
    "scale_d_model": Fault(
        "scale by the full width",
        "scores are divided by sqrt(d_model) = {root_D}, not sqrt(d_head) = {root_d}: each head's dot product has "
        "d_head terms, so the softmax comes out too flat",
        "divide by the square root of the width of one head: math.sqrt(d_head), or q.size(-1) ** 0.5 after the split",
        "scale",
        ({"scale": "d_model"},),
    ),
    "scale_none": Fault(
        "no scale",
        "scores are not divided by sqrt(d_head) = {root_d}: dot products grow with the width, the softmax saturates "
        "and gradients vanish",
        "divide the scores by math.sqrt(d_head) before the softmax",
        "scores",
        ({"scale": "none"},),
    ),
    "scale_d_head_unrooted": Fault(
        "scale without the root",
        "scores are divided by d_head = {d} (or twice by its root), not once by sqrt(d_head) = {root_d}",
        "divide once, by the square root: math.sqrt(d_head)",
        "scale_again",
        ({"scale": "unrooted"},),
    ),
    "scale_multiplied": Fault(
        "scale multiplied, not divided",
        "scores are multiplied by sqrt(d_head) = {root_d} instead of divided by it",
        "divide the scores by math.sqrt(d_head), or multiply by d_head ** -0.5",
        "scale_used",
        ({"scale": "multiplied"},),
    ),
    "scale_root_2": Fault(
        "scale off by sqrt(2)",
        "scores are sqrt(2) too large: they are divided by sqrt(d_head / 2), not sqrt(d_head) = {root_d}",
        "divide by math.sqrt(d_head) with d_head = d_model // n_heads",
        "scale",
        ({"scale": "root_2"},),
    ),
    "scale_seq_len": Fault(
        "scale by the length",
        "scores are divided by the square root of the number of tokens, not of d_head = {d}: the wrong axis was read",
        "divide by q.size(-1) ** 0.5: the last axis of q is d_head",
        "scale",
        ({"scale": "seq_len"},),
    ),
    "scale_n_heads": Fault(
        "scale by the number of heads",
        "scores are divided by the square root of the number of heads, {H}, not of d_head = {d}",
        "divide by math.sqrt(d_head)",
        "scale",
        ({"scale": "n_heads"},),
    ),
    "scale_d_model_unrooted": Fault(
        "scale by the full width, without the root",
        "scores are divided by d_model = {D}, not sqrt(d_head) = {root_d}",
        "divide by math.sqrt(d_head)",
        "scale",
        ({"scale": "model_unrooted"},),
    ),
    "scale_d_model_multiplied": Fault(
        "scale by the full width, multiplied",
        "scores are multiplied by sqrt(d_model) = {root_D} instead of divided by sqrt(d_head) = {root_d}",
        "divide the scores by math.sqrt(d_head)",
        "scale",
        ({"scale": "model_multiplied"},),
    ),
    "scale_constant": Fault(
        "scale by a constant",
        "scores are multiplied by {factor}, a constant, where 1 / sqrt(d_head) = {factor_right} is wanted",
        "compute the scale from the width of one head: 1 / math.sqrt(d_head)",
        "scale",
    ),
    "scale_after_softmax": Fault(
        "scale after the softmax",
        "the division by sqrt(d_head) = {root_d} comes after the softmax: it shrinks the output and leaves the scores "
        "too large",
        "divide the scores first, then take the softmax",
        "scale_after",
        ({"scale": "after"},),
    ),
    "softmax_over_queries": Fault(
        "softmax over queries",
        "the softmax runs over the queries, not the keys: columns sum to one where rows should",
        "take the softmax over the last axis of the scores (dim=-1): the keys",
        "softmax",
        fills(softmax="queries"),
    ),
    "softmax_over_heads": Fault(
        "softmax over heads",
        "the softmax runs over the heads: heads compete for a key where each should spread its own attention over keys",
        "take the softmax over the last axis of the scores (dim=-1); an implicit axis picks another one",
        "softmax",
        fills(softmax="heads"),
    ),
    "softmax_over_batch": Fault(
        "softmax over batch",
        "the softmax runs over the rows of the batch: what one sequence gets depends on the others",
        "take the softmax over the last axis of the scores (dim=-1)",
        "softmax",
        fills(softmax="batch"),
    ),
    "softmax_missing": Fault(
        "softmax missing",
        "the scores are used as weights: there is no softmax over the keys, rows do not sum to one",
        "take the softmax over the last axis of the masked scores",
        "softmax_place",
        (*fills(softmax="missing"), {"softmax": "missing", "fill": "zero"}, {"softmax": "missing", "mask": "after"}),
    ),
    "softmax_over_all": Fault(
        "softmax over all",
        "the scores are normalised over all queries and keys together: the weights of one query do not sum to one",
        "divide by the sum over the last axis alone: softmax(dim=-1), or keepdims=True with axis=-1",
        "softmax",
        (*fills(softmax="all of a head"), *fills(softmax="everything")),
    ),
    "softmax_is_sigmoid": Fault(
        "sigmoid in the softmax's place",
        "a sigmoid stands in the softmax's place: keys do not compete, and rows do not sum to one",
        "take the softmax over the last axis of the masked scores",
        "softmax_kind",
        (*fills(softmax="sigmoid"), *fills(softmax="sigmoid_less_log")),
    ),
    "softmax_twice": Fault(
        "softmax twice",
        "the softmax is taken twice: the weights come out nearly even, and the second one sees masked keys again",
        "take the softmax once; F.cross_entropy and scaled_dot_product_attention hold theirs already",
        "softmax_again",
        ({"softmax": "twice"},),
    ),
    "mask_no_effect": Fault(
        "mask without effect",
        "the causal mask has no effect: every token sees the future",
        "keep the result of the masking (scores = scores.masked_fill(...): without the underscore it returns a new "
        "tensor) and fill with -inf before the softmax",
        "mask_lost",
        ({"mask": "none"},),
    ),
    "mask_inverted": Fault(
        "mask inverted",
        "the mask is inverted: each token sees only what comes after it, and neither itself nor its past",
        "block the future: True above the diagonal for masked_fill, True on and below it for torch.where(mask, scores, "
        "-inf) and for scaled_dot_product_attention",
        "mask",
        fills(mask="inverted"),
    ),
    "mask_transposed": Fault(
        "mask transposed",
        "the mask is transposed: each token sees itself and the future, not the past",
        "keep the lower triangle (tril): rows are queries, columns are keys",
        "mask_shape",
        ({"mask": "transposed"},),
    ),
    "mask_sees_next": Fault(
        "mask lets the next token through",
        "the mask is off by one: each token sees the one after it, which is the answer it should predict",
        "keep tril(diagonal=0), or block triu(diagonal=1)",
        "mask_shape",
        ({"mask": "sees_next"},),
    ),
    "mask_hides_self": Fault(
        "mask hides the token itself",
        "the mask is off by one: no token sees itself, and the first sees nothing",
        "block triu(diagonal=1): the diagonal stays visible",
        "mask_shape",
        fills(mask="hides_self"),
    ),
    "mask_after_softmax": Fault(
        "mask after the softmax",
        "the mask is applied after the softmax: weights of the past no longer sum to one, and depend on the future",
        "fill the scores with -inf before the softmax",
        "mask_order",
        ({"mask": "after"},),
    ),
    "mask_fill_weak": Fault(
        "mask fill weak",
        "masked scores are lowered by a small number only, so that the future still gets weight",
        "fill with float('-inf'), or a large negative number such as -1e9",
        "fill",
        ({"fill": "one less"}, {"fill": "ten less"}, {"fill": "ten"}),
    ),
    "mask_fill_zero": Fault(
        "mask fills with zero",
        "masked scores become 0 (or a tiny number such as -1e-9), not -inf: a score of 0 still gets weight",
        "fill with float('-inf'), or a large negative number such as -1e9",
        "fill",
        ({"fill": "zero"},),
    ),
}
