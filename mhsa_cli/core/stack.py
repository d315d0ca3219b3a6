"""Many models of one shape, trained together: parameters with a leading M in one flat buffer. A run is a stack of one."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.optim.adamw import adamw

from mhsa_cli.config.schema import TrainConfig
from mhsa_cli.core.layers import Dropout
from mhsa_cli.core.model import TransformerLM
from mhsa_cli.core.tasks.base import IGNORE, stream_generator


def stack_models(models: Sequence[TransformerLM]) -> TransformerLM:
    """Make one module whose parameters carry a leading M from M models of one shape; slot m equals models[m]."""
    stacked = copy.deepcopy(models[0])
    sources = [dict(m.named_parameters()) for m in models]
    for name, parameter in stacked.named_parameters():  # a tied weight appears once and stays tied
        parameter.data = torch.stack([source[name].data for source in sources])
    return stacked


def unstack(stacked: TransformerLM, slot: int = 0) -> TransformerLM:
    """Copy one model out of a stack, as an ordinary model in eval mode."""
    single = copy.deepcopy(stacked)
    for parameter in single.parameters():
        parameter.data = parameter.data[slot].clone()
        parameter.grad = None
    return single.eval()


def per_model_loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Average the cross-entropy (nats) of each model over its scored positions: (M, B, T, V), (M, B, T) to (M,)."""
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    losses = F.cross_entropy(logits.flatten(0, 2), targets.flatten(), ignore_index=IGNORE, reduction="none")
    return losses.view(len(targets), -1).sum(1) / (targets != IGNORE).flatten(1).sum(1)


