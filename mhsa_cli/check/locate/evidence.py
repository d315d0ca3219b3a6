"""What the code that ran shows about a block: whether it has a rotation or a mask, draws random numbers, makes layers.

*Has* means: it was made for this instance, and no branch that was switched off would use it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from itertools import chain

from mhsa_cli.check.locate import syntax
from mhsa_cli.check.locate.anatomy import Anatomy, calling

RANDOM = re.compile(r"rand|rng|normal_?$|uniform|bernoulli|binomial|choice|permutation|shuffle", re.IGNORECASE)
LAYERS = re.compile(r"Linear|Parameter|^randn|normal_?$|xavier|kaiming|^empty", re.IGNORECASE)
DROPOUT = re.compile(r"drop", re.IGNORECASE)

_angles = calling("cos", "sin", "polar", "sincos")
_triangle = calling("tril", "triu", "tril_", "triu_", "tri", "tril_indices", "triu_indices")


def has_rotation(a: Anatomy) -> bool:
    """Whether a block has angles: those that its call computes, or those of its construction.

    A table t[...] = sin(...) is one of positions to be added, unless a name says that it rotates.
    """
    tables = set() if _names_rotation(a) else _angles_in_tables(a)
    return any(map(_angles, a.run)) or (
        any(_angles(node) and node not in tables for node in a.construction)
        and not _switched_off(a, syntax.ANGLE, syntax.ROTATION)
    )


def may_rotate(a: Anatomy) -> bool:
    """Whether code that ran has a name of rotary positions, or a table of angles."""
    return _names_rotation(a) or bool(_angles_in_tables(a))


def has_mask(a: Anatomy, hides: bool) -> bool:
    """Whether a block has a mask of its own: a triangle, or whatever `hides` scores in its call."""
    ran = set(a.everything)
    made = (node for node in a.everything if a.makes_mask(node) or a.is_masking(node))
    triangle = any(_triangle(node) and node in ran for one in made for node in ast.walk(one))
    off = _switched_off(a, syntax.MASK) or any(a.masks & syntax.names(node) for node in a.skipped)
    return (triangle and not off) or (hides and any(masks(a, node) for node in a.run))


def draws_random_numbers(a: Anatomy) -> bool:
    """Whether the call draws random numbers."""
    return any(isinstance(node, ast.Call) and syntax.mentions(node.func, RANDOM) for node in a.run)


def drops(a: Anatomy) -> bool:
    """Whether the call calls a dropout."""
    return any(isinstance(node, ast.Call) and syntax.mentions(node.func, DROPOUT) for node in a.run)


def makes_layers(a: Anatomy) -> bool:
    """Whether the call makes weights or layers."""
    return any(LAYERS.search(syntax.called(node)) for node in a.run)


def masks(a: Anatomy, node: ast.AST) -> bool:
    """Whether a node hides scores; what a kernel is given is asked of the call itself."""
    if isinstance(node, ast.Call):
        hides = syntax.called(node) in ("masked_fill", "masked_fill_")
        return hides or (syntax.called(node) == "where" and a.is_mask(node.args[0] if node.args else node))
    return a.is_masking(node)


def _switched_off(a: Anatomy, *patterns: re.Pattern[str]) -> bool:
    """Whether code of the call that did not run has such a name."""
    return any(syntax.mentions(node, pattern) for node in a.skipped for pattern in patterns)


def _names_rotation(a: Anatomy) -> bool:
    return any(syntax.ROTATION.search(name) for node in a.everything for name in _own_names(node))


def _angles_in_tables(a: Anatomy) -> set[ast.AST]:
    """Angles of the construction that are written into a part of a tensor."""
    made = [node for node in a.construction if isinstance(node, ast.Assign)]
    written = (node.value for node in made if all(isinstance(t, ast.Subscript) for t in _targets(node)))
    return {inner for value in written for inner in ast.walk(value) if _angles(inner)}


def _targets(node: ast.Assign) -> Iterable[ast.expr]:
    for target in node.targets:
        yield from target.elts if isinstance(target, ast.Tuple) else [target]


def _own_names(node: ast.AST) -> Iterable[str]:
    return chain([syntax.called(node)], syntax.targets(node))
