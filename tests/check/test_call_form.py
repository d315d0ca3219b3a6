"""Parameters of a call beside x: numbers, memories, switches and masks; each gets its usual value, or is reported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.records.check import Grade
from tests.check.grading import described, grade_text

BLOCK = """
import torch
from torch import nn
from typing import Optional

class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.h = n_heads
        self.q, self.k, self.v, self.o = (nn.Linear(d_model, d_model) for _ in range(4))
        self.keys = None

    def forward(self, {arguments}):
        B, T, D = x.shape
        memory = {memory}
        q, k, v = (f(y).unflatten(-1, (self.h, -1)).transpose(1, 2)
                   for f, y in ((self.q, x), (self.k, memory), (self.v, memory)))
        {between}
        s = q @ k.mT / (D // self.h) ** 0.5
        {mask}
        return self.o((s.softmax(-1) @ v).transpose(1, 2).flatten(2))
"""
CAUSAL = "s = s.masked_fill(torch.ones(T, T, dtype=torch.bool).triu(1), float('-inf'))"


def graded(
    folder: Path, arguments: str, memory: str = "x", between: str = "", mask: str = CAUSAL, **options: Any
) -> Grade:
    text = BLOCK.format(arguments=arguments, memory=memory, between=between, mask=mask)
    return grade_text(text, "Attention", folder, **options)


@pytest.mark.parametrize(
    ("argument", "called"),
    [
        ("start_pos: int", "start_pos=0"),
        ("start_pos", "start_pos=0"),
        ("input_pos: 'int'", "input_pos=0"),
        ("cache_position: Optional[int]", "cache_position=0"),
        ("offset: int", "offset=0"),
    ],
)
def test_a_number_that_says_where_the_row_begins_is_zero(tmp_path: Path, argument: str, called: str) -> None:
    name = argument.partition(":")[0]
    cache = f"self.keys = torch.zeros(9, 99, *k.shape[1::2], dtype=k.dtype); self.keys[:B, {name}:{name} + T] = "
    cache += f"k.transpose(1, 2); k = self.keys[:B, :{name} + T].transpose(1, 2)"
    result = graded(tmp_path, f"x, {argument}", between=cache)
    assert result.verdict == "right" and called in result.detected["called"], described(result)


@pytest.mark.parametrize("number", ["scale_by_head: bool", "layer_idx: int", "dropout_p: float"])
def test_other_numbers_are_numbers(tmp_path: Path, number: str) -> None:
    use = f"assert isinstance({number.partition(':')[0]}, (int, float))"
    result = graded(tmp_path, f"x, {number}", between=use)
    assert result.verdict == "right", described(result)


def test_the_length_of_a_row_and_of_a_batch_are_those_of_the_call(tmp_path: Path) -> None:
    result = graded(tmp_path, "x, seq_len: int, batch_size: int", between="assert (B, T) == (batch_size, seq_len)")
    assert result.verdict == "right", described(result)


@pytest.mark.parametrize("name", ["memory", "context", "encoder_output", "kv", "key_value", "something"])
def test_a_second_row_is_the_first(tmp_path: Path, name: str) -> None:
    result = graded(tmp_path, f"x, {name}", memory=name)
    assert result.verdict == "right" and f"{name} = x, as in self-attention" in result.detected["called"], described(
        result
    )


@pytest.mark.parametrize("switch", ["causal=False", "causal: bool", "is_causal", "mask: bool = False"])
def test_a_switch_for_the_mask_is_on(tmp_path: Path, switch: str) -> None:
    name = switch.partition("=")[0].partition(":")[0]
    result = graded(tmp_path, f"x, {switch}", mask=f"if {name} is True:\n            {CAUSAL}")
    assert result.verdict == "right" and f"{name}=True" in result.detected["called"], described(result)


def untested_in(result: Grade) -> list[str]:
    """List the masks of which is said that they were not given."""
    return [note.facts["name"] for note in result.notes if note.kind in ("untested", "padding")]


@pytest.mark.parametrize("name", ["key_padding_mask", "pad_mask", "lengths", "head_mask", "attention_mask"])
def test_a_mask_that_is_not_passed_is_reported(tmp_path: Path, name: str) -> None:
    hide = f"if {name} is not None:\n            s = s.masked_fill({name}[:, None, None, :], float('-inf'))"
    result = graded(tmp_path, f"x, {name}=None", mask=hide)
    assert result.verdict == "right" and untested_in(result) == [name], result
    both = graded(tmp_path, f"x, mask=None, {name}=None", mask=f"if mask is not None: s = s + mask\n        {hide}")
    assert both.verdict == "right" and untested_in(both) == [name], both


@pytest.mark.parametrize("other", ["", ", mask=None"])
@pytest.mark.parametrize(("name", "hidden"), [
    ("mask", "mask[:, None, None, :] == 0"),
    ("key_padding_mask", "key_padding_mask[:, None, None]"),
    ("src_key_padding_mask", "src_key_padding_mask.bool().logical_not()[:, None, None]"),
    ("attention_mask", "attention_mask.expand(B, 1, 1, T) < 0"),
    ("lengths", "(torch.arange(T) >= lengths[:, None])[:, None, None]"),
])  # fmt: skip
def test_a_padding_mask_that_is_required_hides_nothing(tmp_path: Path, name: str, hidden: str, other: str) -> None:
    if name != "mask":
        hidden += " if mask is None else ~mask" if other else ""
    for fill in ("-1e9", "float('-inf')"):
        hide = f"{CAUSAL}; s = s.masked_fill({hidden}, {fill})"
        result = graded(tmp_path, f"x, {name}" + other * (name != "mask"), mask=hide)
        assert result.verdict == "right" and untested_in(result)[0] == name, described(result)


HALVES = "halves = [t.chunk(2, -1) for t in (q, k)]; c, s = {}; "
HALVES += "q, k = (torch.cat([a * c - b * s, a * s + b * c], -1) for a, b in halves)"
PAIRS = "pairs = [(t[..., ::2], t[..., 1::2]) for t in (q, k)]; c, s = {}; "
PAIRS += "q, k = (torch.stack([a * c - b * s, a * s + b * c], -1).flatten(-2) for a, b in pairs)"


@pytest.mark.parametrize("rotation", [HALVES, PAIRS])
@pytest.mark.parametrize(("arguments", "tables"), [
    ("freqs_cos, freqs_sin", "freqs_cos, freqs_sin"),
    ("cos, sin", "cos[..., {0}], sin[..., {0}]; assert cos.shape[-1] == D // self.h"),
    ("rope", "(t[:, None, :, {0}] for t in rope); assert rope[0].shape == (1, T, D // self.h)"),
    ("position_embeddings", "(t[:, :, 0] for t in position_embeddings); assert c.shape == (1, T, D // self.h // 2)"),
    ("freqs", "freqs.cos(), freqs.sin(); assert freqs.dtype == x.dtype"),
    ("freqs_cis", "freqs_cis.real, freqs_cis.imag"),
])  # fmt: skip
def test_angles_come_as_the_call_takes_them(tmp_path: Path, arguments: str, tables: str, rotation: str) -> None:
    first = ":3" if rotation is HALVES else "::2"  # the features that have an angle of their own
    result = graded(tmp_path, f"x, {arguments}", between=rotation.format(tables.format(first)))
    assert result.verdict == "right" and result.codes["positions"] == "rope", described(result)


def test_a_cache_that_holds_on_to_a_graph_is_no_fault(tmp_path: Path) -> None:
    cache = "self.keys = torch.zeros(9, 99, *k.shape[1::2], dtype=k.dtype) if self.keys is None else self.keys.to(k)"
    cache += "; self.keys[:B, :T] = k.transpose(1, 2); k = self.keys[:B, :T].transpose(1, 2)"
    result = graded(tmp_path, "x", between=cache)
    assert "gradients_finite" not in [law.id for law in result.laws if law.passed is False], described(result)


def test_memory_that_runs_out_is_not_tried_for_ever(tmp_path: Path) -> None:
    """The process that grades says it; each try would take its time, and the grade would be one of time."""
    with pytest.raises(MemoryError):
        graded(tmp_path, "x", between="raise MemoryError")


def test_one_head_that_stands_for_all_reads_as_a_list(tmp_path: Path) -> None:
    text = """
import torch
from torch import nn

class Head(nn.Module):
    def __init__(self, d_model, d_head):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(d_model, d_head, bias=False) for _ in range(3))

    def forward(self, x):
        s = self.query(x) @ self.key(x).mT / self.key(x).size(-1) ** 0.5
        s = s.masked_fill(torch.ones(x.size(1), x.size(1)).triu(1) == 1, float("-inf"))
        return s.softmax(-1) @ self.value(x)

