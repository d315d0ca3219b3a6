"""The table of faults: each wrong variant of the reference, why it is wrong, and what to write instead.

A new fault is an entry here and, if the output shows it, a form in `read/reference.py`. The explanations follow Vaswani
et al. 2017. The order is that of the search: common faults first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from mhsa_cli.check.locate import heads, modules, rope, scores
from mhsa_cli.check.locate.anatomy import Anatomy, Rule
from mhsa_cli.check.read.reference import ROPES

Form = dict[str, str]  # stage of a `Spec` -> its wrong form


@dataclass(frozen=True, slots=True)
class Fault:
    """A wrong variant: its title, its place in the code, the forms that compute it, and its explanation.

    `where` finds the most likely line. `forms` are those of the reference; none if only a law shows the fault. `says`
    may use {D}, {H}, {d}, {T}, the roots {root_D} and {root_d}, and the facts of the law that shows it; `adds` is added
    in brackets, by the code of that law's outcome; `says_by_code` is said instead.
    """

    title: str
    where: Rule
    forms: tuple[Form, ...]
    says: str
    instead: str
    adds: Mapping[str, str] = field(default_factory=dict)
    says_by_code: Mapping[str, str] = field(default_factory=dict)


def fills(**form: str) -> tuple[Form, ...]:
    """A form with each fill of masked scores: they differ where a softmax sees masked scores only."""
    return form, *({**form, "fill": fill} for fill in ("finite", "added"))


def turns(*hows: str) -> tuple[Form, ...]:
    """Wrong rotations, in both layouts of the pairs."""
    return tuple({"rope": f"{layout}:{how}"} for layout in ROPES for how in hows)


def known_otherwise(_: Anatomy) -> None:
    """No rule: the line is the one that raised."""


FAULTS: dict[str, Fault] = {
    # Scores and attention weights: scale, softmax, mask.
    "scale_d_model": Fault(
        "scale by the full width", scores.scale, ({"scale": "d_model"},),
        "scores are divided by sqrt(d_model) = {root_D}, not sqrt(d_head) = {root_d}: each head's dot product has "
        "d_head terms, so the softmax comes out too flat",
        "divide by the square root of the width of one head: math.sqrt(d_head), or q.size(-1) ** 0.5 after the split",
    ),
    "scale_none": Fault(
        "no scale", scores.scores, ({"scale": "none"},),
        "scores are not divided by sqrt(d_head) = {root_d}: dot products grow with the width, the softmax saturates "
        "and gradients vanish",
        "divide the scores by math.sqrt(d_head) before the softmax",
    ),
    "scale_d_head_unrooted": Fault(
        "scale without the root", scores.scale_again, ({"scale": "unrooted"},),
        "scores are divided by d_head = {d} (or twice by its root), not once by sqrt(d_head) = {root_d}",
        "divide once, by the square root: math.sqrt(d_head)",
    ),
    "scale_multiplied": Fault(
        "scale multiplied, not divided", scores.scale_used, ({"scale": "multiplied"},),
        "scores are multiplied by sqrt(d_head) = {root_d} instead of divided by it",
        "divide the scores by math.sqrt(d_head), or multiply by d_head ** -0.5",
    ),
    "scale_root_2": Fault(
        "scale off by sqrt(2)", scores.scale, ({"scale": "root_2"},),
        "scores are sqrt(2) too large: they are divided by sqrt(d_head / 2), not sqrt(d_head) = {root_d}",
        "divide by math.sqrt(d_head) with d_head = d_model // n_heads",
    ),
    "scale_seq_len": Fault(
        "scale by the length", scores.scale, ({"scale": "seq_len"},),
        "scores are divided by the square root of the number of tokens, not of d_head = {d}: the wrong axis was read",
        "divide by q.size(-1) ** 0.5: the last axis of q is d_head",
    ),
    "scale_n_heads": Fault(
        "scale by the number of heads", scores.scale, ({"scale": "n_heads"},),
        "scores are divided by the square root of the number of heads, {H}, not of d_head = {d}",
        "divide by math.sqrt(d_head)",
    ),
    "scale_d_model_unrooted": Fault(
        "scale by the full width, without the root", scores.scale, ({"scale": "model_unrooted"},),
        "scores are divided by d_model = {D}, not sqrt(d_head) = {root_d}",
        "divide by math.sqrt(d_head)",
    ),
    "scale_d_model_multiplied": Fault(
        "scale by the full width, multiplied", scores.scale, ({"scale": "model_multiplied"},),
        "scores are multiplied by sqrt(d_model) = {root_D} instead of divided by sqrt(d_head) = {root_d}",
        "divide the scores by math.sqrt(d_head)",
    ),
    "scale_constant": Fault(
        "scale by a constant", scores.scale, (),
        "scores are multiplied by {factor}, a constant, where 1 / sqrt(d_head) = {factor_right} is wanted",
        "compute the scale from the width of one head: 1 / math.sqrt(d_head)",
    ),
    "scale_after_softmax": Fault(
        "scale after the softmax", scores.scale_after, ({"scale": "after"}, {"scale": "after_width"}),
        "the division by {divisor} comes after the softmax: it shrinks the output and leaves the scores too large",
        "divide the scores by math.sqrt(d_head) first, then take the softmax",
    ),
    "softmax_over_queries": Fault(
        "softmax over queries", scores.softmax, fills(softmax="queries"),
        "the softmax runs over the queries, not the keys: columns sum to one where rows should",
        "take the softmax over the last axis of the scores (dim=-1): the keys",
    ),
    "softmax_over_heads": Fault(
        "softmax over heads", scores.softmax, fills(softmax="heads"),
        "the softmax runs over the heads: heads compete for a key, where each should distribute its own attention "
        "over keys",
        "take the softmax over the last axis of the scores (dim=-1); an implicit axis picks another one",
    ),
    "softmax_over_batch": Fault(
        "softmax over batch", scores.softmax, fills(softmax="batch"),
        "the softmax runs over the rows of the batch: each sequence depends on the others",
        "take the softmax over the last axis of the scores (dim=-1)",
    ),
    "softmax_missing": Fault(
        "softmax missing", scores.softmax_place,
        (*fills(softmax="missing"), {"softmax": "missing", "fill": "zero"}, {"softmax": "missing", "mask": "after"}),
        "the scores are used as weights: there is no softmax over the keys, rows do not sum to one",
        "take the softmax over the last axis of the masked scores",
    ),
    "softmax_over_all": Fault(
        "softmax over all", scores.softmax, (*fills(softmax="all of a head"), *fills(softmax="everything")),
        "the scores are normalised over all queries and keys together: the weights of one query do not sum to one",
        "divide by the sum over the last axis alone: softmax(dim=-1), or keepdims=True with axis=-1",
    ),
    "softmax_is_sigmoid": Fault(
        "sigmoid instead of softmax", scores.softmax_kind,
        (*fills(softmax="sigmoid"), *fills(softmax="sigmoid_less_log")),
        "a sigmoid is used instead of the softmax: keys do not compete, and rows do not sum to one",
        "take the softmax over the last axis of the masked scores",
    ),
    "softmax_twice": Fault(
        "softmax twice", scores.softmax_again, ({"softmax": "twice"},),
        "the softmax is taken twice: the weights are nearly uniform, and masked keys get weight again",
        "take the softmax once; F.cross_entropy and scaled_dot_product_attention include it",
    ),
    "mask_no_effect": Fault(
        "mask without effect", scores.mask_lost, ({"mask": "none"},),
        "the causal mask has no effect: every token sees later ones",
        "keep the result of the masking (scores = scores.masked_fill(...): without the underscore it returns a new "
        "tensor) and fill with -inf before the softmax",
        says_by_code={"no_effect": "the mask {name} has no effect: keys that it hides are still seen"},
    ),
    "mask_missing": Fault(
        "no causal mask", scores.mask_off, (),
        "no causal mask: nothing that ran hides later tokens, so every token sees them",
        "before the softmax, scores = scores.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), -torch.inf); "
        "for scaled_dot_product_attention, is_causal=True; or turn on a mask that is off",
        says_by_code={"not_required": "every token sees all others, as in an encoder; a decoder needs a causal mask, "
                                      "and --causal requires one"},
    ),
    "mask_inverted": Fault(
        "mask inverted", scores.mask, fills(mask="inverted"),
        "the mask is inverted: each token sees only later tokens, neither itself nor earlier ones",
        "block later tokens: True above the diagonal for masked_fill, True on and below it for torch.where(mask, "
        "scores, "
        "-inf) and for scaled_dot_product_attention",
    ),
    "mask_transposed": Fault(
        "mask transposed", scores.mask_shape, ({"mask": "transposed"},),
        "the mask is transposed: each token sees itself and later tokens, not earlier ones",
        "keep the lower triangle (tril): rows are queries, columns are keys",
    ),
    "mask_sees_next": Fault(
        "mask lets the next token through", scores.mask_shape, ({"mask": "sees_next"},),
        "the mask is off by one: each token sees the next one, which it should predict",
        "keep tril(diagonal=0), or block triu(diagonal=1)",
    ),
    "mask_sees_two": Fault(
        "mask lets two later tokens through", scores.mask_shape, ({"mask": "sees_two"},),
        "the mask is off by two: each token sees the next two, which it should predict",
        "keep tril(diagonal=0), or block triu(diagonal=1)",
    ),
    "mask_hides_self_after_first": Fault(
        "mask hides the token itself, but for the first", scores.mask_shape, ({"mask": "earlier_and_first"},),
        "the mask hides the token itself: each sees the earlier ones only, and the first sees itself alone",
        "let the diagonal be seen, not token 0 alone: block triu(diagonal=1)",
    ),
    "mask_hides_self": Fault(
        "mask hides the token itself", scores.mask_shape, fills(mask="hides_self"),
        "the mask is off by one: no token sees itself, and the first sees nothing",
        "block triu(diagonal=1): the diagonal stays visible",
    ),
    "mask_after_softmax": Fault(
        "mask after the softmax", scores.mask_order, ({"mask": "after"},),
        "the mask is applied after the softmax: the visible weights no longer sum to one, and depend on later tokens",
        "fill the scores with -inf before the softmax",
    ),
    "mask_fill_weak": Fault(
        "mask fill weak", scores.fill, ({"fill": "one less"}, {"fill": "ten less"}, {"fill": "ten"}),
        "masked scores are lowered by a small number only, so that later tokens still get weight",
        "fill with float('-inf'), or a large negative number such as -1e9",
    ),
    "mask_fill_zero": Fault(
        "mask fills with zero", scores.fill, ({"fill": "zero"},),
        "masked scores become 0 (or a tiny number such as -1e-9), not -inf: a score of 0 still gets weight",
        "fill with float('-inf'), or a large negative number such as -1e9",
    ),
    # Splitting, merging and projections.
    "split_by_view": Fault(
        "heads split by a view", heads.split, ({"split": "by_view"},),
        "q, k and v are viewed as (B, H, T, d_head) without a transpose: a head gets features of different tokens",
        "view as (B, T, H, d_head), then transpose axes 1 and 2",
    ),
    "merge_by_view": Fault(
        "heads merged by a view", heads.merge,
        ({"merge": "by_view"}, {"merge": "groups_outermost"}, {"merge": "groups_by_view"}),
        "the heads are merged without a transpose: (B, H, T, d_head) is reshaped to (B, T, D) with tokens behind heads "
        "or groups of heads, so that tokens mix",
        "transpose back to (B, T, H, d_head), the tokens before all axes of heads, before reshaping to (B, T, D)",
    ),
    "split_and_merge_by_view": Fault(
        "heads split and merged by a view", heads.split, ({"split": "by_view", "merge": "by_view"},),
        "heads are split and merged by view alone, without transposes: a head's 'tokens' are features of several "
        "tokens",
        "view as (B, T, H, d_head) and transpose to (B, H, T, d_head); undo both before the output projection",
    ),
    "split_by_view_q": Fault(
        "queries split by a view", heads.query, ({"split": "by_view_q"},),
        "q alone is viewed as (B, H, T, d_head) without a transpose: a head's queries are features of different tokens",
        "split q, k and v alike: view as (B, T, H, d_head), then transpose axes 1 and 2",
    ),
    "split_by_view_k": Fault(
        "keys split by a view", heads.key_shape, ({"split": "by_view_k"},),
        "k alone is viewed as (B, H, T, d_head) without a transpose: a head's keys are features of different tokens",
        "split q, k and v alike: view as (B, T, H, d_head), then transpose axes 1 and 2",
    ),
    "split_by_view_v": Fault(
        "values split by a view", heads.value, ({"split": "by_view_v"},),
        "v alone is viewed as (B, H, T, d_head) without a transpose: a head's values are features of different tokens",
        "split q, k and v alike: view as (B, T, H, d_head), then transpose axes 1 and 2",
    ),
    "split_by_view_qk": Fault(
        "queries and keys split by a view", heads.split, ({"split": "by_view_qk"},),
        "q and k are viewed as (B, H, T, d_head) without a transpose, and v is not",
        "split q, k and v alike: view as (B, T, H, d_head), then transpose axes 1 and 2",
    ),
    "split_by_view_kv": Fault(
        "keys and values split by a view", heads.key_shape, ({"split": "by_view_kv"},),
        "k and v are viewed as (B, H, T, d_head) without a transpose, and q is not",
        "split q, k and v alike: view as (B, T, H, d_head), then transpose axes 1 and 2",
    ),
    "groups_tiled": Fault(
        "groups tiled", heads.split, ({"split": "groups_tiled"},),
        "shared keys and values are repeated as (0, 1, 0, 1), but neighbouring query heads share one: "
        "(0, 0, 1, 1)",
        "use repeat_interleave(n_heads // n_kv_heads, dim=1), or expand an axis after the key/value heads",
    ),
    "groups_repeated_wrong": Fault(
        "groups repeated over the wrong axis", heads.key_shape,
        ({"split": "groups_over_features"}, {"split": "groups_over_tokens"}),
        "shared keys and values are repeated along their features or their tokens, not along the heads",
        "repeat the axis of the heads: repeat_interleave(n_heads // n_kv_heads, dim=1) on (B, n_kv_heads, T, d_head)",
    ),
    "groups_merged_wrong": Fault(
        "groups merged over the wrong axis", heads.merge, ({"merge": "groups_swapped"},),
        "query heads of shared keys and values are merged in another order than they were split in: q is split as "
        "(groups, heads of a group), and the context is not merged to (B, T, groups, heads of a group, d_head)",
        "bring the context to (B, T, groups, heads of a group, d_head), then reshape to (B, T, D)",
    ),
    "key_reshaped": Fault(
        "key reshaped", heads.key_shape, ({"key": "reshaped"},),
        "K is reshaped to (B, H, d_head, T) instead of transposed: its numbers land in other positions",
        "use k.transpose(-2, -1); a reshape never swaps axes",
    ),
    "merge_interleaved": Fault(
        "heads merged feature by feature", heads.merge, ({"merge": "features_first"},),
        "the heads are merged feature by feature, (B, T, d_head, H), but were split head by head",
        "permute the context to (B, T, H, d_head) before reshaping to (B, T, D)",
    ),
    "split_interleaved_k": Fault(
        "keys split feature by feature", heads.key_shape, ({"split": "features_first_k"},),
        "keys are split with the features outermost, (d_head, H), queries and values with the heads outermost",
        "split q, k and v alike: view as (B, T, H, d_head), then transpose axes 1 and 2",
    ),
    "batch_folded_wrong": Fault(
        "heads and batch merged wrongly", heads.merge,
        ({"merge": "folded_as_heads_first"}, {"merge": "folded_as_batch_first"}),
        "heads are merged into the batch axis in one order and split from it in the other: rows of the batch mix",
        "use one order: (B, H, ...) to (B * H, ...) and back to (B, H, ...)",
    ),
    "output_transposed": Fault(
        "output transposed", heads.out, ({"out": "transposed"},),
        "the output is (B, D, T), not (B, T, D)",
        "return (B, T, D): the same shape as the input",
    ),
    "query_from_key": Fault(
        "query from key", heads.query, ({"project": "query_from_key"},),
        "queries come from the key projection: q and k are the same, so the scores are symmetric",
        "project the queries with their own matrix",
    ),
    "key_from_query": Fault(
        "key from query", heads.key, ({"project": "key_from_query"},),
        "keys come from the query projection: q and k are the same, so the scores are symmetric",
        "project the keys with their own matrix",
    ),
    "value_from_key": Fault(
        "value from key", heads.value, ({"project": "value_from_key"},),
        "values come from the key projection: keys and values are the same",
        "project the values with their own matrix",
    ),
    "value_from_query": Fault(
        "value from query", heads.value, ({"project": "value_from_query"},),
        "values come from the query projection",
        "project the values with their own matrix",
    ),
    "query_and_value_from_key": Fault(
        "query and value from key", heads.query, ({"project": "query_and_value_from_key"},),
        "queries and values come from the key projection",
        "project q, k and v with a matrix of their own each",
    ),
    "value_unprojected": Fault(
        "value unprojected", heads.value, ({"project": "value_unprojected"},),
        "the values are the input itself: the value projection is not applied",
        "project the values: v = x @ W_v",
    ),
    "names_q_k_swapped": Fault(
        "query and key swapped", heads.names, ({"project": "names_q_k"},),
        "the projection named query is used as key, and the reverse: a state_dict of another implementation would be "
        "misread",
        "score queries against keys: q @ k.transpose(-2, -1)",
    ),
    "names_k_v_swapped": Fault(
        "key and value swapped", heads.names, ({"project": "names_k_v"},),
        "the projection named key is used as value, and the reverse",
        "score q against k, and mix v",
    ),
    "names_q_v_swapped": Fault(
        "query and value swapped", heads.names, ({"project": "names_q_v"},),
        "the projection named query is used as value, and the reverse",
        "score q against k, and mix v",
    ),
    "names_turned": Fault(
        "query, key and value swapped", heads.names,
        ({"project": "names_qkv_vqk"}, {"project": "names_qkv_kvq"}),
        "the names of q, k and v are permuted: each projection is used as another",
        "score q against k, and mix v",
    ),
    "one_matrix_for_all_heads": Fault(
        "one matrix for all heads", heads.shared, (),
        "all heads share one (d_model, d_head) matrix: they compute the same, so there is only one head",
        "give every head its own: a projection to n_heads * d_head features",
    ),
    "heads_on_slices": Fault(
        "heads on slices", heads.split, (),
        "the input is split into heads before it is projected, and all share one (d_head, d_head) matrix: a head "
        "sees only its own {d} of the {D} features",
        "project the whole input with (d_model, d_model) matrices first, then split the result into heads",
    ),
    "heads_ignored": Fault(
        "heads ignored", heads.split, (),
        "n_heads has no effect: there is one head of the full width, and scores are divided by the root of that",
        "split q, k and v to (B, H, T, d_head) before the scores, and merge the heads after",
    ),
    "out_missing": Fault(
        "no output projection", heads.out, ({"out": "missing"},),
        "the output projection is missing or not applied: heads are concatenated and never mixed",
        "return out_proj(merged), a linear map from d_model to d_model",
    ),
    "out_twice": Fault(
        "output projection applied twice", heads.out, ({"out": "twice"},),
        "the output projection is applied twice",
        "apply it once, after the heads are merged",
    ),
    "out_bias_missing": Fault(
        "no bias in the output projection", heads.out, ({"out": "without_bias"},),
        "the output projection's bias is not added",
        "call the layer, out_proj(merged): it adds its own bias",
    ),
    "attention_transposed": Fault(
        "weights transposed", scores.values, ({"values": "transposed"},),
        "the weights are transposed before they multiply the values: a token receives from the tokens that attend to "
        "it",
        "context = weights @ v, with rows as queries",
    ),
    # Rotary positions; the right form follows Su et al. 2021.
    "rope_on_value": Fault(
        "RoPE on the values", rope.rotation_of_values, turns("on_value"),
        "the values are rotated as well: only queries and keys are rotated",
        "rotate q and k, and leave v as it is",
    ),
    "rope_ignored": Fault(
        "RoPE ignored", rope.positions, ({"rope": "none:ignored"},),
        "positions have no effect: queries and keys are not rotated, or all tokens of a head by one angle, because the "
        "rotation runs over another axis",
        "rotate q and k of shape (B, H, T, d_head) along T by their positions, 0, 1, 2, ... where none are given; "
        "positions of shape (B, T) need an axis for the heads",
    ),
    "rope_exponent": Fault(
        "wrong RoPE rates", rope.rates,
        turns("exponent_next", "exponent_half", "exponent_single", "exponent_d_model", "exponent_before"),
        "the rates of the rotation are wrong: pair i rotates by theta ** (-2i / d_head), from i = 0",
        "rates = theta ** (-torch.arange(0, d_head, 2) / d_head)",
    ),
    "rope_only_query": Fault(
        "RoPE on the queries only", rope.rotation, turns("only_query"),
        "only the queries are rotated: scores then depend on the absolute position of the query, not on the distance",
        "rotate q and k alike",
    ),
    "rope_only_key": Fault(
        "RoPE on the keys only", rope.rotation, turns("only_key"),
        "only the keys are rotated: scores then depend on the absolute position of the key, not on the distance",
        "rotate q and k alike",
    ),
    "rope_key_shifted": Fault(
        "RoPE of the keys one position off", rope.rotation_of_keys, turns("key_after", "key_before", "key_rolled"),
        "queries and keys are rotated by positions that differ by one: a token is not at distance 0 from itself",
        "rotate q and k by the same rows of cosines and sines",
    ),
    "rope_pairs_differ": Fault(
        "RoPE in different pairs for queries and keys", rope.rotation_of_keys, turns("pairs_differ"),
        "queries and keys are rotated in different pairs, neighbours in one and halves in the other: scores do not "
        "depend on the distance",
        "rotate q and k by the same function",
    ),
    "rope_angles_mixed": Fault(
        "RoPE angles laid out for other pairs", rope.angles, turns("angles_mixed"),
        "the angles are laid out for other pairs than are rotated: two features of a pair get two angles",
        "with halves cat((angle, angle), -1), with neighbours repeat_interleave(angle, 2, -1)",
    ),
    "rope_backwards": Fault(
        "RoPE backwards", rope.sense, turns("backwards"),
        "the rotation runs backwards: the sign of the sine is reversed",
        "(a, b) becomes (a cos - b sin, a sin + b cos)",
    ),
    # Faults that only a law shows.
    "dropout_in_eval": Fault(
        "dropout in eval mode", modules.dropout, (),
        "dropout is active in eval: two calls on one input differ",
        "use nn.Dropout, or F.dropout(x, p, training=self.training), or dropout_p=p if self.training else 0.0",
        adds={"changes_in_eval": "{place}"},
    ),
    "dropout_on_scores": Fault(
        "dropout before the softmax", modules.dropout_before, (),
        "dropout drops scores, before the softmax: a masked score that is dropped becomes 0, or NaN, so that in "
        "training a token sees later ones",
        "take the softmax first, and drop weights: weights = dropout(scores.softmax(-1))",
    ),
    "projections_created_in_forward": Fault(
        "projections created in each call", modules.created, (),
        "a projection is created in every call: it is random each time and never trained",
        "create the layers once, in __init__",
    ),
    "weights_after_dropout": Fault(
        "weights returned after dropout", modules.dropped_weights, (),
        "the returned weights are those after dropout: in training their rows do not sum to one",
        "return the weights before dropout: dropped = dropout(weights); return dropped @ v, weights",
    ),
    "weights_not_used": Fault(
        "returned weights are not those used", modules.returned_weights, (),
        "the returned weights are not those that produced the output",
        "return the weights that multiply v, of shape (B, H, T, T)",
        adds={"differs": "{place}"},
    ),
    "mask_argument_raises": Fault(
        "mask argument cannot be given", known_otherwise, (),
        "the mask argument raises for every usual mask, (T, T) to (B, 1, T, T), boolean or additive: {message}",
        "let a mask of (T, T) broadcast over (B, H, T, T)",
    ),
    "heads_not_dividing": Fault(
        "heads do not divide the width", modules.divides, (),
        "a d_model that n_heads does not divide is accepted, and the output is narrower",
        "refuse it in the constructor: if d_model % n_heads: raise ValueError(...)",
        adds={"narrower": "d_model={D} with {H} heads gives {columns} columns"},
    ),
    "state_between_calls": Fault(
        "state between calls", modules.state, (),
        "the output depends on earlier calls: something is kept between them",
        "keep nothing on self in forward, or key it by what it depends on",
        adds={"stale": "the output for a second input depends on the first one"},
    ),
    "parameter_unused": Fault(
        "parameter unused", modules.unused, (),
        "a parameter has no influence on the output, so it gets no gradient and never trains ({names})",
        "use it in forward, or remove it",
    ),
    "gradient_cut": Fault(
        "gradient cut off", modules.detached, (),
        "no gradient reaches {names}: it influences the output, but is detached on the way, so it never trains",
        "remove .detach(), .data, .item(), .numpy(), torch.no_grad() and torch.tensor(...) on the way from the "
        "parameters to the output; rounding and comparisons pass no gradient either",
    ),
    "mask_with_a_hole": Fault(
        "mask with a hole", scores.mask_shape, (),
        "the mask hides some later tokens but not all: token {token} does not see token {near}, but sees token {far}",
        "hide all of them: True above the diagonal of the whole (T, T), torch.ones(T, T, dtype=torch.bool).triu(1)",
    ),
    "mask_not_a_buffer": Fault(
        "mask is not a buffer", scores.mask_made, (),
        "the mask is a plain tensor: it stays behind when the module moves to another device ({names})",
        "self.register_buffer('causal_mask', mask, persistent=False)",
    ),
    "inplace_breaks_backward": Fault(
        "backward pass broken in place", modules.overwritten, (),
        "a tensor that the backward pass needs is changed in place: loss.backward() raises",
        "write it without changing the tensor: w = w * mask, w = w.masked_fill(...), not w *= mask, w[...] = 0",
    ),
    "cache_hides_wrong_keys": Fault(
        "mask hides the cache", scores.mask, (),
        "with keys and values of earlier tokens given, the mask counts positions from the first key: a new token does "
        "not see token {token} of the cache",
        "put the mask's lower right corner at the last token: tril(diagonal=T_k - T_q), or no mask for a single query",
    ),
    "input_changed_in_place": Fault(
        "input changed in place", modules.in_place, (),
        "the input is changed in place: the caller's tensor has other values afterwards",
        "write y = x * a, not x *= a",
    ),
    "parameters_not_registered": Fault(
        "parameters not registered", modules.unregistered, (),
        "weights are plain tensors or layers in a plain list: parameters() does not list them, so they are neither "
        "trained nor saved nor moved ({names})",
        "wrap tensors in nn.Parameter, and lists of layers in nn.ModuleList",
    ),
    "forward_raises": Fault(
        "call raises", known_otherwise, (),
        "the call raises for any input: {message}",
        "correct this line: the block cannot be called before",
    ),
    "constructor_raises": Fault(
        "constructor raises", known_otherwise, (),
        "the constructor raises for any sizes: {message}",
        "correct this line: the block cannot be built before",
    ),
    "returns_nothing": Fault(
        "nothing is returned", known_otherwise, (),
        "the call returns nothing: it computes an output and drops it",
        "end it with return: return self.out(y)",
    ),
}  # fmt: skip
