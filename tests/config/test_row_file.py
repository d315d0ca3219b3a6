"""A file of rows: the same rows in each of its forms, and what is wrong with it by its line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from mhsa_cli.config.row_file import Row, RowFileError, read_row_file

MIXED = '{"input": "a", "target": "b"}'
PAIRS = [("3 4 ;", "7"), ("10 4 ;", "1 4"), ("x", "y z")]


def write(tmp_path: Path, text: str) -> str:
    (tmp_path / "own").write_text(text, encoding="utf-8")
    return str(tmp_path / "own")


def test_the_three_forms_give_the_same_rows(tmp_path: Path) -> None:
    arrows = read_row_file(write(tmp_path, "\n".join(f" {a}  ->{b} " for a, b in PAIRS) + "\n\n"))
    lists = [json.dumps({"input": a.split(), "target": b}) for a, b in PAIRS]
    assert read_row_file(write(tmp_path, "\n".join(lists))) == arrows
    assert read_row_file(write(tmp_path, "\ufeffinput,target\n" + "".join(f'"{a}",{b}\n' for a, b in PAIRS))) == arrows
    assert arrows.rows[1] == Row(("10", "4", ";"), ("1", "4"), aligned=False)
    assert arrows.tokens == ("1", "3", "4", "7", "10", ";", "x", "y", "z")  # numbers by size
    assert arrows.seq_len == 5  # three tokens, a separator, and the first of two


def test_aligned_targets_stand_below_their_inputs(tmp_path: Path) -> None:
    rows = read_row_file(write(tmp_path, '{"inputs": [3, 1], "targets": [null, 3]}\n{"inputs": "9", "targets": [9]}'))
    assert rows.rows == (Row(("3", "1"), (None, "3"), True), Row(("9",), ("9",), True)) and rows.seq_len == 2


def test_lines_end_where_an_editor_ends_them(tmp_path: Path) -> None:
    for end in ("\n", "\r\n", "\r"):
        (tmp_path / "own").write_bytes(end.join(["a b,c", "d,e"]).encode())
        assert [row.inputs for row in read_row_file(str(tmp_path / "own")).rows] == [("a", "b"), ("d",)]
    marked = json.dumps({"input": "a\u2028b", "target": "c"}, ensure_ascii=False)
    rows = read_row_file(write(tmp_path, f"{marked}\n{MIXED}"))
    assert len(rows.rows) == 2


def test_a_first_line_in_braces_is_no_json(tmp_path: Path) -> None:
    assert read_row_file(write(tmp_path, "{ ( ) } -> 1\n{ ( -> 0\n")).rows[1].inputs == ("{", "(")


def test_tokens_of_any_length_are_put_in_order(tmp_path: Path) -> None:
    long = "1" * 5000
    assert read_row_file(write(tmp_path, f"{long} 007 -> 8\n10 -> 9\n")).tokens == ("007", "8", "9", "10", long)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("1 -> 2\n3 4\n", 2),
        ("1 -> 2\n\n3 -> 4 -> 5\n", 3),
        ("1 ->\n2 -> 3", 1),
        (" -> 3\n2 -> 3", 1),
        ("a,b\nc,d,e\n", 2),
        (f"a,b\n{'c' * 140_000},d\n", 2),
        ('{"input": "a", "target": "b"}\n{"input": "a"}', 2),
        ('{"input": "a", "target": "b"}\n{"input": [1.5], "target": "b"}', 2),
        ('{"input": "a", "target": "b"}\n{"input": ', 2),
        ('{"inputs": [1, 2], "targets": [null]}\n{"inputs": [1], "targets": [1]}', 1),
        ('{"inputs": [1], "targets": [null]}\n{"inputs": [1], "targets": [1]}', 1),
    ],
)
def test_a_wrong_line_is_named(text: str, line: int, tmp_path: Path) -> None:
    with pytest.raises(RowFileError) as caught:
        read_row_file(write(tmp_path, text))
    assert re.search(rf"\bline {line}\b", caught.value.message)


@pytest.mark.parametrize(
    "text", ["", "1 -> 2\n1 -> 2\n", f"{MIXED}\n{MIXED.replace('put', 'puts').replace('get', 'gets')}"]
)
def test_a_file_of_too_few_or_mixed_rows_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(RowFileError):
        read_row_file(write(tmp_path, text))
