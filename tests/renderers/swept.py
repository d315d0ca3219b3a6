"""A hand-made sweep for the renderers' tests: four head counts, one of which had a run that failed."""

from __future__ import annotations

import math

from mhsa_cli.records.claims import Status
from mhsa_cli.records.labels import Label, Role
from mhsa_cli.records.sweep import (
    FormedStats,
    GroupStats,
    Measure,
    Median,
    PairStats,
    SweepReport,
    TrialResult,
)

COPY, SPREAD, SHARP, UNDECIDED = (
    Label("offset", Role.SHOWN, 6),
    Label("near-uniform"),
    Label("focused"),
    Label("unclear"),
)
KEY = "model.n_heads"
SETS = [
    [([UNDECIDED], 9), ([COPY], 7)],
    [([COPY] * 2, 14), ([COPY, SPREAD], 2)],
    [([COPY] * 4, 11), ([*[COPY] * 3, SPREAD], 5)],
    [([*[COPY] * 6, SHARP, SHARP], 6)],
]
NEVER = Median(None, 352, math.inf, 16)
FORMED = [
    [FormedStats(COPY, 7, 16, Median(95.5, 80, 112, 7)), FormedStats(None, 16, 16, Median(104, 96, 127, 16))],
    [
        FormedStats(Label("induction", Role.SHOWN), 12, 16, Median(415, 369, 462, 12), is_circuit=True),
        FormedStats(COPY, 16, 16, Median(60, None, None, 4)),
        FormedStats(None, 16, 16, Median(104, 96, 127, 16)),
    ],
]


def group(heads: int, k: int, ends: tuple[float, float], steps: Median, loss: Median, **more: object) -> GroupStats:
    facts = {"models": 16, "n": 16, "watched": 352, **more}
    return GroupStats({KEY: str(heads)}, k=k, wilson95=ends, steps_to_goal=steps, final_loss=loss, **facts)  # type: ignore[arg-type]


GROUPS = [
    group(1, 3, (0.066, 0.43), NEVER, Median(1.31, 0.9, 2.25, 16), label_sets=SETS[0], formed=FORMED[0]),
    group(2, 12, (0.505, 0.898), Median(288, 202, math.inf, 16), Median(0.025, 0.0114, 0.61, 16), label_sets=SETS[1]),
    group(
        4,
        16,
        (0.806, 1.0),
        Median(131, 118, 141, 16),
        Median(0.004, 0.0038, 0.0046, 16),
        label_sets=SETS[2],
        formed=FORMED[1],
    ),
    group(
        8,
        15,
        (0.717, 0.989),
        Median(91, 84, 97, 16),
        Median(0.0024, 0.0021, math.inf, 16),
        models=15,
        label_sets=SETS[3],
    ),
]


def pair(first: int, measure: Measure, p: float, status: Status, *found: object, **more: object) -> PairStats:
    middle = Median(*found) if found else None  # type: ignore[arg-type]
    return PairStats(first, first + 1, KEY, measure, p, min(1.0, 9 * p), status, middle, **more)  # type: ignore[arg-type]


PAIRS = [
    pair(0, "steps", 0.25, Status.NOT_MEASURED, None, None, None, 3, unfinished=13),
    pair(0, "loss", 1e-4, Status.OPPOSITE, -1.2, -1.6, -0.71, 16, mean=-1.1),
    pair(0, "success", 0.0036, Status.SHOWN, counts=((3, 16), (12, 16))),
    pair(1, "steps", 1e-4, Status.OPPOSITE, -130.0, -math.inf, -92.0, 16),
    pair(1, "loss", 0.3, Status.NOT_SHOWN, -0.1, -0.4, 0.2, 16, mean=-0.1),
    pair(1, "success", 0.1, Status.NOT_SHOWN, counts=((12, 16), (16, 16))),
    pair(2, "steps", 1e-4, Status.OPPOSITE, -47.0, -60.0, -34.0, 15, mean=-46.0, unfinished=1),
    pair(2, "loss", 0.02, Status.NOT_SHOWN, -0.5, -0.9, -0.1, 15, mean=-0.5, unfinished=1),
    pair(2, "success", 1.0, Status.NOT_SHOWN, counts=((16, 16), (15, 15))),
]
FAILED = "NaN in the loss at step 41: the weights are those of step 40"
TRIALS = [
    TrialResult(
        run=f"sweep/n_heads-{2**cell}/seed-{42 + seed}",
        cell=cell,
        seed=42 + seed,
        status="failed" if (cell, seed) == (3, 7) else "finished",
        final_loss=0.004,
        final_accuracy=1.0,
        steps_to_goal=131,
        seconds=2.5,
        labels=[COPY] * 2**cell,
        message=FAILED if (cell, seed) == (3, 7) else "",
        cause="nonfinite" if (cell, seed) == (3, 7) else None,
    )
    for cell in range(4)
    for seed in range(16)
]
REPORT = SweepReport(GROUPS, PAIRS, TRIALS, 0.9)

STEPS = range(1, 361)


def curve(title: str, middle: float) -> tuple[str, range, list[float], list[float], list[float]]:
    """A median that falls around the step `middle`, between a band of a quarter and three quarters of the runs."""

    def loss(step: int, at: float) -> float:
        return 0.003 + 4.155 / (1 + math.exp(min(700.0, (step - at) / 25)))

    bands = [[loss(step, middle * share) for step in STEPS] for share in (1.0, 0.7, 1.4)]
    return title, STEPS, bands[0], bands[1], bands[2]


CURVES = [curve(f"n_heads={2**i}", 290 / (i + 1)) for i in range(4)]
