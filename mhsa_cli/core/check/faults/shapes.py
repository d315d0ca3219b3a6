"""Faults of splitting, merging and projecting."""

from __future__ import annotations

from mhsa_cli.core.check.faults.base import Fault

SHAPES: dict[str, Fault] = {
    "split_by_view": Fault(
        "q, k and v are viewed as (B, H, T, d_head) without a transpose: a head gets pieces of different tokens",
        "view as (B, T, H, d_head), then transpose axes 1 and 2",
        "split",
        ({"split": "by_view"},),
    ),
    "merge_by_view": Fault(
        "the heads are merged without a transpose: (B, H, T, d_head) is reshaped to (B, T, D) as it lies, so that "
        "tokens mix",
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
    "groups_tiled": Fault(
        "shared keys and values are repeated as a tile (0, 1, 0, 1), where neighbouring query heads share one: "
        "(0, 0, 1, 1)",
        "use repeat_interleave(n_heads // n_kv_heads, dim=1), or expand an axis after the key/value heads",
        "split",
        ({"split": "groups_tiled"},),
    ),
    "key_reshaped": Fault(
        "K is reshaped to (B, H, d_head, T) where it should be transposed: its numbers land in other places",
        "use k.transpose(-2, -1); a reshape never swaps axes",
        "key_shape",
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
        "key_shape",
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
        "names",
        ({"project": "names_q_k"},),
    ),
    "names_k_v_swapped": Fault(
        "what is called key serves as value and the reverse",
        "score q against k, and mix v",
        "names",
        ({"project": "names_k_v"},),
    ),
    "names_q_v_swapped": Fault(
        "what is called query serves as value and the reverse",
        "score q against k, and mix v",
        "names",
        ({"project": "names_q_v"},),
    ),
    "names_turned": Fault(
        "the names of q, k and v are turned round: each serves as another",
        "score q against k, and mix v",
        "names",
        ({"project": "names_qkv_vqk"}, {"project": "names_qkv_kvq"}),
    ),
    "one_matrix_for_all_heads": Fault(
        "all heads share one (d_model, d_head) matrix: they compute the same, so there is one head, copied",
        "give every head its own: a projection to n_heads * d_head features",
        "shared",
    ),
    "heads_on_slices": Fault(
        "the input is cut into heads before it is projected, and one (d_head, d_head) matrix serves them all: a "
        "head sees only its own {d} of the {D} features, and all heads compute alike",
        "project the whole input with (d_model, d_model) matrices first, then split the result into heads",
        "split",
    ),
    "heads_ignored": Fault(
        "n_heads has no effect: there is one head of the full width, and scores are divided by its root",
        "split q, k and v to (B, H, T, d_head) before the scores, and merge the heads after",
        "split",
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
}
