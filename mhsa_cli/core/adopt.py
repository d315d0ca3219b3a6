"""From FILE:Class to a block that can be trained. This is the one place that runs somebody's file for training."""

from __future__ import annotations

import importlib.util
from hashlib import sha256
from pathlib import Path

from torch import Tensor, nn

from mhsa_cli.config.own_block import file_problem, form_problem, split
from mhsa_cli.core.foreign import Foreign, ForeignBlock, Sizes
from mhsa_cli.errors import UsageError


class _Direct(ForeignBlock):
    """A class that is built with width and heads, and called with x alone."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x)[0]

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        y = self.module(x)
        return (y[0], y[1]) if isinstance(y, tuple) else (y, None)


def adopt(target: str) -> Foreign:
    """Load FILE:Class. Raises: UsageError if it is not there, or its file fails."""
    problem = form_problem(target) or file_problem(target)
    if problem is not None:
        raise UsageError(problem.message, problem.hint)
    file, name = split(target)
    path = Path(file)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    thing = getattr(module, name)

    def make(sizes: Sizes) -> ForeignBlock:
        return _Direct(thing(sizes.d_model, sizes.n_heads))

    return Foreign(target, path, sha256(path.read_bytes()).hexdigest(), make)
