"""Count the pairs of models that `mhsa compare` calls more alike than random heads, though they have learned nothing.

python tests/benchmarks/false_matches.py [PAIRS]        default: 300 pairs of each kind

Untrained models and wide ones of five shapes (as in false_labels.py), of two seeds each; and, for the power of the
test, configs/copy.yaml trained with two seeds.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads.match import compare_models
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.records.claims import LEVEL, Status
from tests.benchmarks.false_labels import SHAPES, model_of

Model = tuple[TransformerLM, Task]
TRAINED = 10  # pairs


def unlearned(kind: str, pairs: int) -> Iterator[tuple[Model, Model]]:
    """Build pairs of models of one shape, shape after shape."""
    n = len(SHAPES)
    for index in range(pairs):
        seed = index // n * 2 * n + index % n
        yield model_of(kind, seed), model_of(kind, seed + n)


def trained(pairs: int) -> Iterator[tuple[Model, Model]]:
    """Train copy with 2 * pairs seeds."""
    file = str(Path(__file__).parents[2] / "configs" / "copy.yaml")
    configs = [load_config(file, [f"train.seed={seed}"]) for seed in range(2 * pairs)]
    task = build_task(configs[0].task)
    group = Group(configs, task, torch.device("cpu"), watch=False)
    for _ in records_of(group):
        pass
    for index in range(0, 2 * pairs, 2):
        yield (group.model(index), task), (group.model(index + 1), task)


def count(pairs: Iterator[tuple[Model, Model]]) -> tuple[int, int, int]:
    """Count the pairs, those that are shown, and those with a p-value of at most LEVEL."""
    found = [compare_models(*first, *second, seed) for seed, (first, second) in enumerate(pairs)]
    low = [one for one in found if one.p_value is not None and one.p_value <= LEVEL]
    return len(found), sum(one.status is Status.SHOWN for one in found), len(low)


if __name__ == "__main__":
    torch.set_num_threads(1)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="?", type=int, default=300, metavar="PAIRS")
    n = parser.parse_args().pairs
    made = {"untrained": unlearned("untrained", n), "wide": unlearned("wide", n), "copy": trained(TRAINED)}
    for kind, models in made.items():
        pairs, shown, low = count(models)
        print(f"{kind:10} {pairs} pairs, {shown} shown, {low} with p <= {LEVEL}")
