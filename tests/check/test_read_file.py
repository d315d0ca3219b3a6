"""Scripts, notebooks and Markdown as Python, and a clear word where there is none to be had."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

from mhsa_cli.check.sentences import make_note
from mhsa_cli.check.source.load import load, parse_block
from mhsa_cli.jobs.grade.blocks import expand
from tests.check.loading import Write, refusal, write

__all__ = ["write"]


def notebook(*cells: str) -> str:
    made = [{"cell_type": "markdown", "source": ["class A: no code"]}]
    made += [{"cell_type": "code", "source": cell.splitlines(keepends=True)} for cell in cells]
    return json.dumps({"cells": made})


@pytest.mark.parametrize(("counts", "place"), [((5, 9), "cell 9"), ((5, None), "cell 2"), ((5, 5), "cell 2")])
def test_cells_are_counted_as_jupyter_shows_them(write: Write, counts: tuple[int | None, ...], place: str) -> None:
    """By execution, where each was executed, and the empty cell at the end does not count."""
    document = json.loads(notebook("import math", "def A(x):\n    return x", " \n"))
    code = [cell for cell in document["cells"] if cell["cell_type"] == "code"]
    for cell, count in zip(code, (*counts, None), strict=True):
        cell["execution_count"] = count
    source = load(write(json.dumps(document), "mine.ipynb") + ":A")
    assert source.place(2) == f"{place}, line 1"


def test_a_notebook_is_its_code_cells_without_magic(write: Write) -> None:
    cells = (
        "%matplotlib inline\n!pip install torch\nimport math",
        "%%bash\necho no Python",
        "this is no Python",
        "class A:\n    n = 1",
        "%%time\nclass A:\n    n = 2\n    def forward(self, x):\n        return math.sqrt(x) % 2  # so?",
        "A().forward(16)\nfor i in range(10**12):\n    pass",
    )
    source = load(write(notebook(*cells), "mine.ipynb") + ":A")
    assert source.attention.n == 2 and source.attention().forward(9.0) == 1.0
    assert "math.sqrt(x) % 2" in inspect.getsource(source.attention.forward)
    assert source.place(source.attention.forward.__code__.co_firstlineno) == "cell 5, line 4"
    assert source.notes == (
        make_note("cell_skipped", where="cell 3, line 1", message="invalid syntax"),
        make_note("skipped", where="cell 6, line 1 to cell 6, line 3 run", name="A"),
    )


def test_markdown_is_its_code_blocks_and_lines_stay(write: Write) -> None:
    text = """\
# Attention

```python
import math
```

```bash
class
```

1. Then

   ```py
   def attention(q, k):
       return math.sqrt(q) + k
   ```

> ```
> $ no python
> ```

> ```python
> one = 1
> ```

~~~python
    two = one + 1
    def Both(): return one + two
