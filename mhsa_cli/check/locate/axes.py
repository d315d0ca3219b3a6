"""The names that a block's source gives to the axes of its input."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator

from mhsa_cli.check.locate.flow import Function, definition_and_call
from mhsa_cli.check.locate.syntax import called

BATCH = re.compile(r"b|bs|bsz|nb|n_?batch|batch(_?size|es)?|b_size", re.IGNORECASE)
TIME = re.compile(r"t|l|s|n|seq\w*|time\w*|len(gth)?|n?_?tokens?|[tqsn]_?len|context\w*|block\w*|pos\w*", re.IGNORECASE)
_AXES = r"[(\[]\s*([A-Za-z]\w*)\s*(?:,|x|×)\s*([A-Za-z]\w*)\s*(?:,|x|×)\s*[A-Za-z]\w*\s*[)\]]"


def batch_axis_of(text: str, name: str) -> str:
    """Name that a block's source gives to its first axis if that is the batch, else "".

    It is read from `B, T, C = x.shape` in the call, from an annotation of x, or from (B, T, D) in comments.
    """
    block, call = definition_and_call(text, name)
    argument = next((p for p in call.args.args if p.arg != "self"), None) if call else None
    if block is None or call is None or argument is None:
        return ""
    for first, second in [*_unpacked(call, argument.arg), *_annotated(argument), *_commented(text, block)]:
        if BATCH.fullmatch(first) and TIME.fullmatch(second):
            return first
        if TIME.fullmatch(first) and BATCH.fullmatch(second):
            return ""  # the source says time first
    return ""


def _unpacked(call: Function, name: str) -> Iterator[tuple[str, str]]:
    for node in ast.walk(call):
        if not isinstance(node, ast.Assign) or not isinstance(node.targets[0], ast.Tuple):
            continue
        shape = node.value.func if called(node.value) == "size" and isinstance(node.value, ast.Call) else node.value
        if isinstance(shape, ast.Attribute) and shape.attr in ("shape", "size") and ast.unparse(shape.value) == name:
            names = [n.id for n in node.targets[0].elts if isinstance(n, ast.Name)]
            if len(names) == 3 or len(names) == 2 == len(node.targets[0].elts) - 1:
                yield names[0], names[1]


def _annotated(argument: ast.arg) -> Iterator[tuple[str, str]]:
    texts = [n.value for n in ast.walk(argument) if isinstance(n, ast.Constant) and isinstance(n.value, str)]
    for words in (text.split() for text in texts):
        if len(words) == 3:
            yield words[0], words[1]


def _commented(text: str, block: ast.ClassDef | Function) -> Iterator[tuple[str, str]]:
    """Yield the first two of three axes in brackets in the comments and docstrings of a block."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        within = block.lineno <= token.start[0] <= (block.end_lineno or block.lineno)
        docstring = token.type == tokenize.STRING and token.string.lstrip("rRbBuUfF").startswith(('"""', "'''"))
        if within and (token.type == tokenize.COMMENT or docstring):
            yield from re.findall(_AXES, token.string)
