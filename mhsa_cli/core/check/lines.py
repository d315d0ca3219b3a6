"""Where in the user's file a fault most likely sits: the line, read from the syntax tree."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection

# A part of attention -> what its line looks like, the surest sign first.
PLACES: dict[str, tuple[str, ...]] = {
    "scale": (
        r"sqrt|rsqrt|\*\*\s*-?\s*\(?\s*-?0?\.5|\*\*\s*\(?-?1\s*/\s*2",
        r"(@|matmul|einsum|bmm|transpose).*[/*]\s*[\w.(]",
        r"scal",
        r"@|matmul|einsum|bmm",
        r"softmax",
    ),
    "softmax": (r"softmax", r"\.exp\(|np\.exp", r"scaled_dot_product_attention", r"@|matmul|einsum"),
    "mask": (
        r"masked_fill|np\.where|torch\.where|inf|1e-?\d+",
        r"is_causal|attn_mask",
        r"tril|triu",
        r"mask",
        r"softmax",
    ),
    "mask_shape": (r"tril|triu", r"masked_fill|np\.where|torch\.where", r"arange.*[<>]|[<>].*arange", r"mask"),
    "mask_made": (r"self\.\w*(mask|tril|triu|bias)\w*\s*=", r"tril|triu", r"mask"),
    "split": (r"(view|reshape)\(.*(head|H|h)", r"rearrange|unflatten|view\(|reshape\(|\.chunk|\.split", r"head"),
    "merge": (r"contiguous\(\)|concat|\.cat\(|flatten", r"view\(|reshape\(|rearrange"),
    "key": (
        r"\bk\w*\s*=.*(view|reshape|permute|transpose)",
        r"\bk\w*\.(view|reshape)",
        r"\b[kK]\w*\b.*(view|reshape|split)",
    ),
    "query": (r"\b[qQ]\w*\s*=", r"quer|\bq\b|qkv"),
    "value": (r"\b[vV]\w*\s*=", r"val|\bv\b|qkv"),
    "scores": (r"(score|att|logits|energy|wei)\w*\s*=.*(@|matmul|einsum|bmm)", r"@|matmul|einsum|bmm", r"scaled_dot"),
    "values": (r"(@|matmul|einsum|bmm).*\b[vV]\w*", r"@|matmul|einsum"),
    "out": (r"return", r"out|proj"),
    "rope": (r"rope|rotat|rotary|apply_rotary", r"cos|sin"),
    "rates": (r"theta|10000|base|freq", r"arange", r"cos|sin"),
    "dropout": (r"dropout\(", r"dropout|drop"),
    "created": (r"nn\.Linear\(|randn|rand\(", r"Linear"),
    "init": (r"def __init__", r"^\s*def "),
    "state": (r"self\.\w+\s*=", r"self\.\w+\.append"),
    "forward": (r"\w+\s*[*+/-]=|_\(|\[.*\]\s*=", r"def forward|def __call__|^\s*def "),
}
LAST = {"merge", "out", "values"}  # of several lines alike, the last
IN_INIT = {"init", "mask_made", "rates"}


def line_of(text: str, name: str, where: str, unused: tuple[str, ...] = ()) -> int | None:
    """Give the line (from 1) of a target in a file at which a part of attention sits, or None.

    The target's forward is read first, then what it calls, then its constructor. `unused` are parameters to look for.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return None
    lines = _code(text)
    blocks = _blocks(tree, name)
    if where in IN_INIT:
        blocks = sorted(blocks, key=lambda block: block[0] != "__init__")
    for parameter in unused:
        short = parameter.split(".")[0]
        for number, line in enumerate(lines, 1):
            if re.search(rf"self\.{re.escape(short)}\s*=", line):
                return number
    for pattern in PLACES.get(where, ()):
        for _, first, last in blocks:
            hits = [n for n in range(first, last + 1) if n <= len(lines) and re.search(pattern, lines[n - 1])]
            if hits:
                return hits[-1] if where in LAST else hits[0]
    return blocks[0][1] if blocks else None


def _code(text: str) -> list[str]:
    """Give the lines without comments and without the text of strings, so that only code is matched."""
    import io
    import tokenize

    lines = text.splitlines()
    kept = list(lines)
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                row = token.start[0] - 1
                kept[row] = kept[row][: token.start[1]]
            elif token.type == tokenize.STRING and token.start[0] != token.end[0]:
                for row in range(token.start[0] - 1, token.end[0]):
                    kept[row] = ""
    except (tokenize.TokenError, IndentationError):
        return lines
    return kept


def _blocks(tree: ast.Module, name: str) -> list[tuple[str, int, int]]:
    """List the functions to read: forward, what the target's class holds besides, helpers, and __init__ at last."""
    defs: list[tuple[int, str, int, int]] = []
    target = next((n for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef) and n.name == name), None)
    if target is None:
        return []
    order: Callable[[str, bool], int] = lambda n, mine: (  # noqa: E731
        0
        if n in ("forward", "__call__") and mine
        else 3
        if n == "__init__" and mine
        else 1
        if mine
        else 2
        if n != "__init__"
        else 4
    )
    inside = [n for n in ast.walk(target) if isinstance(n, ast.FunctionDef)]
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            mine = node in inside or node is target
            rank = 0 if node is target else order(node.name, mine)
            defs.append((rank, node.name, first, node.end_lineno or first))
    return [(n, a, b) for _, n, a, b in sorted(defs, key=lambda d: (d[0], d[2]))]


def speaks(text: str, names: Collection[str], pattern: str, *, constructor: bool = True) -> bool:
    """Tell whether the code of a target and of what it uses matches a pattern; comments and docstrings left out."""
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return False
    lines = _code(text)
    for node in tree.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name in names:
            skipped = set() if constructor else _lines_of_init(node)
            code = "\n".join(lines[n - 1] for n in range(node.lineno, (node.end_lineno or 0) + 1) if n not in skipped)
            code = re.sub(r"\"[^\"\n]*\"|'[^'\n]*'", lambda m: m.group() if len(m.group()) < 24 else "", code)
            if re.search(pattern, code, re.IGNORECASE):
                return True
    return False


def _lines_of_init(node: ast.stmt) -> set[int]:
    inits = [n for n in ast.walk(node) if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    return {line for n in inits for line in range(n.lineno, (n.end_lineno or n.lineno) + 1)}
