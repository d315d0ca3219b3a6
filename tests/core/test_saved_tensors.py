"""The tensors of a checkpoint without torch say what torch says of them, of right ones and of wrong ones."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load, save
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.checkpoint import pack, restore, unpack, weights_sha256
from mhsa_cli.core.training.early_stop import Waiting
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.saved_tensors import check_fit, read_tensors
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import RunError
from mhsa_cli.records.formats import MOMENTS, WEIGHTS
from mhsa_cli.runs.weights_digest import digest_of

SETTINGS = ["vocab_size=7", "seq_len=5", "d_model=6", "n_heads=3", "d_mlp=4", "norm=layernorm", "tie_embeddings=true"]
CONFIG = load_config(None, SETTINGS)
TASK = build_task(CONFIG.task)
NAME = "blocks.0.mlp.up.weight"


def checkpoint() -> tuple[Stack, dict[str, bytes]]:
    stack = Stack([build_model(CONFIG, TASK)], [3], CONFIG.train, torch.device("cpu"))
    return stack, pack(stack, 0, 0.5, CONFIG.to_dict(), Waiting())


def changed(file: str, change: Callable[[dict[str, Tensor]], object]) -> dict[str, bytes]:
    """A checkpoint one of whose files has other tensors."""
    _, files = checkpoint()
    tensors = load(files[file])
    change(tensors)
    return {**files, file: save(tensors)}


def fits(files: dict[str, bytes]) -> bool:
    return check_fit(CONFIG, TASK.vocab_size, TASK.seq_len, files)


def test_a_checkpoint_of_the_config_fits_and_has_the_models_digest() -> None:
    _, files = checkpoint()
    assert fits(files)
    assert digest_of(files[WEIGHTS]) == weights_sha256(build_model(CONFIG, TASK))
    for name in (WEIGHTS, MOMENTS):
        found, tensors = read_tensors(files, name), unpack(files, name)
        assert {key: saved.shape for key, saved in found.items()} == {key: tuple(t.shape) for key, t in tensors.items()}


@pytest.mark.parametrize(
    ("file", "change"),
    [
        (WEIGHTS, lambda t: t.pop(NAME)),
        (WEIGHTS, lambda t: t.update(more=torch.zeros(2))),
        (WEIGHTS, lambda t: t.update({NAME: t[NAME].T.contiguous()})),
        (WEIGHTS, lambda t: t.update({NAME: t[NAME].double()})),
        (WEIGHTS, lambda t: t.update({NAME: t[NAME].half()})),
        (MOMENTS, lambda t: t.pop(f"exp_avg.{NAME}")),
        (MOMENTS, lambda t: t.update({f"exp_avg_sq.{NAME}": torch.zeros(3)})),
    ],
    ids=["missing", "unknown", "transposed", "float64", "float16", "no first moment", "second moment"],
)
def test_both_roads_refuse_the_same_in_the_same_words(file: str, change: Callable[[dict[str, Tensor]], object]) -> None:
    files, told = changed(file, change), []
    for road in (fits, lambda files: restore(checkpoint()[0], 0, files)):
        with pytest.raises(RunError) as error:
            road(files)
        told.append(error.value.message)
    assert told[0] == told[1] and file in told[0]


@pytest.mark.parametrize("cut", [0, 7, 100, -1])
def test_a_torn_file_is_refused(cut: int) -> None:
    _, files = checkpoint()
    for name in (WEIGHTS, MOMENTS):
        with pytest.raises(RunError, match=name):
            fits({**files, name: files[name][:cut]})


@pytest.mark.parametrize("file", [WEIGHTS, MOMENTS])
@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_are_not_finite_are_found(number: float, file: str) -> None:
    key = NAME if file == WEIGHTS else f"exp_avg_sq.{NAME}"
    assert not fits(changed(file, lambda t: t[key].view(-1)[-1].fill_(number)))


def test_finite_numbers_whose_sum_is_not_are_finite() -> None:
    for dtype in (torch.float32, torch.float64):
        tensors = {"a": torch.full((2, 3), torch.finfo(dtype).max, dtype=dtype)}
        assert read_tensors({WEIGHTS: save(tensors)}, WEIGHTS)["a"].is_finite()
