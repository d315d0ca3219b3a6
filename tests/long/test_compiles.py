"""torch.compile and torch.export of a model; the compiler takes seconds to load."""

from __future__ import annotations

import pytest
import torch

from mhsa_cli.config.schema import SCHEMES
from mhsa_cli.core.model import attention
from tests.core.test_ranges import B, T, V, model


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_model_compiles_whole_and_exports(scheme: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The checks of ids and positions break no graph, nor do long rows; an uncompiled model still makes them."""
    monkeypatch.setattr(attention, "LONG", T)
    made = model(scheme=scheme).eval()
    ids = torch.arange(B * T).view(B, T) % V
    wanted = made(ids)
    torch._dynamo.reset()
    compiled = torch.compile(made, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(ids), wanted)
    torch.testing.assert_close(compiled(ids.flip(0)), wanted.flip(0))
    torch.testing.assert_close(torch.export.export(made, (ids,)).module()(ids), wanted)
    with pytest.raises(ValueError):
        made(ids + V)
