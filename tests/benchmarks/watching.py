"""What the snapshots of heads add to training: CPU time with them over without, taken in turns, the best of each.

python tests/benchmarks/watching.py [CONFIG ...]      default: configs/copy.yaml and configs/gpt_block.yaml
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.runs.heads import snapshot_to_dict
from mhsa_cli.runs.json_file import dump_json

ROUNDS = 7
CONFIGS = Path(__file__).parents[2] / "configs"


def seconds(path: str, watch: bool) -> float:
    """Train once and write every snapshot as text; returns CPU seconds."""
    config = load_config(path)
    group = Group([config], build_task(config.task), torch.device("cpu"), watch=watch)
    started = time.process_time()
    for record in records_of(group):
        if isinstance(record, SnapshotRecord):
            dump_json(snapshot_to_dict(record))
    return time.process_time() - started


def main() -> None:
    """Print a ratio for each config."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    defaults = [str(CONFIGS / "copy.yaml"), str(CONFIGS / "gpt_block.yaml")]
    parser.add_argument("configs", nargs="*", metavar="CONFIG", default=defaults)
    for path in parser.parse_args().configs:
        pairs = [(seconds(path, False), seconds(path, True)) for _ in range(ROUNDS)]
        plain, watched = (min(column) for column in zip(*pairs, strict=True))
        print(f"{Path(path).name}: {plain:.2f} s without, {watched:.2f} s with snapshots: ratio {watched / plain:.3f}")


if __name__ == "__main__":
    main()
