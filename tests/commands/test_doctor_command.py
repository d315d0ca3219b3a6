"""`mhsa doctor` on this machine, and on whatever may be broken: the rest is examined all the same."""

from __future__ import annotations

import ast
import errno
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement
from packaging.version import Version

from mhsa_cli.config.recipes import recipes
from mhsa_cli.jobs import doctor
from mhsa_cli.jobs.doctor import imports, libraries, machine
from mhsa_cli.renderers.pictures.doctor import WAYS_OUT
from tests.commands.examined import good_imports
from tests.commands.shell import Said, environment, mhsa, mhsa_on_terminal

Known = dict[str, imports.Imported]
ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def found(said: Said) -> dict[str, Any]:
    """The checks of a document by id; each is told once, and each that is not ok has a way out."""
    checks = said.json["checks"]
    assert len({check["id"] for check in checks}) == len(checks)
    assert all((check["state"] == "ok") == (check["fault"] is None) == (check["way_out"] is None) for check in checks)
    assert said.json["ok"] == (said.code == 0)
    return {check["id"]: check for check in checks}


@pytest.fixture
def known(monkeypatch: pytest.MonkeyPatch) -> Known:
    """Libraries as if they had been imported: what is asked of them takes its time in the tests of imports."""
    done = good_imports()
    monkeypatch.setattr(imports, "import_all", lambda _: done)
    return done


def test_the_real_thing_where_almost_nothing_is_given(here: Path) -> None:
    """No home, no terminal, no UTF-8, closed streams: torch is that of this process, and nothing is left behind."""
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env["PYTHONPATH"] = str(ROOT)
    before = sorted(here.rglob("*"))
    command = f"{sys.executable} -m mhsa_cli doctor --json <&- 2>&-"
    done = subprocess.run(["sh", "-c", command], env=env, capture_output=True, check=False)
    said = Said(done.returncode, done.stdout.decode("ascii"), done.stderr.decode())
    assert (said.code, said.err) == (0, "")
    checks = found(said)
    assert checks["torch"]["facts"]["version"] == torch.__version__
    assert checks["kernels"]["facts"]["capability"] == torch.backends.cpu.get_cpu_capability()
    assert checks["devices"]["facts"]["devices"][0] == "cpu"
    assert checks["libraries"]["facts"]["numpy"] == sys.modules["numpy"].__version__
    assert checks["characters"]["fault"] == "plain-characters"
    assert checks["recipes"]["facts"]["count"] == len(recipes()) > 30
    assert sorted(here.rglob("*")) == before and not checks["runs-folder"]["facts"]["exists"]


# What a broken torch does when it is imported, and the fault that it is.
BROKEN = {
    "raise ModuleNotFoundError('no', name='torch')": "torch-missing",
    "raise ModuleNotFoundError('no', name='sympy')": "torch-failed",
    "raise OSError('libc10.so: cannot open\\x1b[31m shared object')": "torch-failed",
    "raise SystemExit(0)": "torch-failed",
    "import os; os._exit(3)": "torch-failed",
    "import os; os._exit(0)": "torch-failed",
    "import os; os.kill(os.getpid(), 11)": "torch-failed",
    "import time; time.sleep(60)": "torch-failed",
    "import os; print('{'); os.write(1, b'7\\n'); raise KeyError": "torch-failed",
    "import sys; sys.stdout = None; raise KeyError": "torch-failed",
    "__version__ = '2.9'": "torch-failed",
}


@pytest.mark.parametrize("code", BROKEN)
def test_a_broken_torch(code: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "shadow").mkdir()
    (here / "shadow/torch.py").write_text(code)
    (here / "shadow/after.py").write_text("__version__ = '5'")
    monkeypatch.syspath_prepend(here / "shadow")
    monkeypatch.setattr(libraries, "MODULES", ("torch", "after"))
    if "sleep" in code:
        monkeypatch.setattr(imports, "LIMIT", 0.5)
    said = mhsa("doctor", "--json")
    checks = found(said)
    broken = [check for check in checks.values() if check["state"] == "problem"]
    assert said.code == 2 and [check["fault"] for check in broken] == [BROKEN[code]]
    assert "torch" in said.err and "\x1b" not in said.out
    assert {"memory", "numpy", "writing", "characters"} <= set(checks)


