"""Shared by the config tests: load YAML text, or return its error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mhsa_cli.config.load import parse
from mhsa_cli.config.problems import ConfigError
from mhsa_cli.config.schema import Config


def load(text: str, *overrides: str, name: str = "c.yaml") -> Config:
    return parse(text.encode(), name, overrides)


def complain(text: str | bytes, *overrides: str, name: str = "c.yaml") -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(ConfigError) as caught:
        parse(data, name, overrides)
    assert caught.value.exit_code == 2
    return str(caught.value)


@pytest.fixture(name="load")
def load_fixture() -> Callable[..., Config]:
    return load


@pytest.fixture(name="complain")
def complain_fixture() -> Callable[..., str]:
    return complain
