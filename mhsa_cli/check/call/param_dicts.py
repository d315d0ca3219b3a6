"""Weights passed to a function: shapes by their names, also in dicts, whose keys are read from the function's code."""

from __future__ import annotations

import ast
from typing import Any

import torch

from mhsa_cli.check.call.name_lexicon import BlockSizes, size_kind, weight_kind
from mhsa_cli.check.locate import syntax
from mhsa_cli.check.roles import is_bias, role_of
from mhsa_cli.check.sentences import CallError

SHAPINGS = 5  # ways to shape the weights, see `shape_of`
DEPTH = 5  # levels of functions that pass a dict on

Keys = dict[str, "Keys"]


def shape_of(role: str, sizes: BlockSizes, shaping: int) -> tuple[int, ...]:
    """Shape of a weight by its role, "q_bias" and similar included.

    Shaping 0: (in, out); 1: fused weights are (out, in); 2 and 3: (H, D, d), in 3 also (H, d, D) for the output;
    4: as 3, but (D, H, d).
    """
    D, H, d = sizes.d_model, sizes.n_heads, sizes.d_head
    name = role.removesuffix("_bias")
    width = {"qkv": 3 * D, "kv": 2 * D}.get(name, D)
    if role != name:
        return (H, d) if shaping > 1 and name in ("q", "k", "v") else (width,)
    if name == "out":
        return (H, d, D) if shaping > 2 else (D, D)
    if shaping > 1 and width == D:
        return (D, H, d) if shaping == 4 else (H, D, d)
    return (width, D) if shaping == 1 else (D, width)


def random_weight(role: str, sizes: BlockSizes, shaping: int) -> torch.Tensor:
    """Draw a weight."""
    return torch.randn(shape_of(role, sizes, shaping), dtype=torch.float64)


def random_dict(keys: Keys, path: str, sizes: BlockSizes, shaping: int) -> dict[str, Any]:
    """Make a dict of weights and sizes with the keys that the function reads.

    Raises: CallError if the meaning of a key is not known.
    """
    made: dict[str, Any] = {}
    for key, inner in keys.items():
        name = f"{path}.{key}"
        role = role_of(name) or weight_kind(key)
        if inner:
            made[key] = random_dict(inner, name, sizes, shaping)
        elif role:
            bias = is_bias(name) and not role.endswith("_bias")
            made[key] = random_weight(f"{role}_bias" if bias else role, sizes, shaping)
        elif kind := size_kind(key):
            made[key] = sizes.of(kind)
        else:
            raise CallError("unknown_key", path=path, key=key)
    return made


def keys_read(text: str, function: str) -> dict[str, Keys]:
    """List, for each parameter of a function, the dict keys that its code and the functions it calls read."""
    functions = {node.name: node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef)}
    if function not in functions:
        return {}
    found: dict[str, Keys] = {name: {} for name in _parameters(functions[function])}
    _trace(functions[function], dict(found), functions, DEPTH)
    return {name: keys for name, keys in found.items() if keys}


def _parameters(node: ast.FunctionDef) -> list[str]:
    return [one.arg for one in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)]


def _trace(node: ast.AST, names: dict[str, Keys], functions: dict[str, ast.FunctionDef], depth: int) -> None:
    for _ in range(2):  # a name may be used before the line that sets it is visited
        for inner in ast.walk(node):
            if isinstance(inner, ast.Assign):
                for name, value in syntax.assignments(inner):
                    if (keys := _keys_at(value, names)) is not None:
                        names[name] = keys
            elif isinstance(inner, ast.Call) and isinstance(inner.func, ast.Name) and inner.func.id in functions:
                called = functions[inner.func.id]
                if depth and (passed := _passed_on(inner, called, names)):
                    _trace(called, passed, functions, depth - 1)
            elif isinstance(inner, ast.expr):
                _keys_at(inner, names)


def _keys_at(node: ast.expr, names: dict[str, Keys]) -> Keys | None:
    """Keys of the dict that an expression stands for, None if it is no dict."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    holder, key = None, None
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        holder, key = node.value, node.slice
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "get" and node.args:
        holder, key = node.func.value, node.args[0]
    if holder is None or not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
        return None
    keys = _keys_at(holder, names)
    return None if keys is None else keys.setdefault(key.value, {})


def _passed_on(call: ast.Call, called: ast.FunctionDef, names: dict[str, Keys]) -> dict[str, Keys]:
    """Map the parameters of a called function to the dicts passed to them; `**d` provides the missing ones."""
    parameters = _parameters(called)
    arguments = dict(zip(parameters, call.args, strict=False))
    arguments |= {one.arg: one.value for one in call.keywords if one.arg}
    passed = {name: keys for name, value in arguments.items() if (keys := _keys_at(value, names)) is not None}
    for one in call.keywords:
        if one.arg is None and (keys := _keys_at(one.value, names)) is not None:
            needed = parameters[: len(parameters) - len(called.args.defaults)]
            passed |= {name: keys.setdefault(name, {}) for name in needed if name not in arguments}
    return passed
