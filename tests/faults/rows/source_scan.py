"""A look through our own source for calls that could run what stands in data."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.faults.client import ROOT

MODULES = {"pickle", "cPickle", "_pickle", "shelve", "marshal", "dill", "cloudpickle", "joblib", "code", "runpy", "imp"}
CALLS = {
    "eval", "exec", "compile", "__import__", "execfile", "input",
    "torch.load", "torch.jit.load", "torch.hub.load", "numpy.load", "np.load", "numpy.loadtxt",
    "yaml.load", "yaml.load_all", "yaml.full_load", "yaml.unsafe_load", "yaml.unsafe_load_all",
    "os.system", "os.popen", "os.execv", "os.execvp", "os.spawnl", "os.spawnv", "subprocess.getoutput",
    "subprocess.getstatusoutput", "importlib.util.spec_from_file_location", "types.FunctionType", "ctypes.CDLL",
}  # fmt: skip
LOADERS = {"UnsafeLoader", "FullLoader", "Loader", "CLoader", "CUnsafeLoader"}

# A file and what it does -> why that is all right.
ALLOWED = {
    ("mhsa_cli/core/bench/timing.py", "ctypes.CDLL"): "the C library that is loaded already, by no name of a file",
    ("mhsa_cli/jobs/grade/processes.py", "ctypes.CDLL"): "likewise",
    ("mhsa_cli/check/source/execute.py", "compile"): "a file that the user names to be graded or trained is code",
    ("mhsa_cli/check/source/execute.py", "exec"): "the same; only what it needs is run, and never from a run folder",
    ("mhsa_cli/check/source/read_file.py", "compile"): "asks whether a text is Python; nothing is run",
    ("mhsa_cli/jobs/grade/child.py", "importlib.import_module of a name made at run time"): "a module of ours by name",
    ("mhsa_cli/jobs/grade/judge.py", "importlib.import_module of a name made at run time"): "a module of ours by name",
    (
        "mhsa_cli/core/export/__init__.py",
        "importlib.import_module of a name made at run time",
    ): "a format of ours by name",
    ("mhsa_cli/core/imports.py", "importlib.import_module of a name made at run time"): "our libraries by name",
    ("mhsa_cli/commands/app.py", "importlib.import_module of a name made at run time"): "a command of ours by name",
    ("mhsa_cli/__init__.py", "import_module of a name made at run time"): "a module of ours by name",
}


def dangers() -> list[str]:
    """Name every such call, with its file and line."""
    found = []
    for file in sorted((ROOT / "mhsa_cli").rglob("*.py")):
        found += [f"{file.relative_to(ROOT)}:{line}: {what}" for line, what in scan(file)]
    return found


def scan(file: Path) -> list[tuple[int, str]]:
    """Look through one file."""
    found: list[tuple[int, str]] = []
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            found += [(node.lineno, f"import {name}") for name in names if name.split(".")[0] in MODULES]
            if isinstance(node, ast.ImportFrom):
                whole = [f"{node.module}.{alias.name}" for alias in node.names]
                found += [(node.lineno, f"import {name}") for name in whole if name in CALLS]
        elif isinstance(node, ast.Attribute) and ast.unparse(node) in {f"yaml.{name}" for name in LOADERS}:
            found.append((node.lineno, ast.unparse(node)))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS:
                found.append((node.lineno, name))
            given = {word.arg: word.value for word in node.keywords}
            if "shell" in given or "allow_pickle" in given:
                value = given.get("shell", given.get("allow_pickle"))
                if not (isinstance(value, ast.Constant) and value.value is False):
                    found.append((node.lineno, f"{name}(shell or allow_pickle)"))
            named = name.endswith("import_module") and not (node.args and isinstance(node.args[0], ast.Constant))
            if named:
                found.append((node.lineno, f"{name} of a name made at run time"))
    where = str(file.relative_to(ROOT)) if file.is_relative_to(ROOT) else file.name
    return [(line, what) for line, what in found if (where, what) not in ALLOWED]
