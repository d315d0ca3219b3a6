"""What part of attention's worth the labels of a model account for, and what its report begins with.

python tests/benchmarks/labels_kept.py [CONFIG...] [--seeds N]       every quick one of configs/ if none is named

A row for each config, trained with its own seed, or with --seeds for the seeds 0 to N - 1, which train together as one
stack. The part is that of the replacement test: docs/reference/heads.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.tasks import TrainBatches, build_task
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.records.claims import Claim
from mhsa_cli.records.heads import HeadReport, Verdict
from mhsa_cli.records.labels import set_words

ROOT = Path(__file__).parents[2]
QUICK = [
    "alibi", "copy", "copy_h8", "copy_lengths", "copy_uniform", "gpt_block", "gqa", "induction", "learned", "linear",
    "mqa", "repeat", "repeat_h1", "repeat_h2", "repeat_h8", "reverse", "rope", "shift", "window",
]  # fmt: skip
CIRCUIT = "solved by an induction circuit"


def reports(path: str, seeds: Sequence[int] | None) -> Iterator[tuple[int, float, HeadReport]]:
    """Train a config, with every seed if any are given, and measure the heads: seed, accuracy, report."""
    configs = [load_config(path, [f"train.seed={seed}"]) for seed in seeds] if seeds else [load_config(path, [])]
    if configs[0].train.init is not None:
        raise SystemExit(f"{path}: weights of a file are not read here")
    task = build_task(configs[0].task)
    group = Group(configs, task, torch.device("cpu"), watch=False)
    for _ in group.records():
        pass
    for run, config in enumerate(configs):
        training = TrainBatches.of(task, config.train), config.total_steps
        report = head_report(group.model(run), task, config.train.seed, training=training)
        yield config.train.seed, group.last_eval[run].accuracy, report


def kept(verdict: Verdict) -> str:
    """Write the part that the labels keep, with its standard error."""
    if verdict.labels_kept is None:
        return "–"
    return f"{verdict.labels_kept:.2f} ± {verdict.labels_kept_se:.2f}"


def first_words(claims: Sequence[Claim]) -> str:
    """Name the claim that the report begins with: the headline, or what the patterns do."""
    found = next((claim for claim in claims if claim.predicate in ("solved by", "works by")), None)
    if found is not None:
        return CIRCUIT if found.evidence["circuit"] and found.predicate == "solved by" else found.predicate
    shown = ("pattern matters", "attention harmful", "no effect shown", "frozen uniform")
    return next(f"none; {claim.predicate}" for claim in claims if claim.predicate in shown)


def main() -> None:
    """Print a table, and of several seeds in how many the headline names an induction circuit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "configs", nargs="*", metavar="CONFIG", default=[f"{ROOT}/configs/{name}.yaml" for name in QUICK]
    )
    parser.add_argument("--seeds", type=int, metavar="N")
    given = parser.parse_args()
    print("| config | seed | accuracy | labels | part kept | headline |\n|---|---|---|---|---|---|")
    circuits = runs = 0
    for path in given.configs:
        for seed, accuracy, report in reports(path, None if given.seeds is None else range(given.seeds)):
            labels = [head.label for head in report.heads if head.label is not None]
            headline = first_words(report.verdict.claims)
            circuits, runs = circuits + (headline == CIRCUIT), runs + 1
            cells = (Path(path).stem, seed, f"{accuracy:.1%}", set_words(labels), kept(report.verdict), headline)
            print(f"| {' | '.join(map(str, cells))} |", flush=True)
    if given.seeds is not None:
        print(f"\ninduction circuit in the headline, confirmed by path patching: {circuits} of {runs}")


if __name__ == "__main__":
    main()