def test_a_library_that_ends_python_does_not_hide_those_after_it(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, code in {
        "a": "",
        "b": "import os; os._exit(1)",
        "c": "raise ValueError",
        "d": "__version__ = '4'; print('{\"imported\": 3}\\n{', end='')",
        "e": "class V:\n    def __str__(self): raise ValueError\n__version__ = V()",
        "f": "import os; os.close(1)",
    }.items():
        (here / f"{name}.py").write_text(code)
    monkeypatch.syspath_prepend(here)
    done = imports.import_all(("a", "b", "missing_c", "c", "d", "e", "f"))
    assert [name for name, one in done.items() if one.error is None] == ["a", "d", "f"] and done["d"].version == "4"
    assert [name for name, one in done.items() if one.missing] == ["missing_c"]
    assert "exit code 1" in str(done["b"].error) and "ValueError" in str(done["c"].error)


def test_a_python_that_cannot_be_started(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in (str(here / "nothing"), "", None):
        monkeypatch.setattr(sys, "executable", wrong)
        said = mhsa("doctor", "--json")
        assert said.code == 2 and found(said)["torch"]["fault"] == "torch-failed"


WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"capability": "DEFAULT"}, "kernels", "no-vectors"),
    ({"wrong": {"cpu": "off by 3"}}, "devices", "attention-wrong"),
    ({"driver": True}, "devices", "gpu-unused"),
    ({"driver": True, "cuda_build": "12.4"}, "devices", "gpu-hidden"),
]


@pytest.mark.parametrize(("changes", "id", "fault"), WRONG)
def test_what_torch_says_of_itself(
    changes: dict[str, Any], id: str, fault: str, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert found(mhsa("doctor", "--json"))[id]["state"] == "ok" or "driver" in changes
    monkeypatch.setattr(imports, "DRIVER", sys.executable if "driver" in changes else "/nothing")
    known["torch"] = replace(known["torch"], facts={**known["torch"].facts, **changes})
    assert found(mhsa("doctor", "--json"))[id]["fault"] == fault


def test_the_environment_is_shown_as_it_was_given(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OMP_NUM_THREADS", "ATEN_CPU_CAPABILITY", "NO_COLOR", "MY_TOKEN"):
        monkeypatch.setenv(name, f"{name}-value")
    monkeypatch.delenv("MKL_CBWR", raising=False)
    said = mhsa("doctor", "-v")
    assert said.code == 0 and all(f"{name}={name}-value" in said.out for name in ("OMP_NUM_THREADS", "NO_COLOR"))
    assert "TOKEN" not in said.out and "MKL_CBWR" not in said.out
    assert found(mhsa("doctor", "--json"))["kernels"]["fault"] == "kernels-chosen"


def test_every_range_and_every_extra_of_the_project_is_known() -> None:
    extras = {name: PROJECT["optional-dependencies"][name] for name in libraries.EXTRAS}
    assert set(PROJECT["optional-dependencies"]) - set(extras) == {"dev", "bench", "browser", "docs"}
    lines = {None: PROJECT["dependencies"], **extras}
    for extra, wanted in ((extra, Requirement(line)) for extra, some in lines.items() for line in some):
        for form in (f"{wanted}", f"{wanted.name} ({wanted.specifier})"):  # as newer and older tools write it
            match = libraries._WANTED.match(form + (f"; extra == '{extra}'" if extra else ""))
            assert match and match["name"] == wanted.name and match["extra"] == extra
            assert f">={match['least']}" == str(wanted.specifier)
    assert sorted(libraries.LIBRARIES) == sorted(Requirement(line).name for line in PROJECT["dependencies"])


RELEASES = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))


