"""Hand-made grades for the renderers' tests."""

from __future__ import annotations

import math
from dataclasses import replace

from mhsa_cli.records.check import NOTHING, REFERENCE, Grade, Law, NamedFault, Note

FOUND = {
    "kind": "torch module",
    "built": "CausalSelfAttention(d_model=32, n_heads=4, max_seq_len=7)",
    "called": "module(x, mask=None), which gives (output, weights)",
    "weights": "c_attn is one matrix of [q|k|v], c_proj is the output projection",
    "mask": "causal, built in",
}
LAWS = [
    Law("the output equals the reference", True, 3e-15, "", id=REFERENCE, rank=1),
    Law("a later token changes nothing before it", True, 0.0, ""),
    Law("rows of the batch do not mix", True, 2.2e-16, ""),
    Law("the returned weights sum to one", None, None, "no weights are returned"),
    Law("any number of tokens up to max_seq_len", True, None, ""),
    Law("scores of 1e4 stay finite", False, math.nan, "the output holds NaN at token 0", edge=True),
]
SCALE = NamedFault(
    "scale_d_model",
    "scores are divided by sqrt(d_model) = 5.66, not sqrt(d_head) = 2.83: each head's dot product has d_head terms, so "
    "the softmax comes out too flat",
    "divide by the square root of the width of one head: math.sqrt(d_head), or q.size(-1) ** 0.5 after the split",
    41,
    "line 41",
    3.1e-8,
    "scale by the full width",
)
MERGE = NamedFault(
    "merge_by_view",
    "the heads are merged without a transpose: (B, H, T, d_head) is reshaped to (B, T, D) as it lies, so tokens mix",
    "transpose axes 1 and 2 back to (B, T, H, d_head) before reshaping to (B, T, D)",
    47,
    "cell 3, line 5",
    3.1e-8,
    "heads merged by a view",
)
BUFFER = NamedFault(
    "mask_not_a_buffer",
    "the mask is a plain tensor: it stays behind when the module moves to another device",
    "self.register_buffer('causal_mask', mask, persistent=False)",
    None,
    "",
    None,
    "mask is not a buffer",
)
FAILING = [
    replace(
        LAWS[0], passed=False, max_difference=0.4821, finding="output and reference differ most at batch 1, token 6"
    ),
    replace(
        LAWS[1],
        passed=False,
        max_difference=0.83,
        finding="another token at position 5 moves the output at position 2 by 0.83",
    ),
    *LAWS[2:],
]
NOTES = [
    Note("skipped", "lines 60-95 run at import, not needed by CausalSelfAttention: skipped"),
    Note("frame", "the block holds more than attention (residual), which is taken off before comparing"),
]
PLACE = "submissions/week 3"
RIGHT = Grade("my_attention.py:CausalSelfAttention", "right", FOUND, LAWS[:-1], [], [], seconds=0.91,
              codes={"kind": "module", "mask": "causal"})  # fmt: skip
EDGE = replace(RIGHT, block=f"{PLACE}/anna.py:CausalSelfAttention", laws=LAWS, notes=NOTES)
ONE = replace(RIGHT, block=f"{PLACE}/ben_and_carla.py:CausalSelfAttention", verdict="wrong", laws=FAILING,
              faults=[SCALE], notes=NOTES)  # fmt: skip
TWO = replace(ONE, block=f"{PLACE}/dora.ipynb:CausalSelfAttention", faults=[MERGE, replace(SCALE, place="cell 3")])
MIXED = replace(ONE, block=f"{PLACE}/emil/attention.py:CausalSelfAttention", faults=[BUFFER, SCALE])
UNKNOWN = replace(ONE, block=f"{PLACE}/finn.py:CausalSelfAttention", faults=[], notes=[])
RAISES = Grade(
    f"{PLACE}/gül.py:CausalSelfAttention",
    "uncallable",
    {},
    [],
    [],
    [Note("failed", "the package einops is missing: pip install einops")],
    [
        Note("call", f"CausalSelfAttention({said}")
        for said in (
            "d_model=32): TypeError: __init__() missing 1 required positional argument: 'cfg'",
            "config): AttributeError: 'Config' object has no attribute 'block_size_of_the_run'",
            "32, 4): TypeError: __init__() missing 1 required positional argument:\n  'cfg'",
        )
    ],
    1.25,
)
HANGS = replace(RAISES, block=f"{PLACE}/hana.md:CausalSelfAttention", notes=[], seconds=30.0,
                tried=[Note("timeout", "no result within 30 s; last stage: building")])  # fmt: skip
AFTER_DROPOUT = NamedFault("weights_after_dropout", "the weights returned in training are those after dropout",
                           "return the weights before dropout", 12, "line 12", None, "weights returned after dropout",
                           edge=True, law="weights")  # fmt: skip
REMARKED = replace(EDGE, block=f"{PLACE}/ida.py:CausalSelfAttention", faults=[AFTER_DROPOUT], notes=[],
                   laws=[*LAWS, Law("weights in training", False, 0.5, "dropped", True, "weights")])  # fmt: skip
UNCLEAR = replace(RIGHT, block=f"{PLACE}/jo.py:CausalSelfAttention", verdict="unclear",
                  laws=[replace(LAWS[0], passed=None, finding="no variant has its output"), *LAWS[1:]],
                  mask=("x..", "xx.", ".xx"))  # fmt: skip
NOTHING_IN_IT = replace(HANGS, block=f"{PLACE}/kim", seconds=0.0, tried=[Note(NOTHING, "no .py file in it")])
MANY = replace(RAISES, tried=[Note("call", f"attempt {number}") for number in range(9)])
ZOE = replace(RIGHT, block=f"{PLACE}/zoe.py:CausalSelfAttention")
CLASS = [ZOE, EDGE, ONE, TWO, MIXED, UNKNOWN, RAISES, HANGS, REMARKED, UNCLEAR, NOTHING_IN_IT]
HOSTILE = (
    "a|b `c` <script>alert(1)</script> *d* [e](f) \\ __g__ $h$ # &amp; \x1b[31m\r\n| --- |\n\n~~i~~ d_model \u202e"
)


def hostile(verdict: str) -> Grade:
    """Make a grade whose every text is made to break things."""
    faults = [
        NamedFault(HOSTILE, HOSTILE, HOSTILE, 3, HOSTILE, math.inf, HOSTILE),
        NamedFault("x", HOSTILE, "", 1, HOSTILE, None, "x"),
    ]
    laws = [Law(HOSTILE, passed, math.nan, HOSTILE, edge) for passed in (True, False, None) for edge in (True, False)]
    texts = [Note("call", HOSTILE), Note("call", HOSTILE)]
    return Grade(f"{HOSTILE}:x", verdict, {HOSTILE: HOSTILE}, laws, faults, texts, texts, math.inf)  # type: ignore[arg-type]
