"""Lockstep training: M models of one shape with stacked parameters in one flat buffer. A run is a stack of one."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.optim.adamw import adamw

from mhsa_cli.config.estimate import EVALUATED
from mhsa_cli.config.schema import TrainConfig
from mhsa_cli.core.model.custom import CustomLayer
from mhsa_cli.core.model.layers import Dropout, padded
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.ranges import check_indices
from mhsa_cli.core.tasks.base import check_targets, stream_generator, sums
from mhsa_cli.core.training.analytic.gradient import AnalyticGradient, has_analytic_gradient
from mhsa_cli.core.training.analytic.loss import CrossEntropy
from mhsa_cli.core.training.backward import vector_jacobian
from mhsa_cli.errors import NonFiniteError


def stack_models(models: Sequence[TransformerLM]) -> TransformerLM:
    """Stack M models of one shape into one module whose parameters have a leading M; slot m equals models[m]."""
    stacked = copy.deepcopy(models[0])
    sources = [dict(m.named_parameters()) for m in models]
    for name, parameter in stacked.named_parameters():  # a tied weight appears once and stays tied
        parameter.data = torch.stack([source[name].data for source in sources])
    return stacked


def unstack(stacked: TransformerLM, slot: int = 0) -> TransformerLM:
    """Copy one model of a stack, as an ordinary model in eval mode."""
    own = {id(p): torch.nn.Parameter(p.data[slot].clone()) for p in stacked.parameters()}
    model = copy.deepcopy(stacked, own).eval()  # type: ignore[arg-type]  # copies no stacked parameter
    for module in model.modules():
        if isinstance(module, Dropout | CustomLayer):
            module.generators = None  # those are the stack's
    return model


ADAM: dict[str, Any] = {"fused": True, "amsgrad": False, "maximize": False}


class Stack:
    """The training state of M models: weights, gradients and Adam's moments, each one flat buffer.

    After a `step`, `loss` and `accuracy` hold its figures before the update, (M,), on the device.
    """

    def __init__(
        self, models: Sequence[TransformerLM], seeds: Sequence[int], config: TrainConfig, device: torch.device
    ) -> None:
        self.config, self.device, self.seeds, self.M = config, device, seeds, len(models)
        self.model = stack_models(models).to(device=device, dtype=parameter_dtype(config))
        self.model.train()
        self.updates, self.vocab_size = 0, self.model.tok_emb.weight.size(-2)
        self.parameters = dict(self.model.named_parameters())
        self.leaves = list(self.parameters.values())
        self.size = sum(p.numel() for p in self.leaves)
        dtype = next(iter(self.parameters.values())).dtype
        self.weights, self.gradients, self.moment1, self.moment2 = (
            torch.zeros(padded(self.size), device=device, dtype=dtype) for _ in range(4)
        )
        self._point_into_buffer()
        self._by_model = [g.flatten(1) for g in self.views(self.gradients).values()]  # (M, numbers of a parameter)
        analytic = has_analytic_gradient(self.model, config.dtype)
        self.analytic = AnalyticGradient(self.model, self.views(self.gradients)) if analytic else None
        self._cross_entropy: CrossEntropy | None = None
        self._count = torch.zeros((), device=device)  # Adam's step counter: the fused call needs a tensor
        self.loss = torch.zeros(self.M, device=device)
        self.accuracy = torch.zeros(self.M, device=device)
        modules = list(self.model.modules())
        self.dropouts = [m for m in modules if isinstance(m, CustomLayer) or (isinstance(m, Dropout) and m.p > 0)]
        self.generators = [torch.Generator(device) for _ in models] if self.dropouts else []
        for module in self.dropouts:
            module.generators = self.generators

    def _point_into_buffer(self) -> None:
        """Make every parameter a view of the flat weights, so that one fused call updates all of them."""
        offset = 0
        for parameter in self.parameters.values():
            end = offset + parameter.numel()
            self.weights[offset:end] = parameter.data.flatten()
            parameter.data = self.weights[offset:end].view(parameter.shape)
            offset = end

    def set_updates(self, updates: int) -> None:
        """Set the number of updates made, for a restored state."""
        self.updates = updates
        self._count.fill_(updates)

    def finite_weights(self) -> list[int]:
        """List the slots whose weights and moments are finite."""
        parts = [p for flat in (self.weights, self.moment1, self.moment2) for p in self.views(flat).values()]
        whole = torch.stack([p.flatten(1).isfinite().all(1) for p in parts]).all(0)
        return whole.nonzero().flatten().tolist()

    def finite_slots(self) -> list[int]:
        """List the slots whose weights, moments, last loss and squared gradients are finite."""
        squares = torch.stack([g.square().sum(1) for g in self._by_model]).sum(0)
        finite = (squares.isfinite() & self.loss.isfinite()).nonzero().flatten().tolist()
        return sorted(set(finite) & set(self.finite_weights()))

    def nonfinite(self, slot: int) -> str:
        """Describe what in a model is not finite: a weight, a moment, the last loss, a gradient or its square."""
        loss = float(self.loss[slot])
        for what, flat in (("weight", self.weights), ("moment", self.moment1), ("second moment", self.moment2)):
            for name, view in self.views(flat).items():
                if not view[slot].isfinite().all():
                    return f"a {what} of {name} is not finite"
        if not math.isfinite(loss):
            return f"the loss is not finite ({loss})"
        largest = {name: float(view[slot].abs().max()) for name, view in self.views(self.gradients).items()}
        for name, size in largest.items():
            if not math.isfinite(size):
                return f"the gradient of {name} is not finite (loss {loss:.3g})"
        name = max(largest, key=largest.__getitem__)
        return f"the squared gradient is not finite: up to {largest[name]:.1e} in {name} (loss {loss:.3g})"

    def keep(self, slots: Sequence[int]) -> Stack:
        """Make a stack of some of the models, with their moments and number of updates."""
        models = [unstack(self.model, slot) for slot in slots]
        kept = Stack(models, [self.seeds[slot] for slot in slots], self.config, self.device)
        for new, old in ((kept.moment1, self.moment1), (kept.moment2, self.moment2)):
            source = self.views(old)
            for name, view in kept.views(new).items():
                view.copy_(source[name][list(slots)])
        kept.set_updates(self.updates)
        return kept

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """View a flat buffer by parameter name, in the parameters' shapes (M, ...)."""
        sizes = [p.numel() for p in self.leaves]
        parts = zip(self.parameters.items(), flat[: self.size].split(sizes), strict=True)
        return {name: part.view(p.shape) for (name, p), part in parts}

    def step(self, inputs: Tensor, targets: Tensor, lr: float, *, checked: bool = False) -> None:
        """Make one AdamW update of every model on its batch of ids and targets (M, B, T).

        `checked` skips the check of ids, which Task.draw has made. Raises: ValueError for an id or target outside the
        vocabulary; NonFiniteError before the update if a loss, gradient or weight is not finite.
        """
        self._check_shapes(inputs, targets)
        if not checked:  # a second check would cost a few percent of a small step
            check_indices("id", inputs, self.vocab_size, self.device)
            check_targets(targets, self.vocab_size)
        step = self.updates + 1
        for slot, generator in enumerate(self.generators):
            # Seeded by the step, so that a resumed run has the same draws.
            generator.manual_seed(stream_generator(self.seeds[slot], "dropout", step).initial_seed())
        self.loss, self.accuracy = (self.analytic or self.by_autograd)(inputs, targets)
        # Cheap test first: without overflow, a sum is finite exactly if all its terms are.
        totals = (self.gradients.dot(self.gradients), self.weights.dot(self.gradients), self.loss.sum())
        if not all(math.isfinite(float(number)) for number in totals) and len(self.finite_slots()) < self.M:
            raise NonFiniteError(f"step {step}: a loss or gradient is not finite (loss {float(self.loss[0]):.6g})")
        if self.config.grad_clip is not None:
            self._clip(self.config.grad_clip)
        self._update(lr)
        self.updates = step

    def _check_shapes(self, inputs: Tensor, targets: Tensor) -> None:
        if inputs.dim() != 3 or inputs.shape != targets.shape or len(inputs) != self.M:
            found = f"{tuple(inputs.shape)} and {tuple(targets.shape)}"
            raise ValueError(f"wanted ids and targets (M={self.M}, B, T), got {found}")

    def by_autograd(self, inputs: Tensor, targets: Tensor) -> tuple[Tensor, Tensor]:
        """Fill the gradients; returns each model's loss (nats) and accuracy, (M,)."""
        with autocast(self.config.dtype, self.device):
            logits = self.model(inputs)
        flat = logits.detach().flatten(1, 2).to(self.weights.dtype)  # (M, B*T, V)
        if self._cross_entropy is None or self._cross_entropy.d_logits.shape != flat.shape:
            take = lambda _, shape, dtype: flat.new_empty(shape, dtype=dtype)  # noqa: E731
            self._cross_entropy = CrossEntropy(torch.empty_like(flat), take)
        figures = self._cross_entropy(flat, targets)
        # One backward pass for all models: a loss depends on its own model's parameters only.
        d_logits = self._cross_entropy.d_logits.view(logits.shape).to(logits.dtype)
        gradients = vector_jacobian(logits, d_logits, self.leaves)
        torch.cat([g.flatten() for g in gradients], out=self.gradients[: self.size])
        return figures

    def _update(self, lr: float) -> None:
        amsgrad: list[Tensor] = []
        buffers = ([self.weights], [self.gradients], [self.moment1], [self.moment2], amsgrad, [self._count])
        (beta1, beta2), decay = self.config.betas, self.config.weight_decay
        adamw(*buffers, beta1=beta1, beta2=beta2, lr=lr, weight_decay=decay, eps=self.config.eps, **ADAM)

    def _clip(self, limit: float) -> None:
        """Clip each model's own gradient to the norm `limit`."""
        square = self.weights.new_zeros(self.M)
        for g in self._by_model:  # not one sum: its order would depend on the stack's size
            square += g.square().sum(1)
        scale = (limit / (square.sqrt() + 1e-6)).clamp(max=1.0)  # (M,)
        for g in [self.gradients] if self.M == 1 else self._by_model:
            g *= scale.unsqueeze(-1) if g.dim() == 2 else scale

    def evaluate(self, inputs: Tensor, targets: Tensor, chunk: int = EVALUATED) -> tuple[list[float], list[float]]:
        """Compute each model's loss (nats) and accuracy on its rows (M, N, T): means over all scored tokens."""
        self._check_shapes(inputs, targets)
        check_targets(targets, self.vocab_size)
        self.model.eval()
        try:
            parts = in_chunks(self.model, inputs, targets, self.config.dtype, self.device, chunk)
            found = torch.stack([torch.stack([s.cpu().double() for s in sums(*part)]) for part in parts])
        finally:
            self.model.train()
        loss, right, count = found.sum(0)  # not the mean of the chunks' means
        return (loss / count).tolist(), (right / count).tolist()