class Attention(nn.Module):
    def __init__(self, d_model, n_heads):
        super().__init__()
        self.heads = nn.ModuleList([Head(d_model, d_model // n_heads)] * n_heads)
        self.proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        return self.proj(torch.cat([head(x) for head in self.heads], -1))
"""
    result = grade_text(text, "Attention", tmp_path)
    assert result.verdict == "wrong" and ", shared" in result.detected["weights"], described(result)
    assert ", ," not in result.detected["weights"]


@pytest.mark.parametrize(("library", "imports", "base"), [
    ("Flax", "import jax.numpy as jnp\nfrom flax import linen as nn", "nn.Module"),
    ("JAX", "import jax\nimport numpy as np\nfrom jax import numpy as jnp", "object"),
    ("Keras", "try:\n    import keras\nexcept ImportError:\n    from tensorflow import keras", "keras.layers.Layer"),
    ("TensorFlow", "import tensorflow as tf\nimport torch", "tf.keras.layers.Layer"),
])  # fmt: skip
def test_what_is_no_torch_or_numpy_is_told_so(tmp_path: Path, library: str, imports: str, base: str) -> None:
    module = "jnp" if "jnp" in imports else base.partition(".")[0]
    text = f"{imports}\n\nclass Attention({base}):\n    def __call__(self, x):\n        return {module}.softmax(x)\n"
    result = grade_text(text, "Attention", tmp_path)
    assert result.verdict == "uncallable" and not result.notes, described(result)
    assert [(one.kind, one.facts) for one in result.tried] == [
        ("other_library", {"name": "Attention", "library": library})
    ]
