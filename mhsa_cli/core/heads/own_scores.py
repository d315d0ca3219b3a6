"""Scores of the user's own: the weight on a target of theirs, or a function of the weights, beside what chance gives.

They are figures only: no label, verdict or claim reads them.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from mhsa_cli.config.own_score import SCORE, short_score
from mhsa_cli.core.heads.capture import finite_or_none, head_weights
from mhsa_cli.core.heads.causal import ratio
from mhsa_cli.core.heads.probe import MAX_WEIGHTS, MIN_ROWS, build_probe
from mhsa_cli.core.heads.random_baseline import percentile, untrained_weights
from mhsa_cli.core.heads.targets import lift_of, target_keys
from mhsa_cli.core.model.attention import uniform_weights
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, fixed_batch
from mhsa_cli.core.tasks.base import stream_generator
from mhsa_cli.core.user_code import call_own, describe
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import OwnFigure
from mhsa_cli.text import Head

FORMS = (["ids"], ["weights", "ids"])  # the parameters that tell a target from a value
SEED = 0  # of what a score draws at random: each call draws the same


class OwnScore:
    """A function name(ids) -> mask, whose keys are a target, or name(weights, ids) -> value of each row and head.

    Shapes: ids (B, T) int64, mask (B, T, T) boolean, weights (B, H, T, T) float32 of one layer, value (B, H), all on
    the CPU. It gets copies, and draws from generators of its own: nothing that it does reaches a training.
    Raises: UsageError where it takes other parameters, raises, or returns something else.
    """

    def __init__(self, name: str, call: Callable[..., Any]) -> None:
        self.name, self.short, self._call = name, short_score(name), call
        try:
            given = inspect.signature(call).parameters.values()
            taken = [one.name for one in given if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD]
        except (TypeError, ValueError):
            taken = []
        if taken not in FORMS:
            hint = f"def {self.short}(ids): return mask\n  def {self.short}(weights, ids): return value"
            raise self._error(f"takes ({', '.join(taken)}), wanted (ids) or (weights, ids)", hint)
        self.is_target = taken == FORMS[0]

    def _error(self, message: str, hint: str | None = None) -> UsageError:
        return UsageError(f"{self.name} {message}", hint, SCORE.code)

    def _ask(self, *tensors: Tensor) -> Any:
        devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
        with torch.random.fork_rng(devices), torch.no_grad():
            torch.default_generator.manual_seed(SEED)
            return call_own(self.name, self.short, lambda: self._call(*tensors), SCORE.code)

    def mask(self, ids: Tensor) -> Tensor:
        """Return the target of rows (B, T): (B, T, T). Raises: UsageError."""
        found, shape = self._ask(ids.detach().to("cpu", copy=True)), (*ids.shape, ids.size(1))
        if not isinstance(found, Tensor) or found.dtype != torch.bool or tuple(found.shape) != shape:
            raise self._error(f"returned {describe(found)}, wanted a boolean tensor {shape}: rows, queries, keys")
        return found.cpu()

    def check_visible(self, mask: Tensor, visible: Tensor) -> None:
        """Refuse a target (B, T, T) of later keys in a causal model. Raises: UsageError."""
        hidden = mask.triu(1) & ~visible
        if bool(hidden.any()):
            row, query, key = hidden.nonzero()[0].tolist()
            message = f"has key {key} in the target of query {query} of row {row}: it comes after it"
            raise self._error(message, "a query attends to itself and to what is before it: .tril()")

    def values(self, weights: Tensor, ids: Tensor) -> Tensor:
        """Return the values of the heads of a layer on rows (B, T): (B, H) float64. Raises: UsageError."""
        copies = weights.detach().to("cpu", torch.float32, copy=True), ids.detach().to("cpu", copy=True)
        found, shape = self._ask(*copies), tuple(weights.shape[:2])
        if not isinstance(found, Tensor) or not found.is_floating_point() or tuple(found.shape) != shape:
            raise self._error(f"returned {describe(found)}, wanted a float tensor {shape}: rows, heads")
        return found.detach().cpu().double()

    def check(self, task: Task, n_heads: int, causal: bool = True) -> None:
        """Try it once before any training, on rows of the task with random weights. Raises: UsageError."""
        T = task.seq_len
        if MIN_ROWS * n_heads * T * T > MAX_WEIGHTS:
            raise self._error(f"cannot be measured: rows of {T} tokens are too long")
        ids, visible = fixed_batch(task, SEED, "check", MIN_ROWS).inputs, torch.ones(T, T, dtype=torch.bool)
        visible = visible.tril() if causal else visible
        rows = OnRows(self, ids, visible)
        if self.is_target:
            if rows.target is None:
                raise self._error("has no query whose target holds some, not all, of the keys that it sees")
            return
        drawn = torch.rand(MIN_ROWS, n_heads, T, T, generator=stream_generator(SEED, "check", 0)) * visible
        weights = drawn / drawn.sum(-1, keepdim=True)
        for what, values in (("random weights", rows.by_row([weights])), ("uniform attention", rows.of_uniform())):
            if not bool(values.isfinite().all()):
                hint = "weights on later keys are 0: torch.xlogy(w, w) for w * w.log()"
                raise self._error(f"returned {float(values[~values.isfinite()][0])} for {what}", hint)


class OnRows:
    """A score on some rows (B, T), whose queries see the `visible` keys (T, T). `target` is None if no query counts."""

    def __init__(self, score: OwnScore, ids: Tensor, visible: Tensor) -> None:
        self.score, self.ids, self.visible = score, ids.cpu(), visible.cpu()
        self.target = None
        if score.is_target:
            mask = score.mask(ids)
            score.check_visible(mask, self.visible)
            self.target = target_keys(mask, self.visible)
        self.counts = torch.ones(len(ids), dtype=torch.float64)  # by row: values, or queries that count
        if self.target is not None:
            self.counts = self.target.keys.any(-1).sum(-1).double()
        self.uniform = float(self.means_of(self.of_uniform())[0])

    def by_row(self, weights: Sequence[Tensor]) -> Tensor:
        """Compute each head's value, or its weight on the target summed over queries, by row: (N, B) float64.

        `weights` are (B, H, T, T) of every layer. NaN where no query counts.
        """
        if not self.score.is_target:
            return torch.cat([self.score.values(layer, self.ids) for layer in weights], 1).T
        if self.target is None:
            return torch.full((sum(layer.size(1) for layer in weights), len(self.ids)), math.nan, dtype=torch.float64)
        keys = self.target.keys.to(weights[0].device, torch.float64)
        return torch.cat([torch.einsum("bhqk,bqk->hb", layer.double(), keys) for layer in weights]).cpu()

    def of_uniform(self) -> Tensor:
        """Compute the same of a head with uniform attention: (1, B)."""
        B, T = self.ids.shape
        return self.by_row([uniform_weights(self.visible, torch.float64).expand(B, 1, T, T)])

    def means_of(self, values: Tensor) -> Tensor:
        """Average values by row (N, B) over the rows: (N,)."""
        return values.sum(1) / self.counts.sum()

    def levels(self, weights: Sequence[Tensor]) -> Tensor:
        """Compute each head's lift on the target, or its mean value: (N,)."""
        means = self.means_of(self.by_row(weights))
        return lift_of(means, self.uniform) if self.score.is_target else means


