"""What torch compiles and exports of a model: its compiler alone takes seconds to load."""

from __future__ import annotations

import pytest
import torch

from mhsa_cli.config.schema import SCHEMES
from tests.core.test_ranges import B, T, V, model


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_model_compiles_whole_and_exports(scheme: str) -> None:
    """Looking at ids and positions leaves no gap in the graph; what is not compiled is looked at as before."""
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
