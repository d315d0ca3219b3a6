"""The folder for runs, and the names of runs."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mhsa_cli.errors import StorageError, UsageError
from mhsa_cli.runs.disk import storage_error
from mhsa_cli.text import quoted, shortened

NEWEST = "newest"  # in place of a name: the run that was started last
SHOW, RM, NEW = "show", "rm", "new"  # `mhsa sweep show`, `mhsa runs rm` and `mhsa tasks new`
RESERVED = (NEWEST, SHOW, RM, NEW)  # words of the command line that stand where a name may stand
LONGEST = 100  # bytes; of the usual 255, the rest is for suffixes of files named after a run

_WINDOWS = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE | re.DOTALL)


def runs_root(given: Path | None = None) -> Path:
    """Return the folder for runs: `given`, else $MHSA_RUNS, else `runs` in the working directory."""
    return given if given is not None else Path(os.environ.get("MHSA_RUNS") or "runs")


def check_name(name: str) -> str:
    """Return `name` if it is a valid folder name on every system. Raises: UsageError."""
    problem = None
    if not name:
        problem = "it is empty"
    elif name == NEWEST:
        problem = "it stands for the newest run"
    elif name in RESERVED:
        problem = "it is a word of the command line"
    elif name[0] in "-.":
        problem = f"it starts with {name[0]!r}"
    elif bad := next((char for char in name if char in '/\\<>:"|?*' or ord(char) < 32 or ord(char) == 127), None):
        problem = f"it contains {bad!r}"
    elif name[0] == " " or name[-1] in " .":
        problem = "it starts or ends with a space, or ends with a dot"
    elif len(os.fsencode(name)) > LONGEST:
        problem = f"it is longer than {LONGEST} bytes"
    elif _WINDOWS.fullmatch(name):
        problem = "it is a device name on Windows"
    if problem:
        hint = "letters, digits, '-' and '_' are always fine: --name NAME"
        raise UsageError(f"`{shortened(name, LONGEST)}` cannot be the name of a run: {problem}", hint, "bad-name")
    return name


def prepare_root(root: Path) -> Path:
    """Create the folder for runs, but no parents: a missing one is likely a typo. Raises: StorageError."""
    try:
        root.mkdir(exist_ok=True)
    except FileExistsError:
        raise _not_a_folder(root) from None
    except FileNotFoundError as error:
        if root.parent.is_dir():  # as in /proc, where no folder can be created
            raise storage_error("create", root, error, "choose another: --runs DIR") from error
        raise _no_parent(root) from None
    except OSError as error:
        raise storage_error("create", root, error) from error
    return root


def find_root(root: Path) -> Path:
    """Return the folder for runs, or the one in which it would be created, creating nothing. Raises: StorageError."""
    if root.is_dir():
        return root
    if os.path.lexists(root):
        raise _not_a_folder(root)
    if not root.parent.is_dir():
        raise _no_parent(root)
    return root.parent


def _not_a_folder(root: Path) -> StorageError:
    message = ("cannot keep runs in ", root, ": it is not a folder")
    return StorageError(message, "choose another: --runs DIR", "no-folder")


def _no_parent(root: Path) -> StorageError:
    parts = ("cannot create ", root, ": the folder ", root.parent, " does not exist")
    return StorageError(parts, f"create it first: mkdir -p {quoted(root.parent)}", "no-folder")
