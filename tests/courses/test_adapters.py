"""The adapters compute nothing, and name what is documented alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import mhsa_cli as mhsa
from tests.courses import adapters

TREE = ast.parse(Path(adapters.__file__).read_text(encoding="utf-8"))
PYTHON = Path(mhsa.__file__).parents[1] / "docs" / "reference" / "python.md"
# What of torch is called without a computation: shapes, names, empty or joined tensors, and five of its own functions.
CALLED = {"load_state_dict", "load_projections", "squeeze", "unsqueeze", "dim", "cat", "zeros"}
OF_TORCH = {"silu", "softmax", "cross_entropy", "clip_grad_norm_", "AdamW"}
OF_MODULES = {"turn"}


def test_they_hold_no_arithmetic() -> None:
    """No operator, and no function of torch but those that only move numbers, or that the course asks for as such."""
    nodes = list(ast.walk(TREE))
    annotations = {
        inside
        for node in nodes
        for part in (getattr(node, "annotation", None), getattr(node, "returns", None))
        if part is not None
        for inside in ast.walk(part)
    }
    sums = [n.lineno for n in nodes if isinstance(n, ast.BinOp | ast.AugAssign) and n not in annotations]
    types = [n.lineno for n in nodes if isinstance(n, ast.UnaryOp) and not isinstance(n.operand, ast.Constant)]
    assert sums == types == []
    called = {n.func.attr for n in nodes if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute)}
    assert called - {"items"} <= CALLED | OF_TORCH | OF_MODULES


def test_they_import_what_is_documented() -> None:
    found = {
        (node.module, alias.name)
        for node in ast.walk(TREE)
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("mhsa_cli")
        for alias in node.names
    }
    assert len(found) > 10
    assert {module for module, _ in found} == {"mhsa_cli", "mhsa_cli.nn"}
    documented = {"mhsa_cli": set(dir(mhsa)), "mhsa_cli.nn": set(mhsa.nn.__all__)}
    assert all(name in documented[str(module)] for module, name in found)


def test_every_name_of_nn_is_in_the_table_of_the_docs() -> None:
    _, section = PYTHON.read_text(encoding="utf-8").split("\n## Modules\n")
    rows = re.findall(r"^\| (`.*?) \|", section.split("\n## ")[0], re.MULTILINE)
    assert {name for row in rows for name in re.findall(r"`(\w+)", row)} == set(mhsa.nn.__all__)
