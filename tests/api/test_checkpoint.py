"""Checkpoints of any module and optimizer: the same bits after as before, or nothing changes."""

from __future__ import annotations

import copy
import io
import os
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.optim import SGD, Adam, AdamW, Optimizer, RMSprop

import mhsa_cli as mhsa
from mhsa_cli.errors import DamageError, NewerFormatError, RunError, StorageError, UsageError
from mhsa_cli.nn import ModelConfig, TransformerLM

D_IN, D_OUT, ROWS = 5, 3, 7


class Mixed(nn.Module):
    """Tied weights, buffers, a number beside the tensors, an empty tensor, and layers in bfloat16."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(D_IN, 4), nn.Linear(D_IN, 4)
        self.down.weight = self.up.weight
        self.norm, self.out = nn.BatchNorm1d(4), nn.Linear(4, D_OUT, bias=False, dtype=torch.bfloat16)
        self.register_buffer("none", torch.empty(0, 2, dtype=torch.int32))
        self.calls: list[Any] = []

    def forward(self, x: Tensor) -> Tensor:
        self.calls.append((len(self.calls), float("inf"), {"rows": len(x), 3: None}))
        return self.out(self.norm(self.up(x) + self.down(x).t().contiguous().t()).bfloat16()).float()

    def get_extra_state(self) -> Any:
        return self.calls

    def set_extra_state(self, state: Any) -> None:
        self.calls = state


class Wide(Optimizer):
    """A student's SGD with momentum in float32 whatever the parameters are, a list and a number in its state."""

    def __init__(self, params: Any, lr: float = 0.1) -> None:
        super().__init__(params, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                state.setdefault("mean", torch.zeros_like(p, dtype=torch.float32)).lerp_(p.grad.float(), 0.3)
                state.setdefault("norms", []).append(p.grad.float().norm())
                state["t"] = state.get("t", 0) + 1
                p -= (group["lr"] / state["t"] * state["mean"]).to(p.dtype)


def language_model() -> nn.Module:
    config = ModelConfig(d_model=12, n_heads=3, d_mlp=7, residual=True, norm="layernorm", tie_embeddings=True)
    return TransformerLM(config, vocab_size=D_IN, max_seq_len=ROWS)


def halves(module: nn.Module) -> list[dict[str, Any]]:
    own = list(module.parameters())
    return [{"params": own[:2], "lr": 0.02, "betas": (0.8, 0.95)}, {"params": own[2:], "weight_decay": 0.3}]


OPTIMIZERS: dict[str, Callable[[nn.Module], Optimizer]] = {
    "adamw": lambda m: AdamW(m.parameters(), lr=0.01),
    "groups": lambda m: Adam(halves(m), lr=0.01, amsgrad=True),
    "capturable": lambda m: Adam(m.parameters(), lr=torch.tensor(0.01), foreach=False),
    "sgd": lambda m: SGD(m.parameters(), lr=0.01, momentum=0.9, nesterov=True),
    "plain": lambda m: SGD(m.parameters(), lr=0.01),
    "rmsprop": lambda m: RMSprop(m.parameters(), lr=0.01, centered=True),
    "wide": lambda m: Wide(m.parameters()),
}
MODULES: dict[str, Callable[[], nn.Module]] = {"mixed": Mixed, "lm": language_model}


def train(module: nn.Module, optimizer: Optimizer, first: int, steps: int) -> None:
    for step in range(first, first + steps):
        draw = torch.Generator().manual_seed(step)
        if isinstance(module, TransformerLM):
            loss = module(torch.randint(D_IN, (2, ROWS), generator=draw)).square().mean()
        else:
            loss = module(torch.randn(ROWS, D_IN, generator=draw)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def made(
    module: str = "mixed", optimizer: str = "adamw", *, steps: int = 3, seed: int = 1
) -> tuple[nn.Module, Optimizer]:
    torch.manual_seed(seed)
    own = MODULES[module]()
    both = own, OPTIMIZERS[optimizer](own)
    train(*both, 0, steps)
    return both


def same(one: Any, other: Any) -> bool:
    """Compare two states: kinds, dtypes and bits."""
    if isinstance(one, Tensor):
        return isinstance(other, Tensor) and one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return isinstance(other, dict) and list(one) == list(other) and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        return type(one) is type(other) and len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and one == other


def states(module: nn.Module, optimizer: Optimizer) -> list[Any]:
    return copy.deepcopy([dict(module.state_dict()), optimizer.state_dict()])


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("module", MODULES)
def test_training_goes_on_from_the_same_bits(module: str, optimizer: str, tmp_path: Path) -> None:
    """Two roads: on in memory, and through a file into another module that was trained otherwise."""
    own = made(module, optimizer)
    mhsa.save_checkpoint(tmp_path / "at3", *own, 3)
    saved = states(*own)
    other = made(module, optimizer, steps=2, seed=9)
    assert mhsa.load_checkpoint(tmp_path / "at3", *other) == 3
    assert same(states(*other), saved)
    for both in (own, other):
        train(*both, 3, 4)
    assert same(states(*other), states(*own)) and not same(states(*own), saved)


def test_before_the_first_step_there_is_no_state(tmp_path: Path) -> None:
    own, other = made(steps=0), made(steps=2, seed=4)
    mhsa.save_checkpoint(tmp_path / "new", *own)
    assert mhsa.load_checkpoint(tmp_path / "new", *other) == 0 and same(states(*other), states(*own))
    assert other[1].state_dict()["state"] == {}


def test_a_module_alone(tmp_path: Path) -> None:
    """Saved without an optimizer, or loaded without the one that was saved."""
    own, other = made(), made(seed=2)
    mhsa.save_checkpoint(tmp_path / "both", *own, 5)
    mhsa.save_checkpoint(tmp_path / "alone", own[0], step=6)
    for name, step in (("both", 5), ("alone", 6)):
        other = made(seed=2)
        before = states(*other)
        assert mhsa.load_checkpoint(tmp_path / name, other[0]) == step
        assert same(states(*other), [states(*own)[0], before[1]])
    with pytest.raises(RunError):
        mhsa.load_checkpoint(tmp_path / "alone", *other)


def test_paths_and_open_files(tmp_path: Path) -> None:
    """A text, a path, a file, memory; a file may hold other bytes before."""
    own, memory = made(), io.BytesIO()
    memory.write(b"header")
    for place in (str(tmp_path / "text"), tmp_path / "path", memory):
        mhsa.save_checkpoint(place, *own, 4)
    with (tmp_path / "file").open("wb") as file:
        mhsa.save_checkpoint(file, *own, 4)
    assert {(tmp_path / name).read_bytes() for name in ("text", "path", "file")} == {memory.getvalue()[6:]}
    memory.seek(6)
    with (tmp_path / "file").open("rb") as file:
        for place in (str(tmp_path / "text"), tmp_path / "path", memory, file):
            other = made(seed=2)
            assert mhsa.load_checkpoint(place, *other) == 4 and same(states(*other), states(*own))
    with (tmp_path / "file").open() as file, pytest.raises(UsageError) as refused:
        mhsa.load_checkpoint(file, *own)
    assert "'rb'" in str(refused.value)
    with (tmp_path / "other").open("w") as file, pytest.raises(UsageError) as refused:
        mhsa.save_checkpoint(file, *own)
    assert "'wb'" in str(refused.value)


def test_the_tensors_are_an_ordinary_safetensors_file(tmp_path: Path) -> None:
    own = made()
    mhsa.save_checkpoint(tmp_path / "file", *own)
    found = load_file(tmp_path / "file")
    assert torch.equal(found["module.up.weight"], own[0].up.weight)
    assert found["module.out.weight"].dtype == torch.bfloat16
    assert torch.equal(found["optimizer.state_dict.state.1.exp_avg"], own[1].state_dict()["state"][1]["exp_avg"])


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, own = tmp_path / "file", made()
    mhsa.save_checkpoint(path, *own, 1)
    before = path.read_bytes()
    mhsa.save_checkpoint(path, *own, 2)
    assert path.read_bytes() != before
    before = path.read_bytes()
    for name in ("write", "fsync", "replace"):
        with monkeypatch.context() as patch:
            patch.setattr(os, name, full)
            with pytest.raises(StorageError):
                mhsa.save_checkpoint(path, *own, 3)
        assert path.read_bytes() == before and os.listdir(tmp_path) == ["file"]  # noqa: PTH208
    with pytest.raises(StorageError):
        mhsa.save_checkpoint(tmp_path / "missing" / "file", *own, 3)


def full(*_: object) -> None:
    raise OSError(28, "No space left on device")


def broken(data: bytes) -> Iterator[bytes]:
    """Cut the file short, lengthen it, or change one bit of its header or tensors."""
    for end in (0, 7, 8, 200, len(data) // 2, len(data) - 1):
        yield data[:end]
    yield data + b"\0"
    header = 8 + int.from_bytes(data[:8], "little")
    for at in [*range(0, header, 13), *range(header, len(data), 29), len(data) - 1]:
        yield data[:at] + bytes([data[at] ^ 1 << at % 8]) + data[at + 1 :]


def test_no_damage_is_loaded(tmp_path: Path) -> None:
    memory, own, other = io.BytesIO(), made(), made(seed=2)
    mhsa.save_checkpoint(memory, *own, 3)
    before, refused, tried = states(*other), 0, 0
    for data in broken(memory.getvalue()):
        tried += 1
        try:
            mhsa.load_checkpoint(io.BytesIO(data), *other)
        except RunError:
            refused += 1
            assert same(states(*other), before)
    assert tried > 200 and refused == tried
    with pytest.raises(DamageError):
        mhsa.load_checkpoint(tmp_path / "missing", *other)


def test_files_of_others_are_told_apart(tmp_path: Path) -> None:
    module, optimizer = made()
    save_file({"w": torch.ones(2)}, tmp_path / "theirs")
    torch.save(module.up.state_dict(), tmp_path / "pickle")
    mhsa.save_checkpoint(tmp_path / "newer", module, optimizer)
    for name, kind in (("theirs", RunError), ("pickle", DamageError)):
        with pytest.raises(RunError) as refused:
            mhsa.load_checkpoint(tmp_path / name, module, optimizer)
        assert type(refused.value) is kind
    with pytest.MonkeyPatch.context() as patch, pytest.raises(NewerFormatError):
        patch.setattr("mhsa_cli.core.training.module_state.FORMAT", 1)
        mhsa.load_checkpoint(tmp_path / "newer", module, optimizer)


class Renamed(Mixed):
    def __init__(self) -> None:
        super().__init__()
        self.upper = self._modules.pop("up")


def wider() -> nn.Module:
    module = Mixed()
    module.out = nn.Linear(4, D_OUT + 1, bias=False, dtype=torch.bfloat16)
    return module


OTHERS: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Optimizer], list[str]]] = {
    "names": (Renamed, OPTIMIZERS["adamw"], ["upper.weight", "up.weight"]),
    "shapes": (wider, OPTIMIZERS["adamw"], ["out.weight", "(3, 4)", "(4, 4)"]),
    "dtypes": (lambda: Mixed().float(), OPTIMIZERS["adamw"], ["out.weight", "bfloat16", "float32"]),
    "kind": (Mixed, OPTIMIZERS["sgd"], ["AdamW", "SGD"]),
    "groups": (Mixed, lambda m: AdamW(halves(m)), ["[6]", "[2, 4]"]),
    "fewer": (Mixed, lambda m: AdamW([*m.parameters()][:4]), ["[6]", "[4]"]),
    "order": (Mixed, lambda m: AdamW([*m.parameters()][::-1]), ["up.weight", "out.weight"]),
    "stranger": (Mixed, lambda m: AdamW([nn.Parameter(torch.ones(4, D_IN))]), ["up.weight", "another module"]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_what_does_not_fit_is_refused_by_name_and_changes_nothing(name: str, tmp_path: Path) -> None:
    mhsa.save_checkpoint(tmp_path / "file", *made(), 3)
    build, optimize, words = OTHERS[name]
    module = build()
    both = module, optimize(module)
    before = states(*both)
    with pytest.raises(RunError) as refused:
        mhsa.load_checkpoint(tmp_path / "file", *both)
    assert all(word in refused.value.message for word in words), refused.value.message
    assert same(states(*both), before)


def test_what_only_pickle_could_save_is_refused_by_name(tmp_path: Path) -> None:
    module, optimizer = made()
    optimizer.param_groups[0]["rule"] = len
    path = tmp_path / "file"
    refused: dict[str, Any] = {
        "optimizer.state_dict.param_groups.0.rule": lambda: mhsa.save_checkpoint(path, module, optimizer)
    }
    own = Mixed()
    own.calls = [1, {1, 2}]
    refused["module._extra_state.1"] = lambda: mhsa.save_checkpoint(path, own)
    sparse = nn.ParameterDict({"w": nn.Parameter(torch.eye(3).to_sparse())})
    refused["module.w"] = lambda: mhsa.save_checkpoint(path, sparse)
    refused["step"] = lambda: mhsa.save_checkpoint(path, nn.Linear(2, 3), None, -1)
    for place, call in refused.items():
        with pytest.raises(UsageError) as error:
            call()
        assert error.value.message.startswith(place)
    assert not path.exists()


def test_nothing_is_printed_and_the_random_state_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own, before = made(), torch.get_rng_state()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mhsa.save_checkpoint(tmp_path / "file", *own, 1)
        mhsa.load_checkpoint(tmp_path / "file", *own)
    assert torch.equal(torch.get_rng_state(), before) and capsys.readouterr() == ("", "")
