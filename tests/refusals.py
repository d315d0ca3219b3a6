"""What an error of ours says as facts: the kind, and the file or folder that it is about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mhsa_cli.errors import MhsaError


def refusal(act: Callable[[], object]) -> MhsaError:
    """Do what must be refused, and give the refusal."""
    with pytest.raises(MhsaError) as caught:
        act()
    return caught.value


def fact(act: Callable[[], object]) -> tuple[str, str]:
    """Do what must be refused, and give the refusal's code and the name of what it is about."""
    error = refusal(act)
    return error.code, "" if error.path is None else error.path.name