class Null(NamedTuple):
    """The 1st and 99th percentile of untrained heads: of their lift on a target, or of their value."""

    low: float
    high: float


@torch.no_grad()
def own_nulls(model: TransformerLM, task: Task, scores: Sequence[OwnScore]) -> dict[str, Null]:
    """Measure scores on the untrained heads of `null_lifts`, by short name; without those that gave no number."""
    found = untrained_weights(model, task)
    if found is None or not scores:
        return {}
    probe, drawn = found
    rows = [OnRows(score, probe.ids, probe.visible) for score in scores]
    parts: dict[str, list[Tensor]] = {one.score.short: [] for one in rows}
    for stacked in drawn:
        for number in range(len(stacked[0])):
            weights = [layer[number] for layer in stacked]
            for one in rows:
                parts[one.score.short].append(one.levels(weights))
    values = {name: torch.cat(part) for name, part in parts.items()}
    known = {name: part[part.isfinite()] for name, part in values.items()}
    return {name: Null(-percentile(-part), percentile(part)) for name, part in known.items() if len(part)}


@torch.no_grad()
def own_figures(
    model: TransformerLM,
    task: Task,
    seed: int,
    scores: Sequence[OwnScore],
    nulls: Mapping[str, Null] | None = None,
) -> dict[Head, dict[str, OwnFigure]]:
    """Measure scores of every head on the rows of its other scores, by short name; empty if rows are too long.

    `nulls` are the `own_nulls` of this shape and task, measured by default.
    """
    probe = build_probe(model, task, seed) if scores else None
    if probe is None:
        return {}
    weights = head_weights(model, probe.ids)
    nulls = own_nulls(model, task, scores) if nulls is None else nulls
    found: dict[Head, dict[str, OwnFigure]] = {address: {} for address in model.heads}
    for score in scores:
        rows = OnRows(score, probe.ids, probe.visible)
        null = _in_units(nulls.get(score.short), rows)
        means, errors = ratio(rows.by_row(weights), rows.counts)
        for address, value, se in zip(model.heads, means, errors, strict=True):
            known, uniform = finite_or_none(value), finite_or_none(rows.uniform)
            lift = (
                finite_or_none(lift_of(torch.tensor(value, dtype=torch.float64), rows.uniform))
                if score.is_target
                else None
            )
            figure = OwnFigure(known, finite_or_none(se), uniform, lift, *((None, None) if null is None else null))
            found[address][score.short] = figure
    return found


def _in_units(null: Null | None, rows: OnRows) -> Null | None:
    """Turn lifts of untrained heads into weights on the target in these rows, whose uniform head may differ."""
    if null is None or not rows.score.is_target or not math.isfinite(rows.uniform):
        return null
    return Null(*(rows.uniform + (1 - rows.uniform) * lift for lift in null))
