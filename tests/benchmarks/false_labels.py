"""Count the labels that heads get which have learned nothing: every one of them is false.

python tests/benchmarks/false_labels.py [MODELS]        default: 53 models of each kind, 1,040 heads in all

Three kinds: untrained; wide, whose weights are five times as large as initial ones, so that heads are focused as those
of trained models are; and trained on random answers, which nothing predicts. Counted are labels with a target, those
among them that name the effect of a head, and the labels that patterns alone would give, as if they mattered.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads import probe
from mhsa_cli.core.heads.labels import labels_of
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.lockstep import Group, build_model, records_of
from mhsa_cli.records.labels import Label, Role
from tests.core.noise import Noise

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


KINDS = ("untrained", "wide", "unpredictable")
STEPS = 80


class Count(NamedTuple):
    """Heads looked at, the labels with a target, and those that the patterns alone would give."""

    heads: int
    labels: list[Label]
    patterns: list[Label]


def model_of(kind: str, seed: int) -> tuple[TransformerLM, Task]:
    """Build a model that has learned nothing, of the shape whose turn it is."""
    more = [f"train.seed={seed}", "train.epochs=1", f"train.steps_per_epoch={STEPS}", "train.lr=0.01"]
    config = load_config(None, [*SHAPES[seed % len(SHAPES)], *more])
    task = build_task(config.task)
    if kind == "unpredictable":
        task = Noise(task.vocab_size, task.seq_len)
        group = Group([config], task, torch.device("cpu"), watch=False)
        for _ in records_of(group):
            pass
        return group.model(0), task
    model = build_model(config, task)
    if kind == "wide":
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.mul_(5.0)
    return model, task


def count(models: int, kind: str, rows: int = probe.ROWS) -> Count:
    """Measure `models` models of a kind, shape after shape, each of its own seed."""
    found = Count(0, [], [])
    for seed in range(models):
        model, task = model_of(kind, seed)
        with mock.patch.object(probe, "ROWS", rows):
            heads = head_report(model, task, seed).heads
        labels = [head.label for head in heads if head.label is not None and head.label.target is not None]
        patterns = [labels_of(head, Role.PATTERN, task.seq_len)[0] for head in heads]
        named = [label for label in patterns if label.target is not None]
        found = Count(found.heads + len(heads), found.labels + labels, found.patterns + named)
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="?", type=int, default=53, metavar="MODELS")
    n = parser.parse_args().models
    print(f"{n} models of each kind, {len(SHAPES)} shapes")
    for kind in KINDS:
        heads, labels, patterns = count(n, kind)
        effects = sum(label.names_effect for label in labels)
        print(f"{kind:14} {heads} heads, {len(labels)} labelled, {effects} by effect, {len(patterns)} by pattern alone")
        for name, times in sorted(Counter(label.plain.pattern for label in patterns).items()):
            print(f"{'':14} {times} {name}")
