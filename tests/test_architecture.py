"""The walls of the house: who may import whom, what a command may load, and how long a file may be."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mhsa_cli"
FILES = sorted(PACKAGE.rglob("*.py"))

# A library may be imported only in these rooms; the rest of the house must not know it exists.
LIBRARIES = {
    "torch": {"core"},
    "safetensors": {"core"},
    "scipy": {"core"},
    "PIL": {"renderers"},
    "rich": {"renderers", "commands"},
    "typer": {"commands"},
    "yaml": {"config"},
    "pydantic": {"config"},
    "pydantic_core": {"config"},
}
# What a room may import of the house itself. records and errors stand below all.
ROOMS = {
    "core": {"core", "config", "records", "errors"},
    "renderers": {"renderers", "records", "errors"},
    "runs": {"runs", "records", "errors"},
    "config": {"config", "errors"},
    "commands": {"commands", "core", "renderers", "runs", "config", "records", "errors"},
    "records": {"records"},
    "errors": set(),
    "__main__": {"commands", "errors"},
    "__init__": set(),
}


def room_of(file: Path) -> str:
    first = file.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def imports(file: Path) -> set[str]:
    """List every module a file imports anywhere in it, those for type checking alone left out."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    typing_only = {
        node
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
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
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_rooms_keep_to_their_libraries_and_neighbours(file: Path) -> None:
    room = room_of(file)
    for name in imports(file):
        top, *rest = name.split(".")
        if top in LIBRARIES:
            assert room in LIBRARIES[top], f"{top} may not be imported in {room}"
        if top == "mhsa_cli" and rest and rest[0] != "__version__":
            assert rest[0] in ROOMS[room], f"{room} may not import {name}"
        assert top != "click", "typer brings its own click; another one may not be there"


@pytest.mark.parametrize("package", sorted(PACKAGE.rglob("__init__.py")), ids=lambda f: str(f.parent.relative_to(ROOT)))
def test_no_name_of_a_package_hides_a_module_of_it(package: Path) -> None:
    """`from package import name` would give the module or the other thing, as the order of imports has it."""
    whole = ".".join(package.parent.relative_to(ROOT).parts)
    beside = package.parent.iterdir()
    modules = {file.stem for file in beside if file.suffix == ".py" or (file / "__init__.py").exists()}
    for node in ast.walk(ast.parse(package.read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            named = {node.name}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            named = {node.id}
        elif isinstance(node, ast.Import | ast.ImportFrom) and getattr(node, "module", "") != whole:
            named = {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        else:
            continue
        assert not named & modules, f"line {node.lineno}"


def test_one_file_alone_knows_ray() -> None:
    assert [str(file.relative_to(PACKAGE)) for file in FILES if {n.split(".")[0] for n in imports(file)} & {"ray"}] == [
        "commands/ray_engine.py"
    ]


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_commands_import_torch_only_inside_their_functions(file: Path) -> None:
    if room_of(file) not in ("commands", "__main__"):
        return
    top = ast.parse(file.read_text(encoding="utf-8")).body
    for node in top:
        if isinstance(node, ast.ImportFrom):
            assert not (node.module or "").startswith("mhsa_cli.core"), f"line {node.lineno}"


ALL_FILES = [*FILES, *sorted((ROOT / "tests").rglob("*.py"))]


@pytest.mark.parametrize("file", ALL_FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_no_file_is_longer_than_300_lines(file: Path) -> None:
    assert len(file.read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_no_code_is_run_from_data(file: Path) -> None:
    """No pickle in any guise, no YAML object construction, no eval; what is to be graded runs from one file alone."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    calls = {ast.unparse(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    graded = {"exec"} if file == PACKAGE / "core" / "check" / "running.py" else set()
    assert not (calls - graded) & {"torch.load", "eval", "exec", "yaml.load", "yaml.unsafe_load", "__import__"}
    assert not {name.split(".")[0] for name in imports(file)} & {"pickle", "shelve", "marshal", "dill"}


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(ROOT)))
def test_public_things_say_what_they_do_in_at_most_twelve_lines(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    assert file.read_text(encoding="utf-8") == "" or ast.get_docstring(tree), "a module says what it is for"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            text = ast.get_docstring(node)
            assert text, f"{node.name} has no docstring"
            assert len(text.splitlines()) <= 12, f"{node.name}: the docstring is too long"


def loaded(*arguments: str) -> tuple[int, set[str]]:
    """Run mhsa in a fresh process; returns its exit code and the top modules it had loaded at the end."""
    code = (
        "import atexit, json, pathlib, sys\n"
        "out = pathlib.Path(sys.argv.pop(1))\n"
        "atexit.register(lambda: out.write_text(json.dumps(sorted(sys.modules))))\n"
        "from mhsa_cli.__main__ import main\n"
        "main()\n"
    )
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "modules.json"
        command = [sys.executable, "-c", code, str(out), *arguments]
        done = subprocess.run(command, cwd=folder, capture_output=True, check=False)
        return done.returncode, set(json.loads(out.read_text()))


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--help"], 0),
        (["train", "--help"], 0),
        (["train", "--config", "missing.yaml"], 2),
        (["train", "model.n_heads=5"], 2),
        (["sweep", "n_heads=1,1"], 2),
        (["sweep", "n_heads=1,3"], 2),
        (["sweep", "--seeds", "9000000"], 2),
        (["sweep", "--resume", "missing"], 4),
        (["config", "show"], 0),
        (["check", "missing.py:A"], 2),
        (["runs"], 0),
        (["inspect-heads"], 4),
    ],
)
def test_what_needs_no_torch_does_not_load_it(arguments: list[str], code: int) -> None:
    found, modules = loaded(*arguments)
    assert found == code
    assert "torch" not in modules and "numpy" not in modules
    assert "mhsa_cli.commands.app" in modules


TRAINING = """
import sys
from mhsa_cli.__main__ import main
for command, *more in (["train"], ["sweep", "--seeds", "2"]):
    sys.argv = ["mhsa", command, *more, "seq_len=5", "d_model=12", "n_heads=3", "d_mlp=7", "norm=layernorm"]
    sys.argv += ["dropout=0.1", "grad_clip=1", "epochs=2", "steps_per_epoch=4", "batch_size=6", "eval_sequences=9"]
    try:
        main()
    except SystemExit as end:
        assert not end.code, command
    assert "torch" in sys.modules
    assert "torch._dynamo" not in sys.modules, command
"""


def test_training_never_loads_the_compiler(tmp_path: Path) -> None:
    """torch.optim would, at more cost than a small training."""
    done = subprocess.run([sys.executable, "-c", TRAINING], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "runs").is_dir() and len(list(tmp_path.glob("runs/*/*/run.json"))) == 2
