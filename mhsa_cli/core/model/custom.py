"""An attention block that somebody else wrote, in the place of ours: built, tried once, and called model by model."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Generator, Tensor, nn

from mhsa_cli.core.model.dry_run import Findings, Sizes, check_hint, examine
from mhsa_cli.core.model.layers import AnyDevice, WithTables
from mhsa_cli.errors import MhsaError, UsageError

STILL = 0  # seed of what is drawn outside training: a block that draws there as well gives the same each time


class CustomBlock(nn.Module):
    """What is asked of a block: causal attention from x (B, T, D) to (B, T, D)."""

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Give the output and the weights (B, H, T, T) before dropout, None where they are not known."""
        return self(x), None


@dataclass(frozen=True)
class CustomAttention:
    """A block that was named as FILE:Class; `make` builds it, and `sha256` is that of its file.

    `place` says in words where a line of it is; `known` tells that it equals the reference; `untrained` names what is
    meant to be trained and is none of the module's parameters.
    """

    target: str
    file: Path
    sha256: str
    make: Callable[[Sizes], CustomBlock]
    place: Callable[[int], str] = "line {}".format
    known: bool = False
    untrained: tuple[str, ...] = ()
    tried: dict[Sizes, Findings] = field(default_factory=dict, compare=False, repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> CustomAttention:
        """Stay one: models are copied often, and what they are built from never changes."""
        return self

    def build(self, sizes: Sizes, seed: int) -> CustomBlock:
        """Build it with the weights that its own constructor draws under a seed. Raises: UsageError."""
        with seeded(seed), self.blamed(f"cannot be built with d_model {sizes.d_model}, n_heads {sizes.n_heads}"):
            block = self.make(sizes)
        for module in block.modules():
            for name, parameter in list(module._parameters.items()):
                if parameter is not None and not parameter.requires_grad:  # it is not trained, so it is no parameter
                    del module._parameters[name]
                    module.register_buffer(name, parameter.data, persistent=False)
        odd = [name for name, parameter in block.named_parameters() if not parameter.is_floating_point()]
        if odd:
            raise UsageError(f"{self.target}: its parameter {odd[0]} holds no real numbers, so it cannot be trained")
        return block

    def findings(self, sizes: Sizes) -> Findings:
        """Try it once in these sizes. Raises: UsageError if it cannot stand in a language model."""
        if sizes not in self.tried:
            block = self.build(sizes, STILL)

            def call(x: Tensor) -> tuple[Tensor, Tensor | None]:
                with seeded(STILL), self.blamed(f"failed on an input of the shape {tuple(x.shape)}"):
                    return block.attend(x)

            self.tried[sizes] = examine(self.target, block, call, sizes)
        return self.tried[sizes]

    @contextmanager
    def blamed(self, what: str) -> Iterator[None]:
        """Turn whatever its code raises into an error that names its line. Raises: UsageError."""
        try:
            yield
        except (MhsaError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(self.file.absolute())]
            where = f" ({self.place(lines[-1])})" if lines and lines[-1] else ""
            said = f"{type(error).__name__}: {error}".strip(": ")
            raise UsageError(f"{self.target} {what}: {said}{where}", check_hint(self.target)) from error


class _Call(nn.Module):
    """Holds the block, so that it can be called with another model's parameters."""

    def __init__(self, block: CustomBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, look: bool) -> tuple[Tensor, Tensor | None]:
        return self.block.attend(x) if look else (self.block(x), None)


class CustomLayer(WithTables):
    """The layer around a custom block, which takes the place of our attention.

    Shapes: x (B, T, D) to (B, T, D), and where asked the weights (B, H, T, T). In a stack x is (M, B, T, D), and the
    block is called once for each model with that model's parameters. `generators` seed what it draws in training.
    Raises: UsageError where the block's own code fails, or gives another shape.
    """

    causal_mask: Tensor

    def __init__(self, custom: CustomAttention, sizes: Sizes) -> None:
        super().__init__()
        self.attention, self.sizes, self.n_heads = custom, sizes, sizes.n_heads
        self.found = custom.findings(sizes)
        self.inner = _Call(custom.build(sizes, STILL))
        self.kind = "custom"
        self.generators: Sequence[Generator] | None = None
        self.register_tables()

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        T = self.sizes.max_seq_len
        return {"causal_mask": torch.ones(T, T, dtype=torch.bool, device=device).tril()}

    def reset_parameters(self, generator: Generator) -> None:
        """Build the block anew, its weights drawn by its own constructor under a seed from `generator`."""
        old = next(self.parameters(), None)
        block = self.attention.build(self.sizes, _draw(generator))
        self.inner = _Call(block if old is None else block.to(old)).train(self.training)

    def forward(
        self, x: Tensor, *, return_weights: bool = False, pos: Tensor | None = None, cache: object = None
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        if cache is not None:
            raise ValueError("a custom block keeps no keys and values: read all tokens at once")
        y, weights = self._stacked(x, return_weights) if x.dim() == 4 else self._one(x, None, None, return_weights)
        return (y, weights) if return_weights else y

    def _stacked(self, x: Tensor, look: bool) -> tuple[Tensor, Tensor | None]:
        names = [name for name, _ in self.inner.named_parameters()]
        slots = zip(*self.inner.parameters(), strict=True) if names else [()] * len(x)
        drawing = self.training and self.generators is not None and len(self.generators) == len(x)
        draws: Sequence[Generator | None] = self.generators if drawing and self.generators else [None] * len(x)
        parts = [
            self._one(part, dict(zip(names, own, strict=True)), draw, look)
            for part, own, draw in zip(x, slots, draws, strict=True)
        ]
        outputs, weights = zip(*parts, strict=True)
        maps = None if weights[0] is None else torch.stack(weights)
        return torch.stack(outputs), maps

    def _one(
        self, x: Tensor, own: dict[str, Tensor] | None, draw: Generator | None, look: bool
    ) -> tuple[Tensor, Tensor | None]:
        """Call the block for one model, with its `own` parameters if it stands in a stack."""
        T, whole = x.size(-2), self.sizes.max_seq_len
        if self.found.fixed and whole > T:  # it reads one length only; what comes later changes nothing
            x = torch.cat([x, x.new_zeros(*x.shape[:-2], whole - T, x.size(-1))], dim=-2)
        seed = STILL if draw is None else _draw(draw)
        look = look and self.found.shows
        with seeded(seed, x.device), self.attention.blamed(f"failed on an input of the shape {tuple(x.shape)}"):
            y, weights = self.inner(x, look) if own is None else torch.func.functional_call(self.inner, own, (x, look))
        if not isinstance(y, Tensor) or y.shape != x.shape:
            found = tuple(y.shape) if isinstance(y, Tensor) else type(y).__name__
            raise UsageError(
                f"{self.attention.target} gives {found} for an input of the shape {tuple(x.shape)}",
                check_hint(self.attention.target),
            )
        return y[..., :T, :], weights[..., :T, :T] if look else None

    def __deepcopy__(self, memo: dict[int, Any]) -> CustomLayer:
        """Copy the layer; tensors that the block kept from its last call are cut off from their graph first."""
        for module in self.inner.modules():
            for name, value in vars(module).items():
                vars(module)[name] = _cut(value)
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__ = copy.deepcopy(self.__dict__, memo)
        return made


def _cut(value: Any) -> Any:
    """Detach what a block keeps of its last call: torch copies no tensor with a graph behind it."""
    if isinstance(value, Tensor):
        return value if value.is_leaf else value.detach()
    if type(value) in (list, tuple):
        return type(value)(_cut(item) for item in value)
    if type(value) is dict:
        return {key: _cut(item) for key, item in value.items()}
    return value


def _draw(generator: Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Let torch draw from a seed for a while; afterwards it goes on as if nothing had been drawn."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        if device is None or device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # torch.manual_seed takes longer: it asks for all other devices
        else:
            torch.manual_seed(seed)
        yield