@given(RELEASES, RELEASES, st.sampled_from(["", "+cpu", ".post2"]))
def test_versions_are_compared_as_pip_does(left: str, right: str, end: str) -> None:
    assert libraries.is_older(left + end, right) == (Version(left + end) < Version(right))


def test_libraries_that_are_old_missing_or_broken(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["torch>=2.6", "numpy>=1.26", "pyyaml>=6.0", "psutil>=5.9", "scipy", 'pillow>=10.1; extra == "png"']
    lines += ['textual>=8; extra == "tui"', 'ray>=2; extra == "ray"']
    have = {"torch": "2.6.0+cpu", "numpy": "1.9.9", "psutil": "5.9", "pillow": "10.0", "textual": "8.0", "scipy": "1"}

    def version(name: str) -> str:
        if name not in have:
            raise PackageNotFoundError(name)
        return have[name]

    monkeypatch.setattr(libraries, "version", version)
    monkeypatch.setattr(libraries, "requires", lambda _: lines)
    known["yaml"] = imports.Imported(error="ModuleNotFoundError: no", missing=True)
    known["psutil"] = imports.Imported(error="ImportError: no")
    said = mhsa("doctor", "--json")
    checks = found(said)
    wrong = {id: c["fault"] for id, c in checks.items() if c["section"] == "libraries" and c["fault"]}
    assert wrong == {
        "numpy": "library-old",
        "pyyaml": "library-missing",
        "psutil": "library-failed",
        "extra-png": "library-old",
    }
    assert said.code == 2 and "pyyaml, psutil" in said.err
    assert checks["extras"]["facts"] == {
        "installed": ["png", "tui"],
        "missing": ["plots", "notebook", "tensorboard", "ray"],
    }
    monkeypatch.setattr(libraries, "requires", lambda name: version("nothing"))
    monkeypatch.setattr(libraries, "recipes", dict)
    checks = found(mhsa("doctor", "--json"))
    assert (checks["metadata"]["fault"], checks["recipes"]["fault"]) == ("no-metadata", "no-recipes")


def unlockable(*_: object) -> None:
    raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))


def unwritable(*_: object) -> int:
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))


def test_what_the_disk_refuses(known: Known, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "file").write_text("")
    for place in ("file", "missing/runs", "/proc/runs", "file/runs"):
        said = mhsa("doctor", "--json", "--runs", place)
        assert said.code == 5 and "refused" in {c["fault"] for c in found(said).values()}
    usage = shutil.disk_usage(here)
    for free, fault, code in ((0, "no-space", 5), (2**29, "low-space", 0)):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(shutil, "disk_usage", lambda _, free=free: usage._replace(free=free))
            said = mhsa("doctor", "--json")
            assert said.code == code and found(said)["space"]["fault"] == fault
    for broken in (unlockable, lambda *_: None):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fcntl, "flock", broken)
            said = mhsa("doctor", "--json")
            assert said.code == 5 and found(said)["writing"]["fault"] == "no-locks"
    for name in ("mkdir", "replace"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(os, name, unwritable)
            said = mhsa("doctor", "--json")
            assert said.code == 5 and found(said)["writing"]["fault"] == "refused"
    assert sorted(path.name for path in here.iterdir()) == ["file", "tiny.yaml"]


def test_runs_and_sweeps_are_counted(known: Known, tiny: Path) -> None:
    shutil.copytree(tiny, "runs/s/n_heads=2_seed=1")
    Path("runs/no_run").mkdir()
    before = sorted(Path("runs").rglob("*"))
    checks = found(mhsa("doctor", "--json"))
    assert checks["runs"]["facts"] == {"runs": 1, "sweeps": 1} and checks["runs-folder"]["facts"]["exists"]
    assert sorted(Path("runs").rglob("*")) == before


def test_a_deleted_folder(known: Known, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    said = mhsa("doctor", "--json")
    assert said.code == 5 and found(said)["torch"]["state"] == "ok"


def test_a_machine_that_is_small_and_one_that_tells_nothing(
    known: Known, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "CGROUP", str(here))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2})
    for text, fault in (("150000 100000", "quota"), ("max 100000", None), ("300000 100000", None), ("", None)):
        (here / "cpu.max").write_text(text)
        assert found(mhsa("doctor", "--json"))["cores"]["fault"] == fault
    (here / "memory").mkdir()
    monkeypatch.setattr("mhsa_cli.jobs.sweep.capacity.free_memory", lambda: 2**29)
    assert found(mhsa("doctor", "--json"))["memory"]["fault"] == "low-memory"

    for error in (RuntimeError, SystemExit):

        def broken(error: type[BaseException] = error) -> Any:
            raise error("no /proc")

        monkeypatch.setattr(psutil, "virtual_memory", broken)
        said = mhsa("doctor", "--json")
        checks = found(said)
        unknown = checks["environment"]
        assert said.code == 0 and unknown["fault"] == "unknown" and "no /proc" in unknown["value"]
        assert {"cores", "torch", "runs"} <= set(checks)


