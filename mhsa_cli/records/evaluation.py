"""A trained model on held-out rows, of its own task or with settings of the task changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mhsa_cli.records.sweep import Median
from mhsa_cli.text import typed


def settings_name(settings: Mapping[str, Any]) -> str:
    """Write settings as they are typed."""
    return " ".join(f"{key}={typed(value)}" for key, value in settings.items())


@dataclass(frozen=True, slots=True)
class Place:
    """The scored tokens at one place of the rows: their number, mean loss (nats) and accuracy. `at` counts from 0."""

    at: int
    count: int
    loss: float
    accuracy: float


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Figures on `rows` held-out rows. `settings`: those of the task that were given; none: as trained.

    `loss` (nats) and `accuracy` are means over all scored tokens, with standard errors over rows; `exact` of the
    `scored_rows` have every scored token right, `exact_low` to `exact_high` is Wilson's 95% interval of that share.
    `seen` rows also occur in training, None if not counted. Places count from the start of a row in `positions`, from
    its first scored token in `answers`.
    """

    settings: Mapping[str, Any]
    rows: int
    seen: int | None
    loss: float
    loss_se: float
    accuracy: float
    accuracy_se: float
    scored_rows: int
    exact: int
    exact_low: float
    exact_high: float
    chance_loss: float
    chance_accuracy: float
    positions: Sequence[Place]
    answers: Sequence[Place]

    @property
    def name(self) -> str:
        """The settings that were given, as they are typed."""
        return settings_name(self.settings)

    @property
    def exact_match(self) -> float:
        """The share of rows with every scored token right."""
        return self.exact / self.scored_rows


@dataclass(frozen=True, slots=True)
class GroupEvaluation:
    """The figures of a sweep's setting on one task: medians over its finished trials.

    `overrides` are the setting's, `settings` those of the task that were given; the chance levels are the task's.
    """

    overrides: Mapping[str, str]
    settings: Mapping[str, Any]
    models: int
    loss: Median
    accuracy: Median
    exact_match: Median
    chance_loss: float
    chance_accuracy: float

    @property
    def name(self) -> str:
        """The settings that were given, as they are typed."""
        return settings_name(self.settings)


@dataclass(frozen=True, slots=True)
class RunEvaluation:
    """The evaluations of a run at a step, on rows of a seed; the first is on its task as trained."""

    run: str
    step: int
    seed: int
    results: Sequence[Evaluation]
