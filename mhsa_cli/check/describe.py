"""Describe what was detected of a block, as codes and in words."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import torch

from mhsa_cli.check import sentences as words
from mhsa_cli.check.locate.axes import batch_axis_of
from mhsa_cli.check.match.context import Context
from mhsa_cli.check.match.kinds import kinds_of
from mhsa_cli.check.read.masks import kind_of
from mhsa_cli.check.read.reference import Spec
from mhsa_cli.check.read.weight_layouts import LayoutName
from mhsa_cli.check.sentences import render
from mhsa_cli.records.check import KINDS, ONLY_IF


def describe(c: Context) -> tuple[dict[str, str], dict[str, str]]:
    """Describe the kind of block, how it is built, called and masked, and its weights; in words, and as codes."""
    batch_axis = batch_axis_of(c.block.source.text, c.block.source.name) if c.call_form.time_first else ""
    codes = dict(_codes(c))
    if batch_axis:
        codes[ONLY_IF] = "time_first"
    if c.instance.dtype != torch.float64:
        codes["precision"] = "float32"
    spec = c.match.spec if c.match else Spec()
    base, *part = spec.rates.split(" ")
    facts = {
        "pairs": spec.rope.partition(":")[0],
        "base": base,
        "features": part[1] if part else "",
        "seen": spec.mask.partition(" ")[2],
        "weights": layout_words(c.layout.name) if c.layout else "",
        "names": [f"{slot.path} {tuple(slot.value.shape)}" for slot in c.slots],
    }
    if c.call_form.mask is not None:
        facts |= {"name": c.call_form.mask_name, "meaning": words.MASKS[c.call_form.mask.meaning]}
    texts = {"kind": "", "built": c.instance.description, "called": c.call_form.describe()}
    for key, code in codes.items():
        texts[key] = render(words.DETECTED[key][code], {"name": batch_axis} if key == ONLY_IF else facts)
    if c.match is not None and (kinds := kinds_of(c.match.spec)):
        codes[KINDS], texts[KINDS] = " ".join(kinds), "; ".join(render(words.KINDS[kind], facts) for kind in kinds)
    return texts, codes


def _codes(c: Context) -> Iterator[tuple[str, str]]:
    """Yield each property and its code, keys of `sentences.DETECTED`."""
    library = "numpy" if c.instance.numpy else ""
    if c.instance.module is not None:
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
        base = "rope" if c.match.spec.rates.split(" ")[0] == Spec().rates else "rope_base"
        yield "positions", "none" if c.match.spec.rope == "none" else base
    else:
        yield "weights", "likely" if c.layout else "not_understood" if c.slots else "not_found"
    if c.call_form.mask is not None:
        yield "mask", "argument"
    else:
        mask = c.match.spec.mask if c.match else ""
        yield (
            "mask",
            kind_of(mask)
            or c.partial_mask
            or ("some_later" if mask.startswith("sees_") else "")
            or ("none" if not c.causal else "hides_nothing" if c.leaks else "causal"),
        )
    yield "returns", "y" if c.run(c.x, weights=True).weights is None else "y_and_weights"


def layout_words(name: LayoutName) -> str:
    """Describe a layout of the weights."""
    heads = words.HEADS.get(name.axes.heads, "")
    matrix = words.MATRICES.get(name.axes.side, "")
    parts = [
        render(words.WEIGHTS[name.kind], {"paths": name.paths, "query": name.paths[0], "other": name.paths[-1]}),
        render(words.ORDER, {"order": "-".join(name.order)}) if name.order else "",
        words.ARRANGEMENTS.get(name.arrangement, ""),
        *((heads, matrix) if name.axes.heads == "by_head" else (matrix, heads)),
        render(words.KEY_HEADS, {"count": name.key_heads}) if name.key_heads else "",
        render(words.OUT_PROJECTIONS[name.out[0]], {"path": name.out[1]}),
    ]
    return ", ".join(part for part in parts if part)
