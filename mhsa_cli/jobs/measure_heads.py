"""What is measured of a trained run's heads: their maps, scores and circuits, and what is lost without some of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property

from mhsa_cli.config.custom_attention import FOR_MAPS
from mhsa_cli.core.heads.capture import head_maps, read_tokens
from mhsa_cli.core.heads.causal import ablate
from mhsa_cli.core.heads.circuits import circuits
from mhsa_cli.core.heads.prefix_matching import prefix_matching
from mhsa_cli.core.heads.probe import build_probe
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.load_model import Trained, trained
from mhsa_cli.records import Ablation, Circuits, HeadMaps
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head


def measure(folder: RunDir, attention: str | None = None) -> HeadMaps:
    """Capture the maps of the newest checkpoint and measure its heads. Raises: UsageError if it shows no maps."""
    model, task, config, step = _shown(trained(folder, attention))
    maps = head_maps(model, task, config.train.seed, step)
    return replace(maps, report=head_report(model, task, config.train.seed))


def maps_on_tokens(folder: RunDir, tokens: str, attention: str | None = None) -> HeadMaps:
    """Capture the maps of the newest checkpoint on the given tokens. Raises: UsageError if it shows no maps."""
    model, task, config, step = _shown(trained(folder, attention))
    return head_maps(model, task, config.train.seed, step, read_tokens(tokens, task, config.max_seq_len))


def _shown(found: Trained) -> Trained:
    """Refuse to look at the heads of a block that does not show its weights. Raises: UsageError."""
    custom = found.model.custom
    if custom is not None and not custom.found.shows:
        raise UsageError(f"{custom.attention.target} has no maps of heads: {custom.found.why}", FOR_MAPS)
    return found


class Measurements:
    """Further measurements of one run's heads; its checkpoint is loaded once, for the first that needs it."""

    def __init__(self, folder: RunDir, attention: str | None = None) -> None:
        self._folder, self._attention = folder, attention

    @cached_property
    def _trained(self) -> Trained:
        return trained(self._folder, self._attention)

    @property
    def step(self) -> int:
        """The step of the checkpoint that is measured."""
        return self._trained.step

    def prefix_matching(self, step: int) -> list[float]:
        """Score every head as Olsson et al. 2022 do. Raises: RunError if the checkpoint is not of `step`."""
        model, task, config, own = self._trained
        if own != step:
            said = f"the newest whole checkpoint is of step {own}, these scores are of step {step}"
            raise RunError(said, "leave out --definition")
        return prefix_matching(model, task, config.train.seed)

    def circuits(self) -> Circuits:
        """Find what the heads' weights compute."""
        model, task, config, step = self._trained
        return circuits(model, task, config.train.seed, step)

    def ablation(self, heads: Sequence[Head]) -> tuple[list[Ablation], str]:
        """Measure loss and accuracy without these heads; also says on which rows. Raises: UsageError, RunError."""
        model, task, config, _ = self._trained
        probe = build_probe(model, task, config.train.seed)
        if probe is None:
            raise UsageError(f"--ablate: rows of {task.seq_len} tokens are too long to measure heads on")
        found = ablate(model, probe.batch, heads)
        if not all(math.isfinite(one.loss) for one in found):
            raise RunError("the loss without these heads is not finite: the weights hold NaN, infinity or huge numbers")
        return found, probe.inputs
