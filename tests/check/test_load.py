"""A block is loaded by running only what it needs; failures are reported with their line."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import pytest

from mhsa_cli.check.sentences import make_note
from mhsa_cli.check.source.load import load
from tests.check.loading import Write, notes, refusal, write

__all__ = ["write"]

TRAINING = """\
import os, debugpy_is_not_here
from math import sqrt, no_such_name
debugpy_is_not_here.listen(5678)
print("hello")
width = 24
heads = width // 8


def scaled(x):
    out = x / sqrt(heads)
    return out


class Attention:
    kind = "mine"

    def forward(self, x):
        loss = scaled(x)
        return loss


class Other(Attention):
    pass


x = [1, 2]
out = open("/no/such/file").read()
for loss in range(10**12):
    out = loss
raise SystemExit(3)
"""


def test_only_what_the_target_needs_is_run(write: Write) -> None:
    source = load(write(TRAINING) + ":Attention")
    assert source.attention().forward(6.0) == 6.0 / 3**0.5
    assert {"Attention", "scaled", "sqrt", "width", "heads"} <= set(source.namespace)
    assert not {"Other", "x", "out", "os", "loss", "debugpy_is_not_here"} & set(source.namespace)
    left_out = ("lines 3-4 run", "lines 27-30 run")
    assert source.notes == tuple(make_note("skipped", where=where, name="Attention") for where in left_out)


def test_a_needed_line_that_fails_is_reported_and_the_block_tried_all_the_same(write: Write) -> None:
    source = load(
        write("import no_such_package\n\ndef attention(q, k):\n    return no_such_package.run(q, k)\n") + ":attention"
    )
    assert inspect.isfunction(source.attention)
    assert "line 1: ModuleNotFoundError: No module named 'no_such_package' (pip install no_such_package)" in notes(
        source
    )


def test_a_target_that_cannot_be_defined_names_the_line_and_the_package(write: Write) -> None:
    said = refusal(write("\nimport no_such_package as nn\n\nclass Attention(nn.Module):\n    pass\n") + ":Attention")
    assert "mine.py, line 2: Attention cannot be defined: ModuleNotFoundError" in said
    assert "pip install no_such_package" in said and "line 4: NameError" in said


def test_a_target_that_cannot_be_defined_for_another_reason_names_its_line(write: Write) -> None:
    said = refusal(write("def late():\n    return 1 / 0\n\nclass Attention:\n    size = late()\n") + ":Attention")
    assert "line 2: Attention cannot be defined: ZeroDivisionError: division by zero" in said


def test_types_and_checkers_that_are_missing_do_not_prevent_a_definition(write: Write) -> None:
    text = """\
from jaxtyping_not_here import Float, jaxtyped
from beartype_not_here import beartype


@jaxtyped(typechecker=beartype)
class Attention:
    @beartype
    def forward(self, x: Float[int, "b t"]) -> Float[int, "b t"]:
        return 2 * x
"""
    source = load(write(text) + ":Attention")
    assert source.attention().forward(3) == 6
    assert "pip install jaxtyping_not_here" in notes(source) and "pip install beartype_not_here" in notes(source)


def test_postponed_annotations_stay_postponed(write: Write) -> None:
    source = load(write("from __future__ import annotations\n\ndef attention(q: int, k): ...\n") + ":attention")
    assert source.attention.__annotations__ == {"q": "int"}
    assert source.notes == ()


def test_a_class_named_in_an_annotation_is_there(write: Write) -> None:
    text = "class Config: ...\nclass Text: ...\nclass A:\n    def __init__(self, c: Config, t: 'Text'): ...\n"
    assert {"Config", "Text"} <= set(load(write(text) + ":A").namespace)


def test_settings_that_are_changed_later_are_changed(write: Write) -> None:
    text = (
        "class C: ...\nc = C()\nc.n = 7\nd = {}\nd['a'] = 5\ndef attention(q, k): return c.n, d\n\nattention.mark = 1\n"
    )
    source = load(write(text) + ":attention")
    assert source.attention(0, 0) == (7, {"a": 5}) and source.attention.mark == 1


def test_blocks_that_bind_a_needed_name_run_and_main_does_not(write: Write) -> None:
    text = """\
