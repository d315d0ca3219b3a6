"""Print what whole trainings cost, from the start of the process to its end: ours, the lesson's loop and JAX.

python tests/benchmarks/processes.py [STEPS ...]  a Markdown page; STEPS: by default 0 (the import), 1, 360, 3000, 30000

CPU seconds, one thread, medians of processes in turns. Ours evaluates, saves, and measures its heads, the others only
train. JAX compiles in every process.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from others.page import heading, on_one_core, row
from train_step import cpu_of

HERE = Path(__file__).parent
ROUNDS = {0: 3, 1: 3, 360: 3, 3000: 2, 30000: 1}  # steps, and how often all take a turn
NAMES = ("ours", "lesson-style loop", "JAX, jitted step", "JAX, lax.scan")
EPOCHS = 3


def commands(steps: int, batch_size: int) -> dict[str, list[str]]:
    """List the processes of so many steps, by name; of none the imports alone."""
    if steps == 0:
        torch, jax = ["-c", "import torch"], ["-c", "import jax.numpy"]
        return dict(zip(NAMES, (torch, torch, jax, jax), strict=True))
    epochs = min(EPOCHS, steps)
    ours = ["-m", "mhsa_cli", "train", "--json", f"train.epochs={epochs}", f"train.steps_per_epoch={steps // epochs}"]
    jax = [str(HERE / "jax_loop.py"), str(steps), str(batch_size)]
    lesson = [str(HERE / "lesson_loop.py"), str(steps), str(batch_size)]
    each = ([*ours, f"train.batch_size={batch_size}"], lesson, [*jax, "step"], [*jax, "scan"])
    return dict(zip(NAMES, each, strict=True))


def measure(steps: int, batch_size: int) -> list[float | None]:
    """Give the median CPU seconds of each process; None where JAX is not installed."""
    spent: dict[str, list[float]] = {name: [] for name in NAMES}
    rounds = ROUNDS.get(steps, 1)
    for turn in range(rounds + (rounds > 1)):
        for name, command in commands(steps, batch_size).items():
            if "JAX" in name and find_spec("jax") is None:
                continue
            with tempfile.TemporaryDirectory() as folder:
                seconds = cpu_of([sys.executable, *command], folder)
            if turn or rounds == 1:  # the first one warms the disk's cache
                spent[name].append(seconds)
    return [statistics.median(found) if found else None for found in spent.values()]


def main() -> None:
    """Print the page, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="*", type=int, metavar="STEPS")
    parser.add_argument("--batch-size", type=int, default=16)
    given = parser.parse_args()
    print(on_one_core(["torch", "jax", "jaxlib"]))
    print(heading([f"steps, B={given.batch_size}", *(f"{name}, CPU s" for name in NAMES)]))
    for steps in given.steps or ROUNDS:
        cells = ["" if seconds is None else f"{seconds:.2f}" for seconds in measure(steps, given.batch_size)]
        print(row(["import" if steps == 0 else f"{steps:,}", *cells]), flush=True)


if __name__ == "__main__":
    main()
