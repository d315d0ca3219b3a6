"""The walls of the house: who may import whom, and what a command may load."""

from __future__ import annotations

import ast
import contextlib
import subprocess
import sys
from collections.abc import Container
from functools import cache
from graphlib import TopologicalSorter
from pathlib import Path

import mhsa_cli
from tests.commands.shell import codes_without_torch

ROOT = Path(__file__).parents[1]
PACKAGE = Path(mhsa_cli.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))
ALL_FILES = [*FILES, *sorted((ROOT / "tests").rglob("*.py"))]

# A library may be imported only in these rooms; the rest of the house must not know it exists.
LIBRARIES = {
    "torch": {"core", "check"},
    "safetensors": {"core"},
    "scipy": {"core"},
    "PIL": {"renderers"},
    "matplotlib": {"renderers"},
    "rich": {"renderers", "commands"},
    "textual": {"renderers"},
    "typer": {"commands"},
    "yaml": {"config"},
    "pydantic": {"config"},
    "pydantic_core": {"config"},
    "psutil": {"jobs"},
    "pandas": {"api"},
    "IPython": {"api"},
}
# What a room may import of the house itself. text and errors stand below all.
ROOMS = {
    "core": {"core", "config", "records", "text", "errors"},
    "check": {"check", "core", "config", "records", "text", "errors"},
    "renderers": {"renderers", "records", "text", "errors"},
    "runs": {"runs", "records", "text", "errors"},
    "config": {"config", "text", "errors"},
    "jobs": {"jobs", "check", "core", "runs", "config", "records", "text", "errors"},
    "commands": {"commands", "jobs", "renderers", "runs", "config", "records", "text", "errors"},
    "api": {"api", "jobs", "renderers", "runs", "config", "records", "text", "errors"},
    "nn": {"nn", "core", "config"},
    "records": {"records", "text"},
    "text": set(),
    "errors": {"text"},
    "__main__": {"commands", "jobs", "text", "errors"},
    "__init__": set(),
}


# The folders of check, as they stand on each other: each may import itself and those before it, and what is below all.
CHECK = ("source", "read", "locate", "faults", "call", "match", "laws")  # folders, and faults.py
BELOW_CHECK = ("sentences", "tensors", "roles", "library_errors")