try:
    import no_such_package as fast
except ImportError:
    fast = None
if fast is None:
    size = 5
with open(__file__) as file:
    first = file.readline()


def attention(q, k):
    return fast, size, first, device


if __name__ == "__main__":
    size = device = 1 / 0
else:
    device = "cpu"
"""
    assert load(write(text) + ":attention").attention(0, 0) == (None, 5, "try:\n", "cpu")
    text = "def attention(q, k):\n    return q\n\nif __name__ == '__main__':\n    attention = train()\n"
    assert load(write(text) + ":attention").notes == ()


def test_what_only_main_assigns_is_run_where_it_is_needed(write: Write) -> None:
    text = """\
class A:
    def forward(self, x):
        return x * width, heads, size


size = 1
if __name__ == "__main__":
    base = 4
    width, heads = 6 * base, base
    size = 1 / 0
    data = open("/no/such/file").read()
    base = A().forward(data)
    print(base)
"""
    source = load(write(text) + ":A")
    assert source.attention().forward(2) == (48, 4, 1) and source.notes == ()


def test_trials_of_the_target_do_not_replace_it(write: Write) -> None:
    source = load(write("def attention(q, k):\n    return q\n\nattention = attention(1, 2)\n") + ":attention")
    assert inspect.isfunction(source.attention)


def test_the_last_of_several_with_one_name_counts(write: Write) -> None:
    text = "class A:\n    n = 1\n\nclass A(A):\n    m = A.n + 1\n"
    assert load(write(text) + ":A").attention.m == 2


def test_source_and_tracebacks_find_the_lines(write: Write) -> None:
    source = load(write("# a\n\n\nclass A:\n    def forward(self, x):\n        return x  # here\n") + ":A")
    assert "return x  # here" in inspect.getsource(source.attention.forward)
    assert inspect.getsource(source.attention).startswith("class A:")
    assert source.attention.forward.__code__.co_firstlineno == 5 and source.place(5) == "line 5"


def test_an_instance_and_an_inner_class_may_be_the_target(write: Write) -> None:
    text = "class A:\n    class B:\n        def __call__(self, x):\n            return x + 1\n\nb = A.B()\n"
    assert load(write(text) + ":b").attention(1) == 2
    assert load(write(text) + ":A.B").attention()(1) == 2
    assert "A has no C" in refusal(write(text) + ":A.C")


@pytest.mark.parametrize("init", ["", "from .mine import Attention, nothing\nSIZE = 5\nraise OSError\n"])
def test_relative_imports_find_their_package(write: Write, init: str) -> None:
    write("raise SystemExit\n", "top/__init__.py")
    write("def double(x):\n    return 2 * x\n", "top/functional.py")
    write(init, "top/inner.part/__init__.py")
    write("one = 1\n", "top/inner.part/linear.py")
    write("three = 3\n", "beside.py")
    text = "from .linear import one\nfrom .. import functional as F\nfrom beside import three\n\ndef attention(q, k):\n"
    block = write(text + "    return F.double(q) + one + three\n\nprint(1)\n", "top/inner.part/mine.py")
    source = load(block + ":attention")
    assert source.attention(4, 0) == 12 and source.notes == (
        make_note("skipped", where="line 8 runs", name="attention"),
    )


def test_folders_without_init_are_packages_where_dots_ask_for_them(write: Write) -> None:
    write("one = 1\n", "top/far.py")
    write("two = 2\n", "top/inner/near.py")
    text = "from ..far import one\nfrom .near import two\nfrom above_all import three\n"
    write("three = 3\n", "above_all/__init__.py")
    block = write(text + "def attention(q, k): return one, two, three\n", "top/inner/mine.py")
    assert load(block + ":attention").attention(0, 0) == (1, 2, 3)


def test_what_a_package_itself_defines_can_be_imported(write: Write) -> None:
    write("SIZE = 5\n", "top/__init__.py")
    block = write("from . import SIZE\n\ndef attention(q, k):\n    return SIZE\n", "top/mine.py")
    assert load(block + ":attention").attention(0, 0) == 5


def test_nothing_is_written_beside_the_file(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    write("one = 1\n", "beside_two.py")
    load(write("import beside_two\n\ndef attention(q, k):\n    return beside_two.one\n") + ":attention")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside_two.py", "mine.py"]
    assert sys.dont_write_bytecode is False


def test_the_one_thing_that_looks_like_attention_is_taken(write: Write) -> None:
    text = "class Block:\n    def forward(self, x): return x\n\nclass Head(Block): ...\n"
    named = "class SelfAttention(Block): ...\nclass Attention2:\n    def __call__(self, x): return SelfAttention()\n"
    source = load(write(text + named))
    assert source.name == "Attention2" and source.notes == (make_note("only_attention", name="Attention2"),)
    assert load(write("def f(x): ...\ndef g(query, keys): ...\n")).name == "g"
    assert "nothing in it looks like attention" in refusal(write("def f(x): ...\n"))
    helper = "class Proj:\n    def forward(self, x): return self.layer(x).view(*x.shape[:2], self.n, -1)\n"
    assert "nothing in it looks like attention" in refusal(write(helper))
    said = refusal(write("class A:\n    def forward(self, q): ...\nclass B:\n    def forward(self, q): ...\n" + helper))
    assert "2 names look like attention: A, B" in said and "mine.py:A" in said


@pytest.mark.parametrize("init", ["raise SystemExit\n", "from owned.layers.deep.mine import attention\nSIZE = 5\n"])
@pytest.mark.parametrize("with_init", [True, False])
def test_a_package_is_imported_from_its_root_however_far_up(write: Write, init: str, with_init: bool) -> None:
    name = f"owned_{with_init}_{len(init)}"
    for folder in (name, f"{name}/layers", f"{name}/layers/deep") if with_init else ():
        write(init.replace("owned", name), f"{folder}/__init__.py")
    write("three = 3\n", f"{name}/util.py")
    write(f"from {name}.util import three\ntwo = 2\n", f"{name}/layers/deep/tools.py")
    text = (
        f"from .tools import two, three\nimport {name}.util as far\ndef attention(q, k): return two, three, far.three\n"
    )
    source = load(write(text, f"{name}/layers/deep/mine.py") + ":attention")
    assert source.attention(0, 0) == (2, 3, 3) and source.notes == ()


def test_what_an_own_package_defines_is_found(write: Write) -> None:
    write("from .util import three\nSIZE = 5\n", "defining/__init__.py")
    write("three = 3\n", "defining/util.py")
    text = "import defining\nfrom defining import SIZE\ndef attention(q, k): return SIZE, defining.three\n"
    assert load(write(text, "defining/deep/mine.py") + ":attention").attention(0, 0) == (5, 3)


@pytest.mark.parametrize("missing", ["gone_pkg", "gone_pkg.inner", "beside_dir.part", "acme_tools"])
def test_the_users_own_folder_is_never_to_be_installed(write: Write, tmp_path: Path, missing: str) -> None:
    write("one = 1\n", "gone_pkg/beside_dir/old/far.py")
    write("[project]\nname = 'Acme-Tools'\n", "pyproject.toml")
    text = f"from {missing} import nothing\n\ndef attention(q, k):\n    return nothing\n"
    block = write(text, "gone_pkg/layers/mine.py") + ":attention"
    assert "pip install" not in notes(load(block)) and [n.kind for n in load(block).notes] == ["failed"]
    block = write(text.replace(missing, "no_such_package"), "gone_pkg/layers/mine.py") + ":attention"
    assert "pip install no_such_package" in notes(load(block))


def test_the_users_own_distribution_has_a_version(write: Write) -> None:
    write("[project]\nname = 'By-Its.Project'\n", "pyproject.toml")
    text = """\
from importlib.metadata import version
import importlib.metadata as m
own = version("own-folder"), m.version("by_its-project"), version(__name__), m.version("torch")
other = version("no-such-distribution")
def attention(q, k): return own, other
"""
    source = load(write(text, "own_folder/inner/mine.py") + ":attention")
    import torch

    assert source.namespace["own"][:3] == ("0", "0", "0") and source.namespace["own"][3] in torch.__version__
    assert "other" not in source.namespace and [note.kind for note in source.notes] == ["failed"]
