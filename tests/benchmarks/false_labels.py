"""Count the labels that heads of untrained models get: these heads have learned nothing, so every label is false.

python tests/benchmarks/false_labels.py [MODELS]        default: 100 models

A label needs the verdict ("the pattern matters") and its own conditions. Counted are the labels as they are, and those
without the verdict, as if the patterns mattered. Wide weights are five times as large as initial ones: their heads are
focused, as those of trained models are.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads import probe
from mhsa_cli.core.heads.labels import label_head
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.lockstep import build_model

SHAPES = [  # task and model; no two sizes of a shape are equal
    ["task.name=copy", "task.vocab_size=31", "task.seq_len=12", "model.d_model=24", "model.n_heads=4"],
    ["task.name=induction", "task.vocab_size=23", "task.seq_len=16", "model.d_model=18", "model.n_heads=3"]
    + ["model.n_layers=2", "model.residual=true", "model.norm=rmsnorm", "model.positions=rope"],
    ["task.name=reverse", "task.vocab_size=19", "task.seq_len=10", "model.d_model=28", "model.n_heads=7"]
    + ["model.positions=learned", "model.n_kv_heads=1"],
    ["task.name=shift", "task.vocab_size=21", "task.seq_len=13", "model.d_model=20", "model.n_heads=5"]
    + ["model.positions=alibi", "model.n_layers=2", "model.residual=true", "model.d_mlp=33"],
    ["task.name=repeat", "task.vocab_size=17", "task.seq_len=11", "model.d_model=30", "model.n_heads=6"]
    + ["model.positions=none", "model.window=7"],
]


class Count(NamedTuple):
    """Heads looked at, heads labelled, and heads named with the verdict held open."""

    heads: int
    labelled: int
    named: list[str]


def counts(models: int, wide: float = 1.0, rows: int = probe.ROWS) -> Iterator[Count]:
    """Measure `models` untrained models, shape after shape, each of its own seed."""
    for seed in range(models):
        config = load_config(None, [*SHAPES[seed % len(SHAPES)], f"train.seed={seed}"])
        task = build_task(config.task)
        model = build_model(config, task)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(wide)
        with mock.patch.object(probe, "ROWS", rows):
            report = head_report(model, task, seed)
        open_verdict = replace(report.verdict, pattern_matters=True)
        forced = [label_head(head, open_verdict) for head in report.heads]
        named = [head.label for head in report.heads if head.target is not None]
        wrong = [head.label.text for head in forced if head.label is not None and head.target is not None]
        yield Count(len(forced), len(named), wrong)


def total(models: int, wide: float = 1.0, rows: int = probe.ROWS) -> Count:
    """Add up what `counts` finds."""
    found = list(counts(models, wide, rows))
    return Count(sum(c.heads for c in found), sum(c.labelled for c in found), [n for c in found for n in c.named])


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="?", type=int, default=100, metavar="MODELS")
    n = parser.parse_args().models
    print(f"{n} untrained models of {len(SHAPES)} shapes")
    for words, wide in (("initial weights", 1.0), ("wide weights", 5.0)):
        heads, labelled, named = total(n, wide)
        kinds = ", ".join(f"{named.count(name)} {name}" for name in sorted(set(named)))
        print(f"{words:16} {heads} heads, {labelled} labelled, {len(named)} labelled without the verdict")
        if kinds:
            print(f"{'':16} {kinds}")
