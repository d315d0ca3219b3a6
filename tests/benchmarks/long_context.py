"""Print what long rows cost: every form of attention, exact weights, and generation, as ratios measured in one run.

python tests/benchmarks/long_context.py
"""

from __future__ import annotations

import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.config.load import load_config
from mhsa_cli.core.heads.capture import weight_blocks
from mhsa_cli.core.model import attention
from mhsa_cli.core.model.attention import MultiHeadSelfAttention, causal_window, fused_attention
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.model.positions import AlibiPositions, RopePositions
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.lockstep import build_model

T, H, D_HEAD, ROUNDS = 4096, 4, 8, 5


def inputs() -> list[Tensor]:
    """Draw queries, keys and values (1, H, T, d)."""
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(1, H, T, D_HEAD, generator=generator).requires_grad_() for _ in range(3)]


def trained(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend as training does."""
    return fused_attention(q, k, v, None, None)


def materialised(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Attend as a lesson writes it, with masked_fill on the whole (T, T)."""
    scores = (q @ k.transpose(-2, -1) / math.sqrt(D_HEAD)).masked_fill(
        ~causal_window(q.size(-2), q.size(-2)), -math.inf
    )
    return scores.softmax(-1) @ v


PATHS = {"trained": trained, "materialised": materialised}
FORMS: dict[str, Callable[[int], dict[str, Any]]] = {
    "plain": lambda n: {},
    "rope": lambda n: {"positions": RopePositions(n, D_HEAD)},
    "linear": lambda n: {"kind": "linear"},
    "window=64": lambda n: {"window": 64},
    "alibi": lambda n: {"positions": AlibiPositions(H)},
    "dropout=0.1": lambda n: {"dropout": 0.1},
}
ROADS = {"by blocks": 1, "with T x T": 10**9}  # tokens of a long row
BY_BLOCKS = ("window=64", "alibi", "dropout=0.1")


def one_pass(form: str, n: int, road: str) -> Callable[[], None]:
    """Prepare the forward and backward pass of a block on a row of n tokens."""
    x = torch.randn(1, n, H * D_HEAD, generator=torch.Generator().manual_seed(0))
    block = MultiHeadSelfAttention(H * D_HEAD, H, n, **FORMS[form](n))

    def work() -> None:
        attention.LONG = ROADS[road]
        block(x).sum().backward()

    return work


def forms(n: int) -> None:
    """Print the milliseconds and the memory of every form, and of the road that makes (T, T) tensors beside them."""
    columns = [(form, road) for form in FORMS for road in ROADS if road == "by blocks" or form in BY_BLOCKS]
    works = {column: one_pass(column[0], n, column[1]) for column in columns}
    times: dict[tuple[str, str], list[float]] = {column: [] for column in columns}
    for turn in range(ROUNDS + 1):
        for column, work in works.items():
            took = milliseconds(work)
            if turn:
                times[column].append(took)
    for form in FORMS:
        parts = [
            f"{statistics.median(times[form, road]):8.0f} ms {megabytes(form, str(n), road):6.0f} MB"
            for road in ROADS
            if (form, road) in times
        ]
        print(f"block, T={n:<6} {form:<14}" + "   with T x T".join(parts))


def megabytes(*of: str) -> float:
    """Measure the extra memory of one pass in a process of its own."""
    done = subprocess.run([sys.executable, __file__, *of], capture_output=True, text=True, check=True)
    return int(done.stdout) / 1024


def peak(name: str, *of: str) -> None:
    """Print, from a process of its own, the memory in kB that one forward and backward pass needs beyond its inputs."""
    torch.set_num_threads(1)
    if of:
        work = one_pass(name, int(of[0]), of[1])
        one_pass(name, 600, of[1])()  # loads what it needs
    else:
        given = inputs()
        work = lambda: PATHS[name](*given).sum().backward()  # noqa: E731
        PATHS[name](*(t[:, :, :64].detach().requires_grad_() for t in given)).sum().backward()
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of starting up (Linux)
    before = memory("VmRSS")
    work()
    print(memory("VmHWM") - before)


def memory(key: str) -> int:
    """Read a figure of this process, in kB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(key))
    return int(line.split()[1])


def milliseconds(work: Callable[[], object]) -> float:
    """Measure the CPU milliseconds of one call."""
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


def compare(title: str, ours: Callable[[], object], theirs: Callable[[], object], rounds: int = ROUNDS) -> None:
    """Time two calls in turns and print the ratio."""
    ours(), theirs()
    pairs = [(milliseconds(ours), milliseconds(theirs)) for _ in range(rounds)]
    ms = [statistics.median(column) for column in zip(*pairs, strict=True)]
    print(
        f"{title:<58} {ms[0]:8.1f} ms against {ms[1]:8.1f} ms   ratio {statistics.median(a / b for a, b in pairs):.2f}"
    )


def main() -> None:
    """Print every ratio."""
    torch.set_num_threads(1)
    given = inputs()
    compare(
        f"training path, T={T}, against masked_fill",
        lambda: trained(*given).sum().backward(),
        lambda: materialised(*given).sum().backward(),
    )
    mb = {name: megabytes(name) for name in PATHS}
    ratio = mb["materialised"] / max(mb["trained"], 0.001)
    print(f"extra memory: {mb['trained']:.0f} MB against {mb['materialised']:.0f} MB   1/{ratio:.0f}")
    for n in (1024, T):
        forms(n)

    config = load_config(None, [f"task.seq_len={T}", f"model.d_model={H * D_HEAD}", f"model.n_heads={H}"])
    task = build_task(config.task)
    model = build_model(config, task).eval()
    ids = task.sample(torch.Generator().manual_seed(1), 1).inputs
    with torch.no_grad():
        compare(
            f"exact weights a few rows at a time, T={T}, against none",
            lambda: [None for _ in weight_blocks(model, ids)],
            lambda: model(ids),
        )

    block = ["model.d_model=256", "model.n_heads=8", "model.n_layers=4", "model.d_mlp=1024", "model.residual=true"]
    for title, more in (("the lesson's model", []), ("4 blocks of width 256", block)):
        config = load_config(None, ["task.seq_len=512", "model.positions=rope", *more])
        model = build_model(config, build_task(config.task)).eval()
        prompt = torch.arange(256) % 64
        compare(
            f"256 tokens after 256 with a cache, {title}",
            lambda model=model, prompt=prompt: list(generate(model, prompt, 256)),
            lambda model=model, prompt=prompt: list(generate(model, prompt, 256, use_cache=False)),
            1,
        )


if __name__ == "__main__":
    if len(sys.argv) > 1:
        peak(*sys.argv[1:])
    else:
        main()
