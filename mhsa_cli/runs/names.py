"""Where runs live and what they may be called."""

from __future__ import annotations

import os
import re
from pathlib import Path

from mhsa_cli.errors import StorageError, UsageError
from mhsa_cli.runs.disk import storage_error
from mhsa_cli.text import quoted, shortened

NEWEST = "newest"  # in place of a name: the run that was started last
LONGEST = 100  # bytes; leaves room for the endings of what is named after a run within the usual 255

_WINDOWS = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE | re.DOTALL)


def runs_root(given: Path | None = None) -> Path:
    """Find the folder that holds the runs: `given`, else the environment's MHSA_RUNS, else `runs` right here."""
    return given if given is not None else Path(os.environ.get("MHSA_RUNS") or "runs")


def check_name(name: str) -> str:
    """Return `name` if every system can have a folder of that name. Raises: UsageError saying what is wrong."""
    problem = None
    if not name:
        problem = "it is empty"
    elif name == NEWEST:
        problem = "it means the newest run, whichever that is"
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
        way_out = "letters, digits, '-' and '_' are always fine: --name NAME"
        raise UsageError(f"cannot call a run '{shortened(name, LONGEST)}': {problem}", way_out, "bad-name")
    return name


def prepare_root(root: Path) -> Path:
    """Create the folder for runs if it is missing, but not the folders above it: those are more likely a typo.

    Raises: StorageError if it cannot be had.
    """
    try:
        root.mkdir(exist_ok=True)
    except FileExistsError:
        message = ("cannot keep runs in ", root, ": it is not a folder")
        raise StorageError(message, "choose another: --runs DIR", "no-folder") from None
    except FileNotFoundError as error:
        if root.parent.is_dir():  # as in /proc, where nothing can be made
            raise storage_error("create", root, error, "choose another: --runs DIR") from error
        said = ("cannot create ", root, ": the folder ", root.parent, " does not exist")
        hint = f"create it first: mkdir -p {quoted(root.parent)}"
        raise StorageError(said, hint, "no-folder") from None
    except OSError as error:
        raise storage_error("create", root, error) from error
    return root
