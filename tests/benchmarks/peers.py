"""Print how our training compares with its peers: the same model, weights and batches, in turns, one thread each.

pip install 'mhsa-cli[bench]'
python tests/benchmarks/peers.py [PART ...]        a Markdown page; PART: a word of a row, such as JAX or B=16

Ratios are ours over theirs, so below 1 we are faster. Peers that are not installed are named as skipped.
"""

from __future__ import annotations

import os

# Before any library starts its threads. The rest is pinned to one core, where the system can do that.
os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
os.environ["JAX_PLATFORMS"] = "cpu"

import argparse
import importlib
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from others.page import heading, on_one_core, quartiles, row
from others.stacks import MANY, Many, compare_many
from others.turns import Result, Work, compare

BLOCK = ["model.d_mlp=128", "model.residual=true", "model.norm=layernorm", "model.positions=learned"]
BLOCK += ["train.lr=1e-3"]
NANO = ["train.schedule=cosine", "train.warmup_steps=10", "train.grad_clip=1.0", "train.betas=[0.9,0.95]"]
MIDDLE = ["task.seq_len=64", "model.d_model=64", "model.n_heads=8", "model.n_layers=2", "model.d_mlp=256"]

# name, file and class of the other side, settings of ours, steps between two looks and how many looks
ROWS: list[tuple[str, str, list[str], int, int]] = [
    ("lesson-style loop", "lesson.Lesson", [], 20, 24),
    ("nn.MultiheadAttention", "lesson.Module", [], 20, 24),
    ("JAX, jitted step", "jax_block.Step", [], 20, 24),
    ("JAX, lax.scan", "jax_block.Scan", [], 120, 8),
    ("Equinox", "equinox_block.Equinox", [], 20, 24),
    ("nanoGPT-style loop", "gpt.NanoGPT", [*BLOCK, *NANO], 20, 24),
    ("Lightning", "lightning_gpt.Lightning", BLOCK, 20, 24),
    ("Hugging Face GPT-2, Trainer", "hugging_face.HuggingFace", BLOCK, 20, 24),
    ("x-transformers", "x_transformers_gpt.XTransformers", [*BLOCK, "model.bias=false"], 20, 24),
]
PACKAGES = ("torch", "jax", "jaxlib", "equinox", "lightning", "transformers", "accelerate", "x-transformers")
SIZES = (16, 64)
RATIOS = ["CPU time, ours over theirs", "wall time"]
HEADINGS = ["work", "peer", "CPU ms a step, ours / theirs", *RATIOS, "parameters"]
HEADINGS += ["loss of the first step", "mean loss of the last steps"]
HEADINGS_MANY = ["peer", "CPU s, ours / theirs", *RATIOS, "loss of the last step"]


def works() -> list[tuple[str, str, Work]]:
    """List every comparison: the other side's name, where it is, and the work."""
    found = []
    for name, place, settings, chunk, rounds in ROWS:
        for rows in SIZES:
            form = "block, LN + MLP" if settings else "bare block"
            work = Work(f"{form}, B={rows}", [*settings, f"train.batch_size={rows}"], chunk, rounds)
            found.append((name, place, work))
    middle = Work("middle, 2 blocks, B=128", [*BLOCK, *NANO, *MIDDLE, "train.batch_size=128"], 2, 12)
    return [*found, ("nanoGPT-style loop", "gpt.NanoGPT", middle)]


def load(place: str) -> type:
    """Find the other side. Raises: ImportError if it is not installed."""
    file, _, name = place.partition(".")
    found: type = getattr(importlib.import_module(f"others.{file}"), name)
    return found


def line(result: Result) -> str:
    """Write a row of the table."""
    parameters = " / ".join(f"{n:,}" for n in dict.fromkeys(result.parameters))
    losses = [f"{pair[0]:.5f} / {pair[1]:.5f}" for pair in (result.first, result.last)]
    times = f"{result.ms[0]:.2f} / {result.ms[1]:.2f}"
    return row([result.work, result.other, times, *ratios(result), parameters, *losses])


def ratios(result: Result | Many) -> list[str]:
    """Write the ratios of CPU and of wall time."""
    return [f"**{quartiles(result.cpu)}**", quartiles(result.wall)]


def main() -> None:
    """Print the page's tables, row by row."""
    warnings.filterwarnings("ignore")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART")
    parts = parser.parse_args().parts
    torch.set_num_threads(1)
    print(on_one_core(PACKAGES))
    print(heading(HEADINGS))
    skipped, busiest = [], 0.0
    for name, place, work in works():
        if parts and not any(part in f"{name} {work.name}" for part in parts):
            continue
        try:
            other = load(place)
        except ImportError as error:
            skipped.append(f"{name}, {work.name} ({error})")
            continue
        result = compare(work, name, other)
        busiest = max(busiest, result.threads)
        print(line(result), flush=True)
    print(f"\nCPU over wall time of a peer: at most {busiest:.2f}")
    print("\n" + heading([MANY, *HEADINGS_MANY]))
    for rows in SIZES:
        title = f"64 models, B={rows}"
        if parts and not any(part in f"JAX, vmap in lax.scan {title}" for part in parts):
            continue
        try:
            train = importlib.import_module("others.jax_block").many
        except ImportError as error:
            skipped.append(f"JAX, vmap in lax.scan, {title} ({error})")
            continue
        print(many_line(title, compare_many(rows, train)), flush=True)
    if skipped:
        print("\nSkipped: " + "; ".join(skipped))


def many_line(title: str, result: Many) -> str:
    """Write a row of the second table."""
    seconds = f"{result.seconds[0]:.1f} / {result.seconds[1]:.1f}"
    losses = f"{result.losses[0]:.4f} / {result.losses[1]:.4f}"
    return row([title, "JAX, vmap in lax.scan, compiling", seconds, *ratios(result), losses])


if __name__ == "__main__":
    main()