~~~
"""
    source = load(write(text, "mine.md") + ":attention")
    assert source.attention(9.0, 1) == 4.0
    assert source.attention.__code__.co_firstlineno == 14 and source.place(14) == "line 14"
    assert source.notes == (make_note("code_block_skipped", where="line 19", message="invalid syntax"),)
    assert load(str(source.path) + ":Both").attention() == 3


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("class A:\n    def f(self:\n", ["mine.py, line 2: ", "def f(self:", "^"]),
        ("a = 1\nprint 'x'\n", ["line 2", "Python 2"]),
        ("a = 1\n<<<<<<< HEAD\nb = 1\n=======\nb = 2\n>>>>>>> other\n", ["line 2", "merge conflict"]),
        ("class AA: ...\n", ["has no A", "did you mean AA?", "mine.py:AA"]),
        ("class a: ...\n", ["has no A", "did you mean a?"]),
        ("A = [1]\nclass B: ...\n", ["A is a list", "mine.py:B"]),
        ("A = None\n", ["A is None"]),
        ("if 1:\n\tx = 1\n        y = 2\n", ["line 3"]),
        ("", ["is empty"]),
        ("  \n\n", ["is empty"]),
        ("A = input()\n", ["line 1: A cannot be defined"]),
        ("import sys\nA = sys.exit(4)\n", ["line 2: A cannot be defined: it ends the program (sys.exit(4))"]),
        ("def f():\n    pass\nreturn 5\n", ["line 3", "outside function"]),
        ("x = 1\0\n", ["null bytes"]),
        ("x = " + "(" * 500 + ")" * 500, ["mine.py"]),
        ("from os import *\n", ["has no A"]),
    ],
)
def test_files_that_cannot_be_used_say_why(write: Write, text: str, wanted: list[str]) -> None:
    said = refusal(write(text) + ":A")
    assert all(part in said for part in wanted), said


@pytest.mark.parametrize(
    ("name", "data", "wanted"),
    [
        ("mine.py", b"a = 1\nb = '\xe9'\n", "mine.py:2: not UTF-8: byte 0xe9"),
        ("mine.py", b"# coding: klingon\n", "unknown encoding"),
        ("mine.ipynb", b"class A: pass", "mine.ipynb:1 is no notebook: not JSON"),
        ("mine.ipynb", b"[1, 2]", "no list of cells"),
        ("mine.ipynb", b'{"cells": []}', "no code cells"),
        ("mine.md", b"# Only words", "no ```python blocks"),
        ("mine.txt", b"class A: pass", "ends in '.txt'"),
        ("mine.py", b"#" * 4_000_001, "longer than 4 MB"),
    ],
)
def test_bytes_that_cannot_be_read_say_why(tmp_path: Path, name: str, data: bytes, wanted: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert wanted in refusal(f"{tmp_path / name}:A")


def test_paths_that_lead_nowhere_say_why(write: Write, tmp_path: Path) -> None:
    write("")
    said = refusal(f"{tmp_path / 'main.py'}:A")
    assert "main.py: there is no such file" in said and f"did you mean {tmp_path / 'mine.py'}?" in said
    assert "is a folder" in refusal(str(tmp_path))
    (folder := tmp_path / "a b").mkdir()
    assert f"mhsa check '{folder}'" in refusal(f"{folder}:A")
    assert "no such file" in refusal(f"{tmp_path / 'none' / 'x.py'}:A")


def test_latin_1_is_read_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_bytes(b"# -*- coding: latin-1 -*-\ndef attention(q, k):\n    return '\xe9'\n")
    assert load(f"{path}:attention").attention(0, 0) == "é"


@pytest.mark.parametrize(
    ("block", "path", "name"),
    [
        ("a.py:B", "a.py", "B"),
        ("a.py:B.c", "a.py", "B.c"),
        ("a.py", "a.py", None),
        ("C:/x/a.py:B", "C:/x/a.py", "B"),
        ("C:/x/a.py", "C:/x/a.py", None),
        ("a.py:", "a.py", None),
        ("a.py:é", "a.py", "é"),
    ],
)
def test_a_block_is_a_file_and_a_name(block: str, path: str, name: str | None) -> None:
    assert parse_block(block) == (Path(path), name)


def test_a_folder_gives_its_files_at_any_depth(write: Write, tmp_path: Path) -> None:
    found = ("a.md", "b.py", "c/x.py", "c/d/e/f/y.py", "d/n.ipynb")
    left_out = ("__pycache__/z.py", ".h/z.py", ".z.py", "env/pyvenv.cfg", "env/lib/z.py", "node_modules/z.py")
    for name in (*found, *left_out):
        write("", name)
    assert [row.block for row in expand([str(tmp_path)], None)] == [f"{tmp_path}/{name}" for name in found]


def test_links_are_graded_or_reported_and_never_followed_in_a_circle(write: Write, tmp_path: Path) -> None:
    top = tmp_path / "top"
    write("", "top/inner/a.py")
    write("", "elsewhere/b.py")
    links = {"again.py": "inner/a.py", "gone.py": "/nowhere/x.py", "itself": "itself", "out": "../elsewhere"}
    for name, block in {**links, "round": "../top", "word": "nowhere"}.items():
        (top / name).symlink_to(block)
    rows = {row.block.removeprefix(f"{top}/"): row.refused for row in expand([str(top)], None)}
    assert list(rows) == ["again.py", "gone.py", "itself", "out", "round", "word", "inner/a.py"]
    assert [name for name, refused in rows.items() if refused is not None] == ["out", "round"]
    for name in ("gone.py", "itself", "word"):
        said = refusal(str(top / name))
        assert f"{top / name} cannot be read" in said and "did you mean" not in said
    assert "is a folder" in refusal(str(top / "out"))
