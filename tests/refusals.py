"""What an error of ours says as facts: the kind, and the file or folder that it is about."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mhsa_cli.config.load import parse
from mhsa_cli.config.problems import ConfigError, Problem
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


def faults(text: str | bytes, *overrides: str, name: str = "c.yaml") -> list[Problem]:
    """Read a config that must be refused, and give everything that is wrong with it."""
    with pytest.raises(ConfigError) as caught:
        parse(text.encode() if isinstance(text, str) else text, name, overrides)
    return list(caught.value.problems)


def codes(text: str | bytes, *overrides: str) -> list[str]:
    """Read a config that must be refused, and name what is wrong with it."""
    return [fault.code for fault in faults(text, *overrides)]
