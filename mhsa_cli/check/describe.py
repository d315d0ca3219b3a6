"""What was found out about a block, in words."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch

from mhsa_cli.check.locate.axes import batch_axis_of
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.read.weight_layouts import Name
from mhsa_cli.check.sentences import ARRANGEMENTS, FOUND, HEADS, KEY_HEADS, MASKS, MATRICES, ORDER, OUTS, WEIGHTS, say
from mhsa_cli.records.check import ONLY_IF


def how_found(c: Context) -> tuple[dict[str, str], dict[str, str]]:
    """Say what it is, how it is built and called, what its weights are, and how it is masked; give the codes of it."""
    codes = dict(_codes(c))
    facts = {
        "pairs": c.match.spec.rope.partition(":")[0] if c.match else "",
        "weights": weights_words(c.reading.name) if c.reading else "",
        "names": [f"{slot.path} {tuple(slot.value.shape)}" for slot in c.slots],
    }
    if c.plan.mask is not None:
        facts |= {"name": c.plan.mask_name, "meaning": MASKS[c.plan.mask.meaning]}
    axis = {"name": _batch_axis(c)}
    words = {"kind": "", "built": c.built.says, "called": c.plan.says()}
    words |= {key: say(FOUND[key][code], axis if key == ONLY_IF else facts) for key, code in codes.items()}
    return words, codes


def _codes(c: Context) -> Iterator[tuple[str, str]]:
    """Give the code of each thing that was found, a key of `sentences.FOUND`."""
    library = "numpy" if c.built.numpy else ""
    if c.built.module is not None:
        yield "kind", "module"
    elif inspect.isfunction(c.block.source.attention):
        yield "kind", f"{library or 'torch'}_function"
    else:
        yield "kind", f"{library or 'plain'}_class"
    if c.match is not None:
        roles = c.match.layout.roles
        yield "weights", "read"
        if roles.q_bias is None:
            yield "bias", "none" if roles.out_bias is None else "out"
        else:
            yield "bias", "all" if roles.out is None or roles.out_bias is not None else "qkv"
        yield "positions", "none" if c.match.spec.rope == "none" else "rope"
    else:
        yield "weights", "guessed" if c.reading else "not_understood" if c.slots else "not_found"
    if c.plan.mask is not None:
        yield "mask", "argument"
    else:
        yield "mask", c.hides or ("none" if not c.causal else "hides_nothing" if c.leaks else "causal")
    yield "returns", "y" if c.run(c.x, weights=True).weights is None else "y_and_weights"
    if _batch_axis(c):
        yield ONLY_IF, "time_first"
    if c.built.dtype != torch.float64:
        yield "precision", "float32"


def weights_words(name: Name) -> str:
    """Say how the weights are read."""
    heads = HEADS.get(name.way.heads, "")
    matrix = MATRICES.get(name.way.matrix, "")
    parts = [
        say(WEIGHTS[name.kind], {"paths": name.paths, "query": name.paths[0], "other": name.paths[-1]}),
        say(ORDER, {"order": "-".join(name.order)}) if name.order else "",
        ARRANGEMENTS.get(name.arrangement, ""),
        *((heads, matrix) if name.way.heads == "by_head" else (matrix, heads)),
        say(KEY_HEADS, {"count": name.key_heads}) if name.key_heads else "",
        say(OUTS[name.out[0]], {"path": name.out[1]}),
    ]
    return ", ".join(part for part in parts if part)


def _batch_axis(c: Context) -> str:
    """Give the name of the first axis in its own code, if time comes first and that is the rows of the batch."""
    return batch_axis_of(c.block.source.text, c.block.source.name) if c.plan.time_first else ""
