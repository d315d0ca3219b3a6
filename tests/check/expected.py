"""Attention as people write it, in `found/`: what `mhsa check` has to say of each file.

The files are no examples: they are formatted, named and laid out as they were found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mhsa_cli.check.source.load import parse_block
from mhsa_cli.check.source.read_file import read_script

FOUND = Path(__file__).parent / "found"

Where = int | str | None  # a line of the block's file, a part of it, or "other.py: a part of a line there"; None: any
Places = Where | tuple[Where, ...]  # any of them is right


@dataclass(frozen=True)
class Expected:
    """What a grade of `block` has to say: FILE:NAME in `found/`, the verdict, and its faults with their places.

    `edges` are ids of faults and laws that are told and make nothing wrong; `switched` a verdict for each parameter
    that has to be graded in both positions; `kind` that of the attention, as an id; `enough` the number of faults that
    have to be named, all if None.
    """

    block: str
    verdict: str = "right"
    faults: Mapping[str, Places] = field(default_factory=dict)
    edges: Sequence[str] = ()
    switched: Mapping[str, str] = field(default_factory=dict)
    kind: str = ""
    enough: int | None = None

    @property
    def path(self) -> Path:
        """Path of the file."""
        return parse_block(f"{FOUND}/{self.block}")[0]

    def places(self, fault: str) -> list[tuple[Path, int] | None]:
        """List the files and lines at which a fault may be told; None: anywhere.

        Raises: ValueError if a part of a line is on no line, or on several.
        """
        wanted = self.faults[fault]
        return [self._place(one) for one in (wanted if isinstance(wanted, tuple) else (wanted,))]

    def _place(self, where: Where) -> tuple[Path, int] | None:
        if where is None:
            return None
        if isinstance(where, int):
            return self.path, where
        name, colon, part = where.partition(".py: ")
        path, part = (self.path.parent / f"{name}.py", part) if colon else (self.path, where)
        if part.isdigit():
            return path, int(part)
        lines = [n for n, line in enumerate(read_script(path).text.splitlines(), 1) if part in line]
        if len(lines) != 1:
            raise ValueError(f"{part!r} is on lines {lines} of {path}")
        return path, lines[0]


def right(block: str, *, kind: str = "", edges: Sequence[str] = (), **switched: str) -> Expected:
    """Expect a right one; `switched` are parameters and the verdict in their other position."""
    return Expected(block, kind=kind, edges=edges, switched=switched)


def wrong(block: str, enough: int | None = None, **faults: Places) -> Expected:
    """Expect a wrong one, with its faults as ID=PLACE."""
    return Expected(block, "wrong", faults, enough=enough)


EXPECTED = (
    # Rotary positions that exist and are off.
    right("alibi_like_help.py:Attn"),
    right("rope_flag_false.py:Attn", use_rope="right"),
    right("rope_given_to_forward.py:Attn"),
    right("rope_theta_none.py:Attn", theta="right"),
    right("rope_off/config_flag.py:CausalSelfAttention", rotary="right"),
    right("rope_off/numpy_rotary.py:attention"),
    right("rope_off/positions.ipynb:Attention"),
    wrong("rope_off/result_dropped.py:MHA", rope_ignored=("self.rope(q)", "self.rope(k)")),
    right("rope_off/rotary_argument.py:Attention"),
    right("rope_off/sinusoid_elsewhere.py:MultiHeadedAttention"),
    wrong("rope_off/width_not_rotation.py:SelfAttention", scale_d_model="math.sqrt(self.embed_dim)"),
    # Masks that exist and are off.
    right("causal_flag_false.py:Attn", causal="right"),
    right("is_decoder_false.py:Attn", is_decoder="right"),
    right("mask_by_default_true.py:Attn"),
    right("noncausal_sdpa.py:EncoderAttention"),
    right("sdpa_mask_arg.py:Attn"),
    right("sw/mask.py:Attn", mask="right"),
    right("switch_off.py:SelfAttention", mask="right"),
    right("mask_off/cross.py:CrossAttention"),
    right("mask_off/decoder_setting.py:SelfAttention", is_decoder="right"),
    wrong("mask_off/heads_compete.py:BidirectionalAttention", softmax_over_heads="torch.softmax(energy, dim=1)"),
    right("mask_off/is_causal_attribute.py:EncoderSelfAttention"),
    wrong("mask_off/made_and_forgotten.py:CausalAttention", mask_no_effect="mask = torch.triu"),
    right("mask_off/mask_type.py:MultiHeadAttention"),
    right("mask_off/numpy_switch.py:self_attention", causal="right"),
    wrong("mask_off/on_request_without_effect.py:Attention", mask_no_effect="dots.masked_fill("),
    right("mask_off/unused_helper.py:PatchAttention"),
    # A second file.
    wrong("two/many.py:Attn", enough=3, split_and_merge_by_view=14, key_reshaped="dot.py: 13",
          softmax_over_heads=("dot.py: 9", "dot.py: 16"), mask_no_effect="dot.py: 15"),
    wrong("two/multi.py:MultiHead", scale_d_model="head.py: 15", softmax_over_queries="head.py: 17"),
    wrong("two/onefile_mask.py:CausalAttention", mask_no_effect=7),
    wrong("two/uses_mask.py:CausalAttention", mask_no_effect="core_mask.py: 8"),
    wrong("two/uses_mask2.py:Attn", mask_no_effect="core_mask.py: 8"),
    right("repo/mypkg/layers/attn/block.py:Attn"),
    wrong("second_file/encoder.py:MultiheadSelfAttention", scale_none="functional.py: scores = torch.matmul"),
    wrong("second_file/gpt.py:MultiHeadAttention", mask_sees_next="layers.py: diagonal=1"),
    wrong("second_file/numpy_heads.py:MultiHeadAttention", merge_by_view="np_ops.py: return t.reshape(B, T, H * d)"),
    right("second_file/tinylm/nn/attention.py:Attention"),
    wrong("second_file/turned.py:RotaryAttention", rope_exponent="rotary_table.py: rates = base"),
    right("second_file/unused_neighbour.py:Attention"),
    wrong("second_file/week2.ipynb:MHSA", softmax_over_queries="course_utils.py: softmax(scores, dim=-2)"),
    # Faults of their own.
    wrong("after_softmax_head.py:Attn", scale_after_softmax=17),
    wrong("after_softmax_width.py:Attention", scale_after_softmax=15),
    wrong("gqa_merge_plain.py:GQA", merge_by_view=20),
    wrong("out_unused.py:Attn", out_missing=23),
    wrong("queries_and_width_causal.py:MultiHead", scale_d_model=15, softmax_over_queries=17),
    wrong("queries_causal_only.py:MultiHead", softmax_over_queries=17),
    wrong("new_faults/divided_in_place.py:Attention", inplace_breaks_backward="e /= "),
    wrong("new_faults/dropped_in_place.py:Attention", inplace_breaks_backward=("att = self.att_drop", "inplace=True")),
    wrong("new_faults/grouped_axes.py:GQA", merge_by_view="y = y.transpose(2, 3)"),
    wrong("new_faults/grouped_plain.py:GroupedQueryAttention", merge_by_view="out.reshape(bsz, seq, -1)"),
    wrong("new_faults/head_after.py:MultiHeadAttention", scale_after_softmax="hidden_state.size(-1) ** -0.5"),
    wrong("new_faults/numpy_after.py:Attention", scale_after_softmax="np.sqrt(self.embed_size)"),
    wrong("new_faults/query_reshaped.py:SelfAttention", split_by_view_q="q = self.q_lin(x).reshape"),
    wrong("new_faults/query_reshaped_numpy.py:mha", split_by_view_q="q = np.reshape"),
    wrong("new_faults/weights_over_width.py:multi_head_attention", scale_after_softmax="probs = probs / math.sqrt(D)"),
    wrong("new_faults/zeroed_in_place.py:CausalSelfAttention", inplace_breaks_backward="att[..., future] = 0.0"),
    # Weights in other places and shapes.
    right("head_matrix.py:MultiHead"),
    right("inner_width.py:Attn"),
    right("lying_names.py:Attn"),
    right("qkv_list.py:Attn"),
    right("weights/by_name.py:Attention"),
    right("weights/conv_in_out.py:Attention"),
    right("weights/numpy_stacked.py:SelfAttention"),
    right("weights/one_tensor_of_heads.py:MultiHeadAttention"),
    wrong("weights/one_tensor_wrong.py:MultiHeadAttention", scale_d_model="x.size(-1) ** 0.5"),
    right("weights/three_clones.py:MultiHeadedAttention"),
    right("weights/triples.py:Heads"),
    # Dropout, caches and second masks.
    wrong("cache_top_left.py:Attn", cache_hides_wrong_keys=18),
    wrong("dropout_default_none.py:Attn", dropout_in_eval=21),
    wrong("dropout_helper.py:Attn", dropout_in_eval=9),
    wrong("missed/cache_from_the_top.py:Attention", cache_hides_wrong_keys="self.mask[:q_len, :kv_len]"),
    right("missed/cache_in_front.py:Attention"),
    right("missed/cache_right.py:CausalSelfAttention"),
    right("missed/dropout_guarded.py:Attention"),
    wrong("missed/functional_dropout.py:MultiHead", dropout_in_eval="F.dropout(alpha, self.p)"),
    wrong("missed/kernel_dropout.py:CausalSelfAttention", dropout_in_eval="dropout_p=self.attn_pdrop"),
    wrong("missed/padding_dropped.py:MultiHeadAttention", mask_no_effect="scores.masked_fill(key_padding_mask"),
    right("missed/padding_kept.py:SelfAttention"),
    wrong("missed/setting_dropout.py:Attention", dropout_in_eval=("bernoulli_", "weights = drop(")),
    wrong("missed/value_unread.py:MultiHeadedAttention"),
    # What is hard to call.
    right("cos_sin_args.py:Attn"),
    right("freqs_cis_arg.py:Attn"),
    right("freqs_cos_sin.py:Attn"),
    right("main_globals.py:Attn"),
    right("names_ctxt.py:Attn"),
    right("names_numqheads.py:Attn"),
    right("names_qdim.py:Attn"),
    right("position_embeddings.py:Attn"),
    right("rope_quarter.py:Attn", kind="partial_rope"),
    right("second_value_is_context.py:Attn"),
    right("sigmoid_gate.py:Attn"),
    right("calls/attention_head_size.py:SelfAttention"),
    right("calls/cache_of_four_rows.py:Attention", edges=["second_step"]),
    right("calls/dims_of_q_and_v.py:MultiheadAttention"),
    right("calls/freqs_as_tables.py:Attention"),
    right("calls/keyword_only.py:mha"),
    right("calls/lab/chatlab/modules/attention.py:Attention"),
    right("calls/lengths_required.py:MaskedAttention"),
    Expected("calls/linen.py:SelfAttention", "uncallable"),
    right("calls/model_dimension.py:MultiHeadedAttention"),
    right("calls/padding_required.py:SelfAttention"),
    right("calls/part_that_rotates.py:GPTNeoXAttention"),
    right("calls/query_heads.py:GroupedQueryAttention"),
    right("calls/sizes_by_use.py:Mixer"),
    right("calls/sizes_under_main.py:MultiHeadAttention"),
    right("calls/tables_of_halves.py:LlamaLikeAttention"),
    right("calls/width_of_kernel.py:FastAttention"),
    # Code that raises, whatever it is given.
    wrong("mask_fill_typo.py:Attn", mask_argument_raises=17),
    wrong("no_return.py:Attn", returns_nothing=14),
    wrong("raises_in_forward.py:Attn", forward_raises=16),
    wrong("raises/no_super.py:Attention", constructor_raises="self.qkv = "),
    wrong("raises/not_transposed.py:MHA", forward_raises="energy = torch.matmul(Q, K)"),
    wrong("raises/nothing_of_function.py:self_attention", returns_nothing="def self_attention"),
    wrong("raises/order_of_lines.py:SelfAttention", constructor_raises="embed_size // self.heads"),
    wrong("raises/other_attribute.py:FixedAttention", forward_raises="attend_function.py: torch.sqrt(q.shape[-1])"),
    wrong("raises/other_attribute.py:MultiHeadAttention", forward_raises="B, T, self.n_heads, -1"),
    wrong("raises/undefined.ipynb:CausalMHA", forward_raises="math.sqrt(d_k)"),
    wrong("raises/unfinished.py:MultiHeadSelfAttention", forward_raises="raise NotImplementedError"),
    wrong("raises/view_after_chunk.py:Attention", forward_raises="q = q.view"),
    wrong("raises/view_after_transpose.py:MultiHeadAttention", forward_raises="output = output.view"),
    # Edges: told, and no fault.
    right("fixed_length.py:Attn", edges=["shorter_sequences"]),
    right("weights_helper.py:Attn", edges=["weights_after_dropout"]),
    right("edges/bias_of_one_length.py:CausalAttention", edges=["shorter_sequences"]),
    right("edges/dropped_weights.py:MultiHeadedAttention", edges=["weights_after_dropout"]),
    right("edges/numpy_one_length.py:SelfAttention", edges=["shorter_sequences"]),
    wrong("edges/restarted.ipynb:CausalMHA", scale_d_model="D**0.5"),
)  # fmt: skip
