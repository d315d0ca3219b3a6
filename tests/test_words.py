"""Words are for reading: no code decides by a sentence, be it the house's own or another's message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import mhsa_cli

PACKAGE = Path(mhsa_cli.__file__).parent
SENTENCES = {"says", "finding", "description", "said", "message", "msg", "hint", "evidence", "explanation", "instead"}
SENTENCES |= {"seen", "note", "text"}
READING = {
    "startswith",
    "endswith",
    "split",
    "partition",
    "rpartition",
    "replace",
    "removeprefix",
    "removesuffix",
    "find",
}
ERRORS = ("error", "failure", "problem")
SPOKEN = re.compile(rf"\.({'|'.join(sorted(SENTENCES))})\b|\bstr\(({'|'.join(ERRORS)})\)")
# Who may: file and function -> why.
ALLOWED = {
    ("jobs/messages.py", "foreseen"): "shows the first line of a message of Python's",
    ("config/pydantic_errors.py", "_several"): "the text is what the user typed",
    ("check/call/instance.py", "is_numpy"): "the text is the code that is graded",
    ("check/source/packages.py", "error_text"): "writes our names of the user's modules as theirs",
    ("check/library_errors.py", "is_second_backward"): "torch says it in its message alone",
    **{
        ("check/library_errors.py", name): "torch says it in its message alone"
        for name in ("is_overflow", "is_overwritten", "is_view_of_other_strides", "is_about_device")
    },
    **{
        ("check/library_errors.py", name): "Python says it in its message alone"
        for name in ("is_about_none", "is_about_number")
    },
    ("check/library_errors.py", "is_unknown_encoding"): "Python says it in its message alone",
    ("check/library_errors.py", "is_python_2"): "Python says it in its message alone",
    ("core/devices.py", "is_out_of_memory"): "NumPy, torch and the system say it in their messages alone",
}


def is_sentence(node: ast.AST, names: set[str]) -> bool:
    """Tell whether an expression is a field that holds a sentence, the message of an error, or a name for one."""
    if isinstance(node, ast.BoolOp):
        return any(is_sentence(one, names) for one in node.values)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "str" and node.args:
        return isinstance(node.args[0], ast.Name) and node.args[0].id in ERRORS
    return (isinstance(node, ast.Attribute) and node.attr in SENTENCES) or (
        isinstance(node, ast.Name) and node.id in names
    )


def readings(function: ast.AST) -> Iterator[ast.expr]:
    """List where a function looks into a sentence, or compares one."""
    names: set[str] = set()
    nodes = [node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.Call | ast.Compare)]
    for node in nodes:
        if isinstance(node, ast.Assign) and is_sentence(node.value, set()):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            of_re = isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
            looked_at = node.args if of_re else [node.func.value] if node.func.attr in READING else []
            if any(is_sentence(one, names) for one in looked_at):
                yield node
        elif isinstance(node, ast.Compare):
            for operator, left, right in zip(node.ops, [node.left, *node.comparators], node.comparators, strict=False):
                inside = isinstance(operator, ast.In | ast.NotIn) and is_sentence(right, names)
                same = any(isinstance(side, ast.Constant) and side.value != "" for side in (left, right))
                alike = isinstance(operator, ast.Eq | ast.NotEq) and same
                listed = isinstance(operator, ast.In | ast.NotIn) and is_sentence(left, names)
                if inside or listed or (alike and (is_sentence(left, names) or is_sentence(right, names))):
                    yield node


def read_in(text: str) -> Iterator[tuple[str, str]]:
    """Give the functions of a file that read sentences, and what they do."""
    for node in ast.walk(ast.parse(text)) if SPOKEN.search(text) else ():
        if isinstance(node, ast.FunctionDef):
            for found in readings(node):
                yield node.name, ast.unparse(found)


def test_no_code_reads_a_sentence() -> None:
    found = {
        (file.relative_to(PACKAGE).as_posix(), function): said
        for file in sorted(PACKAGE.rglob("*.py"))
        for function, said in read_in(file.read_text(encoding="utf-8"))
    }
    assert {place: said for place, said in found.items() if place not in ALLOWED} == {}
    assert set(ALLOWED) <= set(found), "these read no sentence any more"


@pytest.mark.parametrize(
    "code",
    [
        "law.seen.startswith('no gradient')",
        "'eval' in law.seen",
        "law.seen in (A, B)",
        "said = error.msg or ''; 'x' in said",
        "re.findall('--with', one.text)",
        "'second time' in str(error)",
        "head.evidence.split('; ')",
        "layout.says == 'fused'",
    ],
)
def test_reading_a_sentence_is_seen(code: str) -> None:
    assert list(read_in(f"def f():\n    {code}\n")) != []


@pytest.mark.parametrize("code", ["law.code == 'x'", "'x' in law.facts", "law.seen == ''", "print(error.message)"])
def test_what_reads_none_is_not(code: str) -> None:
    assert list(read_in(f"def f():\n    {code}\n")) == []
