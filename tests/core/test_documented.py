"""The public modules say what each constructor parameter is, and what every public method takes and returns."""

from __future__ import annotations

import inspect
import re

import pytest
from torch import nn

from mhsa_cli.core.model import attention, cross_attention, layers, positions, transformer

MODULES = [
    found
    for module in (attention, cross_attention, layers, positions, transformer)
    for found in vars(module).values()
    if inspect.isclass(found) and issubclass(found, nn.Module) and found.__module__ == module.__name__
]


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_constructor_parameter_is_named(module: type[nn.Module]) -> None:
    documented = f"{module.__doc__} {module.__init__.__doc__ if '__init__' in vars(module) else ''}"
    own = inspect.signature(module).parameters if "__init__" in vars(module) else ()
    assert set(own) <= set(re.findall(r"\w+", documented))


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_every_public_method_is_documented(module: type[nn.Module]) -> None:
    ours = [base for base in module.__mro__ if base.__module__.startswith("mhsa_cli")]
    methods = [name for name, value in vars(module).items() if inspect.isfunction(value) and not name.startswith("_")]
    silent = [name for name in methods if not any(getattr(vars(base).get(name), "__doc__", "") for base in ours)]
    assert silent == []


def test_the_modules_are_found() -> None:
    assert len(MODULES) >= 14 and attention.MultiHeadSelfAttention in MODULES
