"""Right implementations, each written another way: all of them must be called right, and no fault named."""

from __future__ import annotations

from pathlib import Path

import pytest

from mhsa_cli.core.model import attention
from mhsa_cli.records.check import GradeOptions
from tests.check.grading import described, grade_block, grade_text, names_of
from tests.check.planted import FRAMED, STYLES

HERE = Path(__file__).parent / "right"
OURS = Path(attention.__file__)

RIGHT = [
    "bidirectional.py:Attention",
    "chapter_three.py:MultiHeadAttention",
    "chapter_three.py:SingleHeadAttention",
    "config_dict.py:MultiHeadAttention",
    "config_object.py:CausalSelfAttention",
    "course_functions.py:run_multihead_self_attention",
    "course_functions.py:run_multihead_self_attention_with_rope",
    "course_rope.py:MultiHeadSelfAttention",
    "factory.py:make_attention",
    "features_first.py:Attention",
    "four_clones.py:MultiHeadedAttention",
    "fused_by_head.py:NeoXAttention",
    "fused_innermost.py:Attention",
    "fused_kernel.py:CausalAttention",
    "fused_kqv.py:SelfAttention",
    "fused_vkq.py:Attention",
    "globals.py:MultiHeadAttention",
    "llama_angles.py:ComplexAttention",
    "llama_angles.py:HalvesAttention",
    "grouped.py:GroupedQueryAttention",
    "instance.py:attention",
    "lesson.ipynb:SelfAttention",
    "lesson_fused.py:MultiHeadSelfAttention",
    "lists_of_layers.py:MultiHeadAttention",
    "mask_added.py:BertSelfAttention",
    "mask_blocks.py:MultiHeadAttention",
    "no_batch.py:Attention",
    "normed_residual.py:AttentionBlock",
    "numpy_class.py:MultiHeadAttention",
    "numpy_class.py:scaled_dot_product_attention",
    "numpy_function.py:multi_head_causal_attention",
    "parameters_by_head.py:Attention",
    "parameters_flat.py:Attention",
    "residual_normed.py:MultiHeadAttention",
    "returns_dict.py:Attention",
    "separate_widths.py:MultiHeadAttention",
    "time_first.py:TimeFirstAttention",
    "torch_itself.py:MultiheadAttention",
    "torch_wrapped.py:CausalAttention",
    "tutorial.md:MultiheadAttention",
]


def test_every_file_is_graded() -> None:
    files = {path.name for path in HERE.iterdir() if path.is_file()}
    assert files == {block.partition(":")[0] for block in RIGHT}


@pytest.mark.parametrize("block", [f"{HERE}/{name}" for name in RIGHT] + [f"{OURS}:MultiHeadSelfAttention"],
                         ids=[*RIGHT, "ours"])  # fmt: skip
def test_a_right_one_is_called_right(block: str) -> None:
    result = grade_block(block, GradeOptions())
    assert result.verdict == "right" and not names_of(result), described(result)


@pytest.mark.parametrize("name", {**STYLES, **FRAMED})
def test_the_styles_without_a_fault_are_called_right(name: str, tmp_path: Path) -> None:
    style = {**STYLES, **FRAMED}[name]
    result = grade_text(style.right(), style.entry, tmp_path)
    assert result.verdict == "right" and not names_of(result), described(result)
