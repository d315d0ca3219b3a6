"""Calls of the user's own code, whose errors name its line."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from torch import Tensor

from mhsa_cli.config.own_file import split
from mhsa_cli.errors import UsageError
from mhsa_cli.text import escape


def call_own(name: str, what: str, call: Callable[[], Any], code: str) -> Any:
    """Call code of the file in FILE.py:NAME. Raises: UsageError with the line that raised, and `code`."""
    try:
        return call()
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        path = split(name)[0]
        frames = traceback.extract_tb(error.__traceback__)
        lines = [at.lineno for at in frames if Path(at.filename).name == Path(path).name]
        where = f", line {lines[-1]}" if lines else ""
        message = f"{path}{where}: {what} raised {type(error).__name__}: {escape(str(error))}"
        raise UsageError(message, None, code) from error


def describe(found: Any) -> str:
    """Describe what was returned: a tensor by its dtype and shape."""
    if isinstance(found, Tensor):
        return f"a tensor {tuple(found.shape)} of {str(found.dtype).removeprefix('torch.')}"
    return "None" if found is None else f"a {type(found).__name__}"