@torch.no_grad()
def in_chunks(
    model: TransformerLM, inputs: Tensor, targets: Tensor, dtype: str, device: torch.device, chunk: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Run a stack in eval mode on rows (M, N, T): logits (M, chunk, T, V) with their targets, chunk by chunk."""
    for x, y in zip(inputs.split(chunk, 1), targets.split(chunk, 1), strict=True):
        with autocast(dtype, device):
            logits = model(x)
        assert isinstance(logits, Tensor)  # no weights were asked for
        yield logits, y


def parameter_dtype(config: TrainConfig) -> torch.dtype:
    """Return the dtype of weights and moments: float32 with bfloat16."""
    return torch.float64 if config.dtype == "float64" else torch.float32


def autocast(dtype: str, device: torch.device) -> AbstractContextManager[object]:
    """Return an autocast context to bfloat16 if that is the config's dtype, else a null context."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if dtype == "bfloat16" else nullcontext()


def learning_rate(config: TrainConfig, step: int) -> float:
    """Compute the learning rate of a step (from 1).

    It rises linearly to config.lr at step warmup_steps, or is config.lr at step 1 without a warm-up; cosine and linear
    fall from there to config.min_lr at the last step.
    """
    peak, total = max(config.warmup_steps, 1), config.epochs * config.steps_per_epoch
    if step < peak:
        return config.lr * step / peak
    if config.schedule == "constant":
        return config.lr
    left = min(max((total - step) / max(total - peak, 1), 0.0), 1.0)  # 1 at the peak, 0 at the last step
    if step == peak:  # also if it is the last one
        left = 1.0
    share = left if config.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2
    return config.min_lr + (config.lr - config.min_lr) * share
