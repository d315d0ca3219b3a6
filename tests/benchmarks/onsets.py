"""When the heads of an induction circuit form: onsets, rises and leads of a config's runs, as a table in Markdown.

python tests/benchmarks/onsets.py [CONFIG] [--seeds 10] [--first 0]      configs/induction.yaml if none is named

The seeds train together as one stack. `layer 0` is what uniform attention in all heads of layer 0 costs at the onset of
the first induction head, in nats on held-out rows: what the heads there are worth by then, whatever each attends to.
"""

from __future__ import annotations

import argparse
import copy
from pathlib import Path

import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads.causal import Ablator
from mhsa_cli.core.heads.history import histories, largest_drop, order_claims, status_of
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import build_task, fixed_batch
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.core.training.stack import unstack
from mhsa_cli.records.timeline import HeadHistory, Interval, SnapshotRecord
from mhsa_cli.records.training import StepRecord

CONFIG = Path(__file__).parents[2] / "configs/induction.yaml"
COLUMNS = (
    "seed",
    "previous token",
    "onset",
    "rise",
    "lead",
    "induction",
    "onset",
    "rise",
    "lead",
    "drop",
    "order",
    "layer 0",
)


def span(interval: Interval | None) -> str:
    """Write an interval."""
    return "none" if interval is None else f"{interval.low}–{interval.high}"


def figures(found: list[HeadHistory], target: str) -> tuple[list[str], HeadHistory | None]:
    """Sum up the labelled heads of one target: their names, and figures of the one that comes first."""
    heads = [head for head in found if head.target == target and head.label]
    first = min(heads, key=lambda head: head.onset.high if head.onset else 10**9, default=None)
    if first is None or first.lead is None:
        return [", ".join(head.name for head in heads) or "none", "", "", ""], None
    names = ", ".join([first.name, *(head.name for head in heads if head is not first)])
    lead = str(status_of(first.lead)).replace("opposite shown", "after")
    return [names, span(first.onset), span(first.rise), lead], first


def layer_0(model: TransformerLM, group: Group, seed: int) -> float:
    """Measure what uniform attention in layer 0 adds to the loss."""
    ablator = Ablator(model, fixed_batch(group.task, seed, "probe", 64))
    mask = torch.tensor([[head.layer == 0 for head in model.heads]])
    return float(ablator.ablated_rows("uniform", mask).sum() / ablator.counts.sum()) - ablator.loss


def main() -> None:
    """Train, and print a row for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", nargs="?", metavar="CONFIG", default=str(CONFIG))
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--first", type=int, default=0)
    given = parser.parse_args()
    seeds = range(given.first, given.first + given.seeds)
    configs = [load_config(given.config, [f"train.seed={seed}", "train.log_every=1"]) for seed in seeds]
    group = Group(configs, build_task(configs[0].task), torch.device("cpu"))
    snapshots: list[list[SnapshotRecord]] = [[] for _ in seeds]
    losses: list[list[tuple[int, float]]] = [[] for _ in seeds]
    weights = {0: group.stack.weights.clone()}  # by step

    def keep() -> bool:
        if group.step in group.snapshot_steps:
            weights[group.step] = group.stack.weights.clone()
        return False

    group.stop = keep
    for run, record in group.records():
        if isinstance(record, SnapshotRecord):
            snapshots[run].append(record)
        elif isinstance(record, StepRecord):
            losses[run].append((record.step - 1, record.loss))
    stacked = copy.deepcopy(group.stack.model)
    print("|", " | ".join(COLUMNS), "|")
    print("|", " | ".join("---" for _ in COLUMNS), "|")
    for run, seed in enumerate(seeds):
        report = head_report(group.model(run), group.task, seed)
        labels = {h.address: (h.target, h.label.text) for h in report.heads if h.label is not None and h.target}
        found = histories(snapshots[run], losses[run], labels)
        previous, _ = figures(found, "previous")
        induction, first = figures(found, "induction")
        drop, worth = largest_drop(losses[run]), ""
        if first is not None and first.onset is not None:
            for name, parameter in stacked.named_parameters():
                parameter.data = group.stack.views(weights[first.onset.high])[name]
            worth = f"{layer_0(unstack(stacked, run), group, seed):.2f}"
        order = ", ".join(dict.fromkeys(str(claim.status) for claim in order_claims(found)))
        row = [str(seed), *previous, *induction, span(drop.interval if drop else None), order, worth]
        print("|", " | ".join(row), "|", flush=True)


if __name__ == "__main__":
    main()
