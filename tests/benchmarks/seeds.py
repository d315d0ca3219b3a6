"""What a ready config gives on other seeds and with other vector instructions: accuracy, loss and the heads' labels.

python tests/benchmarks/seeds.py [CONFIG...] [--seeds 10] [--first 0]      every file of configs/ if none is named

The seeds of a config train together as one stack, once for each kind of kernels: those that torch picks on this
processor, those for AVX2, and those without vector instructions. Training magnifies the rounding in which they
differ, so these are different runs of one experiment, as they are on another processor.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[2]
KERNELS = {
    "native": {},
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2"},
    "default": {"ATEN_CPU_CAPABILITY": "default", "MKL_CBWR": "COMPATIBLE"},
}


def measure(path: str, seeds: range) -> str:
    """Train the seeds of one config in this process and sum up what came, in one line."""
    import torch

    from mhsa_cli.config.load import load_config
    from mhsa_cli.core.heads.report import head_report
    from mhsa_cli.core.tasks import build_task
    from mhsa_cli.core.training.lockstep import Group

    configs = [load_config(path, [f"train.seed={seed}"]) for seed in seeds]
    task = build_task(configs[0].task)
    group = Group(configs, task, torch.device("cpu"), watch=False)
    for _ in group.records():
        pass
    roles: Counter[str] = Counter()
    for run, seed in enumerate(seeds):
        report = head_report(group.model(run), task, seed)
        named = [head for head in report.heads if head.label is not None and head.label.names_effect]
        roles.update({f"{head.target} in layer {head.layer}" for head in named})
    accuracies = sorted(record.accuracy for record in group.last_eval)
    losses = sorted(record.loss for record in group.last_eval)
    said = [f"{role} {count} of {len(seeds)}" for role, count in sorted(roles.items())]
    return (
        f"accuracy {accuracies[0]:.1%} to {accuracies[-1]:.1%}, eval loss {losses[0]:.4f} to {losses[-1]:.4f}; "
        f"heads: {', '.join(said) or 'none named'}"
    )


def main() -> None:
    """Print a line for every config and kind of kernels."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "configs", nargs="*", metavar="CONFIG", default=sorted(map(str, (ROOT / "configs").glob("*.yaml")))
    )
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.here:
        print(measure(given.configs[0], range(given.first, given.first + given.seeds)))
        return
    for config in given.configs:
        for name, environment in KERNELS.items():
            again = [sys.executable, __file__, "--here", f"--seeds={given.seeds}", f"--first={given.first}", config]
            done = subprocess.run(again, env=os.environ | environment, stdout=subprocess.PIPE, text=True, check=True)
            print(f"{Path(config).stem}, {name}: {done.stdout.strip()}", flush=True)


if __name__ == "__main__":
    main()