def hits(logits: Tensor, targets: Tensor) -> Tensor:
    """Count each model's right answers over its scored positions: (M, B, T, V), (M, B, T) to (M,).

    An answer is right if no other id has a higher logit (argmax says the same but for exact ties, at ten times the
    cost).
    """
    chosen = logits.gather(-1, targets.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return ((chosen == logits.amax(-1)) & (targets != IGNORE)).flatten(1).sum(1)


class Stack:
    """The training state of M models: weights, gradients and Adam's moments, each one flat buffer.

    `step(inputs, targets, lr)` takes (M, B, T) ids and makes one AdamW update of every model. `loss` and `accuracy`
    hold the last step's figures on the device, (M,). `failed` is 0 until a loss or gradient is not finite, then the
    number of that step; from it on no weight and no moment changes.
    """

    def __init__(
        self, models: Sequence[TransformerLM], seeds: Sequence[int], config: TrainConfig, device: torch.device
    ) -> None:
        self.config, self.device, self.seeds, self.M = config, device, seeds, len(models)
        self.model = stack_models(models).to(device=device, dtype=PARAMETER_DTYPE.get(config.dtype, torch.float32))
        self.model.train()
        self.updates = 0
        self.parameters = dict(self.model.named_parameters())
        size = sum(p.numel() for p in self.parameters.values())
        dtype = next(iter(self.parameters.values())).dtype
        self.weights, self.gradients, self.moment1, self.moment2 = (
            torch.zeros(size, device=device, dtype=dtype) for _ in range(4)
        )
        self._point_into_buffers()
        self._count = torch.zeros((), device=device)  # Adam's step counter; the fused call wants it as a tensor
        self._bad = torch.zeros((), device=device)
        self.failed = torch.zeros((), dtype=torch.int64, device=device)
        self.loss = torch.zeros(self.M, device=device)
        self.accuracy = torch.zeros(self.M, device=device)
        self.dropouts = [m for m in self.model.modules() if isinstance(m, Dropout) and m.p > 0]
        self.generators = [torch.Generator(device) for _ in models] if self.dropouts else []
        for module in self.dropouts:
            module.generators = self.generators

    def _point_into_buffers(self) -> None:
        """Make every parameter and its gradient a view of the flat buffers, so that one fused call updates all."""
        offset = 0
        for parameter in self.parameters.values():
            end = offset + parameter.numel()
            self.weights[offset:end] = parameter.data.flatten()
            parameter.data = self.weights[offset:end].view(parameter.shape)
            parameter.grad = self.gradients[offset:end].view(parameter.shape)
            offset = end

    def set_updates(self, updates: int) -> None:
        """Go on after `updates` updates, as a restored state does."""
        self.updates = updates
        self._count.fill_(updates)

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Show a flat buffer under the parameters' names and shapes (M, ...)."""
        sizes = [p.numel() for p in self.parameters.values()]
        parts = zip(self.parameters.items(), flat.split(sizes), strict=True)
        return {name: part.view(p.shape) for (name, p), part in parts}

    def step(self, inputs: Tensor, targets: Tensor, lr: float) -> None:
        """Update every model once on its own batch, ids (M, B, T)."""
        step = self.updates + 1
        for slot, generator in enumerate(self.generators):
            # Seeded by the step: a resumed run draws what an unbroken one would have drawn.
            generator.manual_seed(stream_generator(self.seeds[slot], "dropout", step).initial_seed())
        self.gradients.zero_()  # never set to None: .grad must stay a view
        with autocast(self.config.dtype, self.device):
            logits = self.model(inputs)
        loss = per_model_loss(logits, targets)
        loss.sum().backward()
        with torch.no_grad():
            self.loss = loss.detach()
            self.accuracy = hits(logits, targets) / (targets != IGNORE).flatten(1).sum(1)
            self._update(step, lr)
        self.updates = step

    def _update(self, step: int, lr: float) -> None:
        if self.config.grad_clip is not None:
            self._clip(self.config.grad_clip)
        # A sum is finite exactly when all its terms are (short of overflow, which is a failure as well).
        finite = torch.isfinite(self.gradients.sum() + self.loss.sum())
        self._bad = torch.maximum(self._bad, (~finite).to(self._bad.dtype))
        self.failed = torch.where((self.failed == 0) & (self._bad > 0), step, self.failed)
        beta1, beta2 = self.config.betas
        adamw(
            [self.weights],
            [self.gradients],
            [self.moment1],
            [self.moment2],
            [],
            [self._count],
            fused=True,
            found_inf=self._bad,
            amsgrad=False,
            beta1=beta1,
            beta2=beta2,
            lr=lr,
            weight_decay=self.config.weight_decay,
            eps=1e-8,
            maximize=False,
        )

    def _clip(self, limit: float) -> None:
        """Scale each model's own gradient down to the norm `limit`; a neighbour's size does not count."""
        squares = [g.flatten(1).square().sum(1) for g in self.views(self.gradients).values()]
        scale = (limit / (torch.stack(squares).sum(0).sqrt() + 1e-6)).clamp(max=1.0)  # (M,)
        for g in self.views(self.gradients).values():
            g.mul_(scale.view(-1, *[1] * (g.dim() - 1)))

    @torch.no_grad()
    def evaluate(self, inputs: Tensor, targets: Tensor, chunk: int = 256) -> tuple[list[float], list[float]]:
        """Measure loss (nats) and accuracy of each model on its rows (M, N, T): token means over all rows."""
        self.model.eval()
        try:
            total, right = torch.zeros(self.M, dtype=torch.float64), torch.zeros(self.M, dtype=torch.int64)
            for rows in range(0, inputs.size(1), chunk):
                x, y = inputs[:, rows : rows + chunk], targets[:, rows : rows + chunk]
                with autocast(self.config.dtype, self.device):
                    logits = self.model(x)
                total += (per_model_loss(logits, y) * (y != IGNORE).flatten(1).sum(1)).cpu().double()
                right += hits(logits, y).cpu()
        finally:
            self.model.train()
        count = (targets != IGNORE).flatten(1).sum(1).cpu()
        return (total / count).tolist(), (right / count).tolist()


PARAMETER_DTYPE = {"float64": torch.float64}


def autocast(dtype: str, device: torch.device) -> AbstractContextManager[object]:
    """Compute in bfloat16 where the config says so; weights and moments stay in float32."""
    return torch.autocast(device.type, dtype=torch.bfloat16) if dtype == "bfloat16" else nullcontext()


def learning_rate(config: TrainConfig, step: int) -> float:
    """Give the learning rate of a step (from 1), a pure function of it: 0 < lr <= config.lr.

    Warm-up rises linearly and its first step is not 0; cosine and linear then fall towards 0 and their last step is
    not 0 either.
    """
    total = config.epochs * config.steps_per_epoch
    if step <= config.warmup_steps:
        return config.lr * step / config.warmup_steps
    if config.schedule == "constant":
        return config.lr
    left = (total - step + 1) / max(total - config.warmup_steps, 1)  # 1 at the first step after warm-up
    left = min(max(left, 0.0), 1.0)
    return config.lr * (left if config.schedule == "linear" else (1 - math.cos(math.pi * left)) / 2)
