"""The digest of a checkpoint's weights without torch equals that of the model, for every dtype."""

from __future__ import annotations

import pytest
import torch
from safetensors.torch import save

from mhsa_cli.core.training.checkpoint import digest
from mhsa_cli.records.formats import DTYPES
from mhsa_cli.runs.weights_digest import digest_of


@pytest.mark.parametrize("dtype", DTYPES.values())
def test_both_roads_to_the_digest_of_weights_agree(dtype: str) -> None:
    generator = torch.Generator().manual_seed(3)
    shapes = {"b.weight": (3, 5), "a.bias": (7,), "a.weight": (2, 3, 4), "scalar": ()}
    tensors = {n: torch.randn(s, generator=generator).to(getattr(torch, dtype)) for n, s in shapes.items()}
    assert digest_of(save(tensors, {"note": "x"})) == digest(tensors)
    changed = {**tensors, "a.bias": tensors["a.bias"] + 1}
    assert digest_of(save(changed)) != digest(tensors)