@pytest.mark.parametrize("home", ["home", "link"])
def test_the_home_folder_has_no_name(home: str, known: Known, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (here / "home/work").mkdir(parents=True)
    (here / "link").symlink_to(here / "home")
    monkeypatch.setenv("HOME", str(here / home))
    monkeypatch.setattr(sys, "executable", str(here / "home/.venv/bin/python"))
    monkeypatch.chdir(here / "home/work")
    known["numpy"] = imports.Imported(error=f"OSError: {here}/home/lib.so: {here}/home2 and {here / 'home'}: not found")
    for command in (["doctor", "-v"], ["doctor", "--json"]):
        said = mhsa(*command)
        assert re.findall(rf"{here}/home\b", said.out + said.err) == []
        assert "~/.venv/bin/python" in said.out and "~/work/runs" in said.out and f"{here}/home2" in said.out


def test_all_is_well_in_24_rows(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(imports, "DRIVER", "/nothing")
    code, rows = mhsa_on_terminal("doctor", COLORTERM="truecolor")
    assert code == 0 and max(map(len, rows)) <= 80
    begun = [row for row in rows if not row.startswith(" ")]  # a row is as long as the names of this machine
    assert len(begun) < 23
    short = found(mhsa("doctor", "--json"))
    code, rows = mhsa_on_terminal("doctor", "-v", COLORTERM="truecolor")
    assert [id for id in short if any(row.startswith(id) for row in rows)] == list(short)


@pytest.mark.parametrize(
    ("environ", "fault"),
    [({"TERM": "xterm"}, "few-colours"), ({"TERM": "dumb"}, "no-colours"), ({"NO_COLOR": "1"}, None)],
)
def test_colours_that_are_missing_or_not_wanted(
    environ: dict[str, str], fault: str | None, known: Known, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert found(mhsa("doctor", "--json", terminal=True))["colours"]["fault"] == fault


def test_a_small_terminal_is_noted(known: Known, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    assert found(mhsa("doctor", "--json", terminal=True))["terminal"]["fault"] == "narrow"
    assert found(mhsa("doctor", "--json"))["terminal"]["fault"] is None  # a pipe has no size


def texts() -> Iterator[str]:
    for file in Path(doctor.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_no_way_out_is_left_over() -> None:
    assert set(WAYS_OUT) <= set(texts())


def test_torch_is_not_loaded_by_the_command_itself(here: Path) -> None:
    code = "import sys; from mhsa_cli.__main__ import main; from mhsa_cli.jobs.doctor import libraries as l\n"
    code += "l.MODULES = (); sys.argv = ['mhsa', 'doctor', '--json']\ntry:\n    main()\nexcept SystemExit: pass\n"
    code += "assert not {'torch', 'numpy', 'scipy'} & set(sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(PYTHONPATH=str(ROOT)), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0 and json.loads(done.stdout), done.stderr
