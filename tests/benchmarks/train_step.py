"""Print how our training step compares with a lesson-style loop: ratios of CPU time, interleaved in one run.

python tests/benchmarks/train_step.py            the step at B=16 and B=64, whole processes, and the start-up
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
CHUNK, ROUNDS = 10, 35  # steps between two looks at the clock, and how often


def compare_steps(batch_size: int) -> None:
    """Time both steps in turns, on the lesson's task, over the lesson's 360 steps."""
    import torch
    from others.lesson import Lesson
    from others.turns import Work, compare

    torch.set_num_threads(1)
    found = compare(Work(f"B={batch_size}", [f"train.batch_size={batch_size}"], CHUNK, ROUNDS), "lesson", Lesson)
    print(
        f"step at B={batch_size:<3} ours {found.ms[0]:6.2f} ms   lesson {found.ms[1]:6.2f} ms   "
        f"ratio {found.cpu[1]:.2f} (quartiles {found.cpu[0]:.2f} to {found.cpu[2]:.2f})"
    )


def cpu_of(command: list[str], folder: str) -> float:
    """Run a process with one thread and measure its CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.run(command, cwd=folder, check=True, capture_output=True, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def compare_processes(title: str, ours: list[str], theirs: list[str], rounds: int = 5) -> None:
    """Time two whole processes in turns."""
    pairs = []
    for round_ in range(rounds + 1):
        with tempfile.TemporaryDirectory() as folder:
            pair = cpu_of([sys.executable, *ours], folder), cpu_of([sys.executable, *theirs], folder)
        if round_:  # the first one warms the disk's cache
            pairs.append(pair)
    seconds = [statistics.median(column) for column in zip(*pairs, strict=True)]
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"{title:<46} {seconds[0]:6.2f} s against {seconds[1]:6.2f} s   ratio {ratio:.2f}")


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    compare_steps(16)
    compare_steps(64)
    lesson = str(HERE / "lesson_loop.py")
    mhsa = ["-m", "mhsa_cli", "train", "--json"]
    compare_processes("360 lesson steps, whole process", mhsa, [lesson, "360"])
    first_step = [*mhsa, "epochs=1", "steps_per_epoch=1", "eval_sequences=1"]
    compare_processes("mhsa train, one step, against `import torch`", first_step, ["-c", "import torch"])
    compare_processes("mhsa --help, against `import torch`", ["-m", "mhsa_cli", "--help"], ["-c", "import torch"])
