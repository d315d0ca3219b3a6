"""Custom attention: the user's block in a language model, tested once before training and called model by model."""

from __future__ import annotations

import copy
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Generator, Tensor, nn

from mhsa_cli.core.model.layers import AnyDevice, WithTables
from mhsa_cli.errors import MhsaError, UsageError
from mhsa_cli.text import quoted

FIXED_SEED = 0  # for draws outside training: a block that draws there too gives the same result each time
ROWS = 2  # of the test input
LEAK = 1e-4  # of the largest output: above float32 rounding, far below one key's share of a softmax
DRAWN = 2000  # the least number of scores per head tested in training mode
SUM = 1e-3  # tolerance for the sum of a row of weights

Attend = Callable[[Tensor], tuple[Tensor, Tensor | None]]


class Sizes(NamedTuple):
    """The sizes a block is built with."""

    d_model: int
    n_heads: int
    max_seq_len: int
    dropout: float
    bias: bool


@dataclass(frozen=True, slots=True)
class Findings:
    """What the test of a block found: whether it returns weights, the reason if not, whether T must be max_seq_len."""

    has_weights: bool
    reason: str = ""
    fixed_length: bool = False


class CustomBlock(nn.Module):
    """A block to train: causal attention from x (B, T, D) to (B, T, D)."""

    def attend(self, x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the output and the weights (B, H, T, T) before dropout, None where they are unknown."""
        return self(x), None


@dataclass(frozen=True)
class CustomAttention:
    """A custom block named FILE:Class: `make` builds it, `sha256` is its file's.

    `place` describes a line of the file; `known` says that the block equals the reference; `untrained` lists trainable
    tensors that are no parameters of the module.
    """

    name: str
    file: Path
    sha256: str
    make: Callable[[Sizes], CustomBlock]
    place: Callable[[int], str] = "line {}".format
    known: bool = False
    untrained: tuple[str, ...] = ()
    tested: dict[Sizes, Findings] = field(default_factory=dict, compare=False, repr=False)

    def __deepcopy__(self, memo: dict[int, Any]) -> CustomAttention:
        """Return the same object: copies of a model share it."""
        return self

    def build(self, sizes: Sizes, seed: int) -> CustomBlock:
        """Build the block with the weights that its constructor draws under a seed. Raises: UsageError."""
        with seeded(seed), self.errors_as(f"cannot be built with d_model {sizes.d_model}, n_heads {sizes.n_heads}"):
            block = self.make(sizes)
        for module in block.modules():
            for name, parameter in list(module._parameters.items()):
                if parameter is not None and not parameter.requires_grad:  # frozen: a buffer
                    del module._parameters[name]
                    module.register_buffer(name, parameter.data, persistent=False)
        for name, parameter in block.named_parameters():
            if not parameter.is_floating_point():
                raise UsageError(f"{self.name}: parameter {name} is {parameter.dtype}, which cannot be trained")
        return block

    def findings(self, sizes: Sizes) -> Findings:
        """Test the block once in these sizes. Raises: UsageError if it does not fit a language model."""
        if sizes not in self.tested:
            block = self.build(sizes, FIXED_SEED)

            def attend(x: Tensor) -> tuple[Tensor, Tensor | None]:
                with seeded(FIXED_SEED), self.errors_as(f"failed on an input of the shape {tuple(x.shape)}"):
                    return block.attend(x)

            self.tested[sizes] = examine(self.name, block, attend, sizes)
        return self.tested[sizes]

    @contextmanager
    def errors_as(self, what: str) -> Iterator[None]:
        """Convert any exception of the block's code to a UsageError that names the line."""
        try:
            yield
        except (MhsaError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == str(self.file.absolute())]
            where = f" ({self.place(lines[-1])})" if lines and lines[-1] else ""
            message = f"{type(error).__name__}: {error}".strip(": ")
            raise UsageError(f"{self.name} {what}: {message}{where}", check_hint(self.name)) from error


def check_hint(name: str) -> str:
    """Name the command that finds the faults of a block."""
    return f"find its faults: mhsa check {quoted(name)}"


def checked_output(name: str, y: object, x: Tensor) -> Tensor:
    """Return a block's output y if it is a tensor of x's shape. Raises: UsageError."""
    if isinstance(y, Tensor) and y.shape == x.shape:
        return y
    found = f"the shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"a {type(y).__name__}"
    raise UsageError(f"{name} gives {found} for an input of the shape {tuple(x.shape)}", check_hint(name))


def examine(name: str, block: nn.Module, call: Attend, sizes: Sizes) -> Findings:
    """Call a block on random rows in eval and in training mode.

    Raises: UsageError if the output has another shape or dtype, is not finite, depends on later tokens or has no
    gradient, or if the block changes its buffers.
    """
    T, generator = sizes.max_seq_len, torch.Generator().manual_seed(0)
    x, other = (torch.randn(ROWS, T, sizes.d_model, generator=generator) for _ in range(2))
    with torch.no_grad():
        block.eval()
        output, weights = call(x)
        y = checked_output(name, output, x)
        if y.dtype != x.dtype:
            raise UsageError(f"{name} gives {y.dtype} for an input of {x.dtype}: wanted the same", check_hint(name))
        if not bool(y.isfinite().all()):
            raise UsageError(f"{name} gives NaN or infinity for a finite input", check_hint(name))
        _check_causal(name, call, x, other, y)
        fixed = T > 1 and _is_fixed(call, x[:, :-1])
    _check_training(name, block, call, x, other)
    reason = "it does not return its weights"
    if weights is not None:
        reason = _why_no_maps(weights, (ROWS, sizes.n_heads, T, T))
    return Findings(not reason, reason, fixed)


def _check_causal(name: str, call: Attend, x: Tensor, other: Tensor, y: Tensor) -> None:
    """Replace the last tokens: the outputs before them must not change."""
    T, limit = x.size(1), LEAK * max(1e-6, float(y.abs().max()))
    for cut in sorted({1, T // 2, T - 1} - {0, T}):
        changed = torch.cat([x[:, :cut], other[:, cut:]], dim=1)
        moved = (call(changed)[0] - y)[:, :cut].abs().amax((0, 2)) > limit
        if bool(moved.any()):
            effect = f"token {cut} changes the output at token {int(moved.nonzero()[0])}"
            raise UsageError(f"{name} sees the future: {effect}", check_hint(name))


def _is_fixed(call: Attend, shorter: Tensor) -> bool:
    """Whether a block rejects rows shorter than max_seq_len."""
    try:
        return call(shorter)[0].shape != shorter.shape
    except UsageError:
        return True


def _check_training(name: str, block: nn.Module, call: Attend, x: Tensor, other: Tensor) -> None:
    before = {key: buffer.clone() for key, buffer in block.named_buffers()}
    block.train()
    y, _ = call(x.clone().requires_grad_())
    if not y.requires_grad:
        raise UsageError(f"{name} gives an output without a gradient: it cannot be trained", "use torch throughout")
    after = dict(block.named_buffers())
    for key, buffer in before.items():
        now = after.get(key)
        if now is not None and now.shape == buffer.shape and not torch.equal(now, buffer):
            why = "checkpoints hold parameters only, so a resumed run would differ"
            raise UsageError(f"{name} changes its buffer {key} in training", why)
    with torch.no_grad():
        x, other = (t.repeat(-(-DRAWN // x.size(1) ** 2), 1, 1) for t in (x, other))  # enough draws of dropout
        drawn = call(x)[0]
        if not bool(y.isfinite().all() and drawn.isfinite().all()):
            why = "apply dropout to the weights after the softmax, not to scores"
            raise UsageError(f"{name} gives NaN or infinity in training mode, with dropout", why)
        if torch.equal(call(x)[0], drawn):  # the draws repeat, so any change comes from the input
            _check_causal(name, call, x, other, drawn)


def _why_no_maps(weights: Tensor, expected: tuple[int, ...]) -> str:
    """Say why weights are not attention maps; empty if they are."""
    if tuple(weights.shape) != expected:
        return f"its weights have the shape {tuple(weights.shape)}, wanted one map per head: {expected}"
    weights = weights.detach().float()
    if not bool(((weights.sum(-1) - 1).abs() <= SUM).all()) or bool((weights < -SUM).any()):
        return "the rows of its weights do not sum to 1"
    if bool((weights.triu(1).abs() > LEAK).any()):
        return "its weights on later tokens are not 0"
    return ""


class _Call(nn.Module):
    """Wraps the block's two methods for torch.func.functional_call."""

    def __init__(self, block: CustomBlock) -> None:
        super().__init__()
        self.block = block

    def forward(self, x: Tensor, weights: bool) -> tuple[Tensor, Tensor | None]:
        return self.block.attend(x) if weights else (self.block(x), None)


class CustomLayer(WithTables):
    """The layer around a custom block, in place of the built-in attention.

    Shapes: x (B, T, D) to (B, T, D), and on request the weights (B, H, T, T). In a stack x is (M, B, T, D), and the
    block is called once per model with that model's parameters. `generators` seed its draws in training.
    Raises: UsageError where the block's code fails, or returns another shape.
    """

    visible: Tensor
    causal = True  # what is not is refused

    def __init__(self, custom: CustomAttention, sizes: Sizes) -> None:
        super().__init__()
        self.attention, self.sizes, self.n_heads = custom, sizes, sizes.n_heads
        self.findings = custom.findings(sizes)
        self.inner = _Call(custom.build(sizes, FIXED_SEED))
        self.kind = "custom"
        self.generators: Sequence[Generator] | None = None
        self.register_tables()

    def tables(self, device: AnyDevice) -> dict[str, Tensor]:
        T = self.sizes.max_seq_len
        return {"visible": torch.ones(T, T, dtype=torch.bool, device=device).tril()}

    def reset_parameters(self, generator: Generator) -> None:
        """Rebuild the block, its weights drawn by its constructor under a seed from `generator`."""
        old = next(self.parameters(), None)
        block = self.attention.build(self.sizes, _draw(generator))
        self.inner = _Call(block if old is None else block.to(old)).train(self.training)

    def forward(
        self, x: Tensor, *, return_weights: bool = False, pos: Tensor | None = None, cache: object = None
    ) -> Tensor | tuple[Tensor, Tensor | None]:
        if cache is not None:
            raise ValueError("custom attention has no KV cache: pass all tokens at once")
        call = self._stacked if x.dim() == 4 else self._single
        y, weights = call(x, return_weights)
        return (y, weights) if return_weights else y

    def _stacked(self, x: Tensor, weights: bool) -> tuple[Tensor, Tensor | None]:
        names = [name for name, _ in self.inner.named_parameters()]
        slots = zip(*self.inner.parameters(), strict=True) if names else [()] * len(x)
        drawing = self.training and self.generators is not None and len(self.generators) == len(x)
        draws: Sequence[Generator | None] = self.generators if drawing and self.generators else [None] * len(x)
        parts = [
            self._single(part, weights, dict(zip(names, own, strict=True)), draw)
            for part, own, draw in zip(x, slots, draws, strict=True)
        ]
        outputs, maps = zip(*parts, strict=True)
        return torch.stack(outputs), None if maps[0] is None else torch.stack(maps)

    def _single(
        self, x: Tensor, weights: bool, own: dict[str, Tensor] | None = None, draw: Generator | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """Call the block for one model, in a stack with its `own` parameters."""
        T, length = x.size(-2), self.sizes.max_seq_len
        if self.findings.fixed_length and length > T:  # padding at the end changes nothing before it
            x = torch.cat([x, x.new_zeros(*x.shape[:-2], length - T, x.size(-1))], dim=-2)
        seed = FIXED_SEED if draw is None else _draw(draw)
        weights = weights and self.findings.has_weights
        with seeded(seed, x.device), self.attention.errors_as(f"failed on an input of the shape {tuple(x.shape)}"):
            args = (x, weights)
            y, maps = self.inner(*args) if own is None else torch.func.functional_call(self.inner, own, args)
        y = checked_output(self.attention.name, y, x)
        return y[..., :T, :], maps[..., :T, :T] if weights else None

    def __deepcopy__(self, memo: dict[int, Any]) -> CustomLayer:
        """Copy the layer; tensors stored by the block's last call are detached from their graph first."""
        for module in self.inner.modules():
            for name, value in vars(module).items():
                vars(module)[name] = _detach(value)
        made = type(self).__new__(type(self))
        memo[id(self)] = made
        made.__dict__ = copy.deepcopy(self.__dict__, memo)
        return made


def _detach(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value if value.is_leaf else value.detach()
    if type(value) in (list, tuple):
        return type(value)(_detach(item) for item in value)
    if type(value) is dict:
        return {key: _detach(item) for key, item in value.items()}
    return value


def _draw(generator: Generator) -> int:
    return int(torch.randint(2**62, (), generator=generator, device=generator.device))


@contextmanager
def seeded(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Seed torch's generator within the context, and restore its state afterwards."""
    devices = [device] if device is not None and device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        if device is None or device.type == "cpu":
            torch.default_generator.manual_seed(seed)  # faster than torch.manual_seed, which seeds all devices
        else:
            torch.manual_seed(seed)
        yield
