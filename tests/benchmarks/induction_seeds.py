"""Which heads two layers learn on the induction task, seed by seed: their labels, what they cause, and when they came.

python tests/benchmarks/induction_seeds.py [SEEDS [FIRST]]      seeds 0 to 9 of configs/induction.yaml, a line each
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.engine import Trainer
from mhsa_cli.core.heads.onset import histories, largest_drop
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.tasks import build_task
from mhsa_cli.records import SnapshotRecord, StepRecord

CONFIG = Path(__file__).parents[2] / "configs" / "induction.yaml"
LEARNED = 0.9  # accuracy


def main() -> None:
    """Train every seed and print what became of its heads."""
    learned = whole = 0
    count, first = [int(text) for text in sys.argv[1:3]] + [10, 0][len(sys.argv[1:3]) :]
    for seed in range(first, first + count):
        config = load_config(str(CONFIG), [f"train.seed={seed}"])
        task = build_task(config.task)
        started = time.process_time()
        trainer = Trainer(config, task, torch.device("cpu"))
        records = list(trainer.records())
        report = head_report(trainer.model(), task, seed)
        losses = [(r.step - 1, r.loss) for r in records if isinstance(r, StepRecord)]
        drop = largest_drop(losses)
        labels = {(h.layer, h.head): (h.target, h.label or "") for h in report.heads if h.target is not None}
        snapshots = [r for r in records if isinstance(r, SnapshotRecord)]
        onsets = {(h.layer, h.head): h.onset for h in histories(snapshots, losses, labels)}
        named = [h for h in report.heads if h.target is not None and h.label and "looks like" not in h.label]
        below = [h.name for h in named if h.layer == 0 and h.target == "previous"]
        above = [h.name for h in named if h.layer == 1 and h.target == "induction"]
        accuracy = trainer.last_eval.accuracy
        learned += accuracy >= LEARNED
        whole += accuracy >= LEARNED and bool(below) and bool(above)
        told = [f"{h.name} {h.label} +{h.uniform_delta_nats or 0:.3f} at {onsets[h.layer, h.head]}" for h in named]
        print(
            f"seed {seed}: accuracy {accuracy:.1%}, drop at {drop[0] if drop else None}, "
            f"{time.process_time() - started:.0f} s CPU; {'; '.join(told)}",
            flush=True,
        )
    print(f"{learned} seeds learned it; {whole} of them with a previous-token head below an induction head")


if __name__ == "__main__":
    main()
