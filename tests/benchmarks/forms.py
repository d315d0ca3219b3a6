"""Print what each form of our model costs: beside a lesson-style loop with the same form, and our model without it.

python tests/benchmarks/forms.py [FORM ...]        a Markdown page; FORM: the name of a row, or part of one
python tests/benchmarks/forms.py --quick           few steps: whether it runs

Ratios are of CPU time, one thread, in turns. Weights and batches are equal, and so are the losses of the first step,
but for dropout, which each side draws for itself.
"""

from __future__ import annotations

import os

# Before any library starts its threads.
os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))

from others.form import Form
from others.ourselves import Without
from others.page import heading, on_one_core, quartiles, row
from others.turns import Result, Work, compare

BLOCK = ["model.d_mlp=128", "model.residual=true", "model.norm=layernorm"]
NO_POSITIONS = ["model.positions=none"]
LLAMA = ["model.norm=rmsnorm", "model.mlp=swiglu", "model.positions=rope", "model.n_kv_heads=2", "model.bias=false"]
GPT2 = ["model.positions=learned", "model.dropout=0.1", "model.tie_embeddings=true"]

# The form's settings, and those of the model without it.
FORMS: dict[str, tuple[list[str], list[str]]] = {
    "plain": ([], []),
    "rope": (["model.positions=rope"], NO_POSITIONS),
    "alibi": (["model.positions=alibi"], NO_POSITIONS),
    "dropout": (["model.dropout=0.1"], []),
    "tied": (["model.tie_embeddings=true"], []),
    "gqa": (["model.n_kv_heads=2"], []),
    "mqa": (["model.n_kv_heads=1"], []),
    "window": (["model.window=4"], []),
    "uniform": (["model.attention=uniform"], []),
    "linear": (["model.attention=linear"], []),
    "bfloat16": (["train.dtype=bfloat16"], []),
    "LN + MLP": (BLOCK, BLOCK),
    "LN + MLP, rope": ([*BLOCK, "model.positions=rope"], [*BLOCK, *NO_POSITIONS]),
    "LN + MLP, dropout": ([*BLOCK, "model.dropout=0.1"], BLOCK),
    "rmsnorm": ([*BLOCK, "model.norm=rmsnorm"], BLOCK),
    "swiglu": ([*BLOCK, "model.mlp=swiglu"], BLOCK),
    "Llama-like": ([*BLOCK, *LLAMA], BLOCK),
    "GPT-2-like": ([*BLOCK, *GPT2], [*BLOCK, "model.positions=learned"]),
}
SIZES = (16, 64)
CHUNK, ROUNDS = 20, 16
HEADINGS = ["form", "B", "ms a step", "lesson's loop", "ours over the lesson's", "without the form"]
HEADINGS += ["with over without", "parameters", "loss of the first step"]


def settings(form: str, batch_size: int, without: bool = False) -> list[str]:
    """List the settings of a row, the last value of a key alone."""
    chosen = dict(text.split("=", 1) for text in FORMS[form][without])
    return [f"{key}={value}" for key, value in chosen.items()] + [f"train.batch_size={batch_size}"]


def measure(form: str, batch_size: int, chunk: int = CHUNK, rounds: int = ROUNDS) -> tuple[Result, Result | None]:
    """Compare a form with the lesson's loop and, unless it is the plain one, with our model without it."""
    work = Work(f"{form}, B={batch_size}", settings(form, batch_size), chunk, rounds)
    lesson = compare(work, "lesson", Form)
    if FORMS[form][0] == FORMS[form][1]:
        return lesson, None
    return lesson, compare(work, "without", partial(Without, settings(form, batch_size, without=True)))


def line(form: str, batch_size: int, lesson: Result, without: Result | None) -> str:
    """Write a row of the table."""
    parameters = " / ".join(f"{n:,}" for n in dict.fromkeys(lesson.parameters))
    cells = [form, str(batch_size), f"{lesson.ms[0]:.2f}", f"{lesson.ms[1]:.2f}", f"**{quartiles(lesson.cpu)}**"]
    cells += ["", ""] if without is None else [f"{without.ms[1]:.2f}", f"**{quartiles(without.cpu)}**"]
    return row([*cells, parameters, f"{lesson.first[0]:.5f} / {lesson.first[1]:.5f}"])


def main() -> None:
    """Print the page, row by row."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("forms", nargs="*", metavar="FORM")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    effort = (3, 4) if given.quick else (CHUNK, ROUNDS)
    torch.set_num_threads(1)
    print(on_one_core(["torch"]))
    print(heading(HEADINGS))
    for form in FORMS:
        for batch_size in SIZES:
            if not given.forms or any(part in f"{form}, B={batch_size}" for part in given.forms):
                print(line(form, batch_size, *measure(form, batch_size, *effort)), flush=True)


if __name__ == "__main__":
    main()
