"""A grade is the same whatever its sentences say: each is written as nonsense, and nothing else changes."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.check import sentences
from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.grade import grade
from mhsa_cli.check.laws import LAWS, SHARED
from mhsa_cli.check.match import search
from mhsa_cli.check.source.load import load
from mhsa_cli.jobs.grade.blocks import Row
from mhsa_cli.jobs.grade.runner import GradeResult
from mhsa_cli.records.check import IN_PROCESS, Grade
from mhsa_cli.renderers.pictures.check_words import leading, next_step
from tests.check.kinds import FUSED, written
from tests.commands.shell import mhsa

NONSENSE = "ach wie gut"
BLOCKS: dict[str, tuple[int, list[tuple[str, str]]]] = {  # exit code, and how a right block is changed
    "right": (0, []),
    "wrong": (7, [("self.d)", "self.d**2)")]),
    "wrong by laws": (
        7,
        [("w = self.drop(w)", "w = self.drop(w).detach()"), ("# made", "self.gate = nn.Linear(3, 1)")],
    ),
    "unclear": (2, [("# made", "self.t = nn.Parameter(torch.ones(n_heads, 1, 1))"), ("# scores", "s = s * self.t")]),
    "uncallable": (
        2,
        [
            ("def __init__(self, ", "def __init__(self, zeal: int, "),
            ("# made", "self.zeal = zeal"),
            ("# split", "q = q * self.zeal"),
        ],
    ),
    "raises": (2, [("# made", "raise ValueError")]),
    "raises whatever is given": (7, [("# made", "self.zeal = zeal")]),
}


def spoiled(value: Any) -> Any:
    """Write nonsense for every sentence of a table."""
    if isinstance(value, Mapping):
        return {key: spoiled(inner) for key, inner in value.items()}
    return NONSENSE if isinstance(value, str) else value


def spoil(patch: pytest.MonkeyPatch) -> None:
    """Write nonsense for every sentence there is, wherever it was imported."""
    for name, value in vars(sentences).items():
        if name.isupper() and isinstance(value, dict):
            for key, inner in value.items():
                patch.setitem(value, key, spoiled(inner))
        elif name.isupper():
            patch.setattr(sentences, name, NONSENSE)
    for name in SHARED:
        patch.setitem(SHARED, name, NONSENSE)
    for name, law in LAWS.items():
        patch.setitem(LAWS, name, law._replace(title=NONSENSE, says=spoiled(law.says)))
    for name, fault in FAULTS.items():
        nonsense = replace(fault, title=NONSENSE, says=NONSENSE, instead=NONSENSE, adds=spoiled(fault.adds))
        patch.setitem(FAULTS, name, nonsense)


def decided(found: Grade, code: int) -> dict[str, Any]:
    """Give all of a grade that is no sentence, and what follows from it."""
    first = leading(found, "fails")
    return {
        "code": code,
        "verdict": found.verdict,
        "codes": found.codes,
        "laws": [
            (law.id, law.passed, law.max_difference, law.edge, law.code, law.facts, law.rank) for law in found.laws
        ],
        "leading": first and first.id,
        "faults": [(fault.id, fault.line, fault.max_difference, fault.facts) for fault in found.faults],
        "kinds": [(one.kind, one.facts.get("name")) for one in (*found.notes, *found.tried)],
        "next": next_step(found)[1],
    }


@pytest.mark.parametrize("block", BLOCKS)
def test_nonsense_changes_no_grade(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "TRIES", 200)
    code, changes = BLOCKS[block]
    path, grades = tmp_path / "block.py", list[Grade]()
    path.write_text(written(FUSED, *changes))

    def grade_here(rows: list[Row], options: Any, *_: Any) -> list[GradeResult]:
        grades.append(grade(load(rows[0].block), options))
        return [GradeResult(grades[-1])]

    monkeypatch.setattr("mhsa_cli.commands.check.grade_all", grade_here)
    plain = mhsa("check", f"{path}:Block")
    with monkeypatch.context() as patch:
        spoil(patch)
        spoilt = mhsa("check", f"{path}:Block")
    assert plain.code == spoilt.code == code, plain.out
    assert decided(grades[1], spoilt.code) == decided(grades[0], plain.code)
    assert NONSENSE in spoilt.out and NONSENSE not in plain.out
    sentence = [law.finding for law in grades[1].laws] + [fault.explanation for fault in grades[1].faults]
    assert set(sentence) | {one.text for one in (*grades[1].notes, *grades[1].tried)} <= {NONSENSE, ""}


OUTCOMES = {*SHARED, *(code for law in LAWS.values() for code in law.says)}
MADE_BY = {  # what makes words of a code -> the place of the code among its arguments, and those that have a sentence
    "fails": (0, OUTCOMES),
    "not_tested": (0, OUTCOMES),
    "within": (2, OUTCOMES),
    "close": (2, OUTCOMES),
    "make_note": (0, set(sentences.NOTES)),
    "make_attempt": (0, set(sentences.ATTEMPTS)),
    "record_failure": (0, set(sentences.ATTEMPTS)),
    "CallError": (0, set(sentences.CALL_ERRORS)),
}


def codes_in(nodes: Iterable[ast.AST]) -> Iterator[str]:
    """List the words that stand in code by themselves; parts of a longer text are none."""
    for node in nodes:
        for inner in ast.walk(node):
            if isinstance(inner, ast.Constant) and isinstance(inner.value, str) and inner.value.isidentifier():
                yield inner.value


def test_every_code_has_its_sentence_and_every_sentence_its_code() -> None:
    known, made = set[str](), set[str]()
    room = Path(sentences.__file__).parent
    tables = (room / "sentences.py", room / "laws" / "__init__.py")
    for file in room.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        known |= set(codes_in([tree])) if file not in tables else set()
        for node in ast.walk(tree):
            name = getattr(node.func, "attr", getattr(node.func, "id", "")) if isinstance(node, ast.Call) else ""
            at, known_codes = MADE_BY.get(name, (0, set[str]()))
            if name in MADE_BY:
                codes = {code for code in codes_in(node.args[at : at + 1]) if not code.startswith("_")}
                made |= codes
                assert codes <= known_codes, (file.name, codes - known_codes)
    assert {"leaks", "numpy", "frame", "build", "no_input"} <= made
    spoken = {*OUTCOMES, *sentences.NOTES, *sentences.ATTEMPTS, *sentences.CALL_ERRORS}
    known.add(IN_PROCESS)  # made by name, as the renderers read it
    assert {code for code in spoken - known - made if not code.endswith("_and_more")} == set()
