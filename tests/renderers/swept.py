"""A hand-made sweep for the renderers' tests: four head counts, one of which had a run that failed."""

from __future__ import annotations

import math

from mhsa_cli.records.labels import Label, Role
from mhsa_cli.records.sweep import Difference, GroupStats, PairStats, SweepReport, TrialResult

NO = "no difference shown, -0.4 to +0.2 nats"
COPY, SPREAD, SHARP, UNDECIDED = (
    Label("offset", Role.SHOWN, 6),
    Label("near-uniform"),
    Label("focused"),
    Label("unclear"),
)
SETS = [
    [([UNDECIDED], 9), ([COPY], 7)],
    [([COPY] * 2, 14), ([COPY, SPREAD], 2)],
    [([COPY] * 4, 11), ([*[COPY] * 3, SPREAD], 5)],
    [([*[COPY] * 6, SHARP, SHARP], 6)],
]
GROUPS = [
    GroupStats({"model.n_heads": "1"}, 16, 3, 16, (0.066, 0.43), (None, None, None), (0.9, 1.31, 2.25), SETS[0]),
    GroupStats({"model.n_heads": "2"}, 16, 12, 16, (0.505, 0.898), (201.5, 288, None), (0.0114, 0.025, 0.61), SETS[1]),
    GroupStats({"model.n_heads": "4"}, 16, 16, 16, (0.806, 1.0), (118, 131, 140.75), (0.0038, 0.004, 0.0046), SETS[2]),
    GroupStats({"model.n_heads": "8"}, 15, 15, 16, (0.717, 0.989), (84, 91, 97), (0.0021, 0.0024, 0.0029), SETS[3]),
]
SAID = [
    "2 heads vs. 1 head, steps to 90% accuracy: 3 seeds are too few, 6 are needed "
    "(3 seeds; 13 excluded: goal not reached)",
    "2 heads end 0.71 to 1.6 nats lower than 1 head (16 seeds)",
    "4 heads need 92 to 171 fewer steps to 90% accuracy than 2 heads (12 seeds; 4 excluded: goal not reached)",
    f"4 heads vs. 2 heads, final loss: {NO} (16 seeds)",
    "8 heads need 34 to 60 fewer steps to 90% accuracy than 4 heads (15 seeds; 1 excluded: unfinished trial)",
]
KEY = "model.n_heads"
NONE, FEWER = Difference(-0.1, -0.4, 0.2, 16), Difference(-47.0, -60.0, -34.0, 15)
PAIRS = [
    PairStats(0, 1, KEY, "steps", Difference(-40.0, None, None, 3), 0, 13),
    PairStats(0, 1, KEY, "loss", Difference(-1.2, -1.6, -0.71, 16), 0, 0),
    PairStats(1, 2, KEY, "steps", Difference(-130.0, -171.0, -92.0, 12), 0, 4),
    PairStats(1, 2, KEY, "loss", NONE, 0, 0),
    PairStats(2, 3, KEY, "steps", FEWER, 1, 0),
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