def room_of(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


@cache
def parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


@cache
def imports(file: Path) -> frozenset[str]:
    """List every module a file imports anywhere in it, those for type checking alone left out."""
    tree = parsed(file)
    typing_only = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and isinstance(branch.test, ast.Name) and branch.test.id == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node not in typing_only:
            assert node.level == 0, f"{file}: imports are written in full"
            found.add(node.module or "")
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return frozenset(found)


def stranger(room: str, name: str) -> bool:
    """Tell whether a room may not import a module: a library of another room, or a room above it."""
    top, *rest = name.split(".")
    if top == "mhsa_cli" and rest and rest[0] != "__version__":
        return rest[0] not in ROOMS[room]
    # typer brings its own click; another one may not be there
    return top == "click" or (top in LIBRARIES and room not in LIBRARIES[top])


def test_the_files_are_found() -> None:
    assert len(FILES) > 100
    assert {room_of(file) for file in FILES} == set(ROOMS)


def test_rooms_keep_to_their_libraries_and_neighbours() -> None:
    assert [(str(file), name) for file in FILES for name in imports(file) if stranger(room_of(file), name)] == []


def test_the_parts_of_check_stand_on_each_other() -> None:
    room = PACKAGE / "check"
    assert {file.name for file in room.iterdir() if (file / "__init__.py").exists()} == {*CHECK} - {"faults"}
    allowed = {part: {*CHECK[: at + 1], *BELOW_CHECK} for at, part in enumerate(CHECK)}
    allowed |= {name: set(BELOW_CHECK) for name in BELOW_CHECK}
    found = [
        (str(file), name)
        for file in sorted(room.rglob("*.py"))
        for name in imports(file)
        if (within := file.relative_to(room).parts[0].removesuffix(".py")) in allowed
        and name.startswith("mhsa_cli.check.")
        and name.split(".")[2] not in allowed[within]
    ]
    assert found == []


def neighbours(file: Path, known: Container[str]) -> set[str]:
    """List the modules of the house that a file imports, those inside functions and for type checking among them."""
    found = set()
    for node in ast.walk(parsed(file)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= {name if name in known else node.module for name in whole}
    return {name for name in found if name in known}


def test_no_imports_go_in_a_circle() -> None:
    modules = {".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts): file for file in FILES}
    modules = {name.removesuffix(".__init__"): file for name, file in modules.items()}
    graph = {name: neighbours(file, modules) - {name} for name, file in modules.items()}
    graph["mhsa_cli"] = set()  # it gives the names of the API when they are asked for, and loads nothing by itself
    assert sum(map(len, graph.values())) > 500
    assert set(TopologicalSorter(graph).static_order()) == set(modules)  # it raises CycleError, which names the circle


def hidden_modules(package: Path) -> set[str]:
    """List the modules of a package whose names its __init__.py gives to something else."""
    whole = ".".join(package.parent.relative_to(PACKAGE.parent).parts)
    named: set[str] = set()
    for node in ast.walk(ast.parse(package.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            named.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            named.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", "") != whole:
            named |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
    beside = package.parent.iterdir()
    return named & {file.stem for file in beside if file.suffix == ".py" or (file / "__init__.py").exists()}


def test_no_name_of_a_package_hides_a_module_of_it() -> None:
    """`from package import name` would give the module or the other thing, as the order of imports has it."""
    packages = PACKAGE.rglob("__init__.py")
    assert {str(package): hidden for package in packages if (hidden := hidden_modules(package))} == {}


def test_one_file_alone_knows_ray() -> None:
    assert [str(file.relative_to(PACKAGE)) for file in FILES if {n.split(".")[0] for n in imports(file)} & {"ray"}] == [
        "jobs/sweep/ray.py"
    ]


def test_commands_import_torch_only_inside_their_functions() -> None:
    commands = [file for file in FILES if room_of(file) in ("commands", "__main__")]
    assert [
        f"{file}, line {node.lineno}"
        for file in commands
        for node in parsed(file).body
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(("mhsa_cli.core", "mhsa_cli.check"))
    ] == []


# Files of more lines than make a reader look for a second subject, each with the reason that it has none.
LONG: dict[str, str] = {
    "mhsa_cli/check/faults.py": "a table: each fault stands once, with all that is said of it",
}


def test_a_file_of_more_than_400_lines_has_a_reason() -> None:
    lengths = {str(file.relative_to(ROOT)): len(file.read_text(encoding="utf-8").splitlines()) for file in ALL_FILES}
    assert {file for file, lines in lengths.items() if lines > 400} == set(LONG)


def called(call: ast.Call) -> str:
    """Name what is called, as `name` or `module.name`; other calls have no name."""
    function = call.func
    if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
        return f"{function.value.id}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def test_no_code_is_run_from_data() -> None:
    """No pickle in any guise, no YAML object construction, no eval; what is to be graded runs from one file alone."""
    running = {"torch.load", "eval", "exec", "yaml.load", "yaml.unsafe_load", "__import__"}
    reading = {"pickle", "shelve", "marshal", "dill"}
    found = []
    for file in FILES:
        calls = {called(node) for node in ast.walk(parsed(file)) if isinstance(node, ast.Call)}
        tops = {name.split(".")[0] for name in imports(file)}
        found += [(str(file.relative_to(PACKAGE)), name) for name in sorted(calls & running | tops & reading)]
    assert found == [("check/source/execute.py", "exec")]


def test_public_things_say_what_they_do_in_at_most_twelve_lines() -> None:
    wrong = []
    for file in FILES:
        tree = parsed(file)
        if tree.body and not ast.get_docstring(tree):
            wrong.append(f"{file}: a module says what it is for")
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                lines = (ast.get_docstring(node) or "").splitlines()
                if not 1 <= len(lines) <= 12:
                    wrong.append(f"{file}: the docstring of {node.name} has {len(lines)} lines")
    assert wrong == []


# What needs no torch, and the code it ends with, one after the other in one fresh process.
LIGHT = [
    (["--help"], 0),
    (["train", "--help"], 0),
    (["train", "--config", "missing.yaml"], 2),
    (["train", "model.n_heads=5"], 2),
    (["config", "show"], 0),
    (["config", "list"], 0),
    (["config", "check", "copy"], 0),
    (["tasks"], 0),
    (["tasks", "reverse", "--json"], 0),
    (["runs"], 0),
    (["runs", "--filter", "n_heads=2"], 0),
    (["runs", "rm", "missing", "--yes"], 4),
    (["inspect-heads"], 4),
    (["explain"], 4),
    (["sweep", "n_heads=1,1"], 2),
    (["sweep", "n_heads=1,3"], 2),
    (["sweep", "--seeds", "9000000"], 2),
    (["sweep", "--resume", "missing"], 4),
    (["check", "missing.py:A"], 2),
]


def test_what_needs_no_torch_does_not_load_it(tmp_path: Path) -> None:
    with contextlib.chdir(tmp_path):
        assert codes_without_torch(*(command for command, _ in LIGHT)) == [code for _, code in LIGHT]


TRAINING = """
import sys
from mhsa_cli.__main__ import main
# By autograd, a whole encoder-decoder too; by hand; with the fused kernel.
ROADS = (["seq_len=5", "dtype=bfloat16"], ["task.name=copy", "encoder_layers=1"], ["seq_len=5"], ["seq_len=31"])
for command, *more in (*(["train", *road] for road in ROADS), ["sweep", "--seeds", "2", *ROADS[0]]):
    sys.argv = ["mhsa", command, *more, "d_model=12", "n_heads=3", "d_mlp=7", "norm=layernorm", "grad_clip=1"]
    sys.argv += ["epochs=2", "steps_per_epoch=4", "batch_size=6", "eval_sequences=9"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
    assert "torch" in sys.modules
    assert not {"torch._dynamo", "sympy"} & set(sys.modules), (command, more)
"""


def test_training_never_loads_the_compiler(tmp_path: Path) -> None:
    """torch.optim would, at more cost than a small training; torch.autograd.grad with `grad_outputs` the half of it."""
    done = subprocess.run([sys.executable, "-c", TRAINING], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs").is_dir() and len(list(tmp_path.glob("runs/*/*/run.json"))) == 2


LISTED = """
import sys
from mhsa_cli.__main__ import main
sys.argv = ["mhsa", "--help"]
try:
    main()
finally:
    assert "mhsa_cli.commands.train" not in sys.modules
"""


def test_the_list_of_commands_loads_none_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", LISTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
