"""Weights that a function is given: their shapes by their names, also in a dict, whose keys its code tells."""

from __future__ import annotations

import ast
from typing import Any

import torch

from mhsa_cli.check.call.name_lexicon import SIZES, WEIGHTS, Sizes, kind_of
from mhsa_cli.check.locate import syntax
from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.sentences import CallError

FORMS = 5  # ways to shape weights: `shape_of` says which
DEPTH = 5  # functions that hand a dict on

Keys = dict[str, "Keys"]


def shape_of(role: str, sizes: Sizes, form: int) -> tuple[int, ...]:
    """Give the shape of a weight by its role, "q_bias" and the like among them.

    Form 0: (in, out); 1: what is fused is (out, in); 2 and 3: (H, D, d), in 3 also (H, d, D) for the output; 4: as 3,
    but (D, H, d).
    """
    D, H, d = sizes.d_model, sizes.n_heads, sizes.d_head
    name = role.removesuffix("_bias")
    width = {"qkv": 3 * D, "kv": 2 * D}.get(name, D)
    if role != name:
        return (H, d) if form > 1 and name in ("q", "k", "v") else (width,)
    if name == "out":
        return (H, d, D) if form > 2 else (D, D)
    if form > 1 and width == D:
        return (D, H, d) if form == 4 else (H, D, d)
    return (width, D) if form == 1 else (D, width)


def drawn(role: str, sizes: Sizes, form: int) -> torch.Tensor:
    """Draw a weight."""
    return torch.randn(shape_of(role, sizes, form), dtype=torch.float64)


def filled(keys: Keys, path: str, sizes: Sizes, form: int) -> dict[str, Any]:
    """Make a dict of weights and sizes with the keys that are asked of it.

    Raises: CallError if the name of one tells nothing.
    """
    made: dict[str, Any] = {}
    for key, inner in keys.items():
        name = f"{path}.{key}"
        role = role_of(name) or kind_of(key, WEIGHTS)
        if inner:
            made[key] = filled(inner, name, sizes, form)
        elif role:
            bias = is_bias(name) and not role.endswith("_bias")
            made[key] = drawn(f"{role}_bias" if bias else role, sizes, form)
        elif kind := kind_of(key, SIZES):
            made[key] = sizes.of(kind)
        else:
            raise CallError("key_says_nothing", path=path, key=key)
    return made


def keys_asked(text: str, function: str) -> dict[str, Keys]:
    """List for each parameter of a function the keys of a dict that its code, and what it calls, asks of it."""
    functions = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        return {}
    found: dict[str, Keys] = {name: {} for name in _parameters(functions[function])}
    _read(functions[function], dict(found), functions, DEPTH)
    return {name: keys for name, keys in found.items() if keys}


def _parameters(node: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _read(node: ast.AST, names: dict[str, Keys], functions: dict[str, ast.FunctionDef], depth: int) -> None:
    for _ in range(2):  # a name may stand for a part of a dict before its line is met
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                for name, value in syntax.assignments(inner):
                    if (keys := _at(value, names)) is not None:
                        names[name] = keys
            elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in functions:
                called = functions[inner.func.id]
                if depth and (given := _handed_on(inner, called, names)):
                    _read(called, given, functions, depth - 1)
            elif isinstance(inner, ast.expr):
                _at(inner, names)


def _at(node: ast.expr, names: dict[str, Keys]) -> Keys | None:
    """Give the part of a dict that an expression stands for, None if for no such."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    holder, key = None, None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        holder, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        holder, key = node.func.value, node.args[0]
    if holder is None or not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
        return None
    keys = _at(holder, names)
    return None if keys is None else keys.setdefault(key.value, {})


def _handed_on(call: ast.Call, called: ast.FunctionDef, names: dict[str, Keys]) -> dict[str, Keys]:
    """Name the parts of dicts as the function that is called does; `**part` is asked for what nothing else gives."""
    parameters = _parameters(called)
    arguments = dict(zip(parameters, call.args, strict=False))
    arguments |= {one.arg: one.value for one in call.keywords if one.arg}
    given = {name: keys for name, value in arguments.items() if (keys := _at(value, names)) is not None}
    for one in call.keywords:
        if one.arg is None and (keys := _at(one.value, names)) is not None:
            needed = parameters[: len(parameters) - len(called.args.defaults)]
            given |= {name: keys.setdefault(name, {}) for name in needed if name not in arguments}
    return given
