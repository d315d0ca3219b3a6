"""Stop after any step and resume: the run folder's end is that of a run that never stopped, byte for byte."""

from __future__ import annotations

import json
import os
import random
import signal
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.client import ForkServer
from tests.faults.row import Place, Row

STEPS = 60
BASE = ["epochs=4", "steps_per_epoch=15", "eval_sequences=9", "log_every=1", "save_every=20"]
SETTINGS = {
    "bare": "name=shift vocab_size=11 seq_len=6 d_model=12 n_heads=3 batch_size=7",
    "dropout": "name=copy vocab_size=9 seq_len=6 d_model=8 n_heads=2 dropout=0.2 batch_size=3",
    "block": "seq_len=7 d_model=12 d_mlp=20 residual=true norm=layernorm batch_size=5 grad_clip=0.5",
    "schedule": "seq_len=8 d_model=12 n_heads=6 schedule=cosine warmup_steps=9 weight_decay=0.1",
    "rope": "name=reverse vocab_size=13 seq_len=8 d_model=16 positions=rope norm=rmsnorm n_layers=2 batch_size=3",
    "tied": "seq_len=5 d_model=12 n_kv_heads=2 tie_embeddings=true positions=learned dtype=float64",
}
CONFIGS = {name: text.split() for name, text in SETTINGS.items()}


class Case(NamedTuple):
    """A config and the steps after which its run is stopped, in turn."""

    config: str
    stops: tuple[int, ...]


def cases(count: int, seed: int) -> Iterator[Case]:
    """Every step of every config first, then chains of ten stops."""
    first, *rest = ([Case(config, (step,)) for step in range(1, STEPS)] for config in CONFIGS)
    others = [case for part in rest for case in part]
    random.Random(seed).shuffle(others)
    singles = first + others
    yield from singles[:count]
    draw = random.Random(seed + 1)
    for _ in range(count - len(singles)):
        yield Case(draw.choice(list(CONFIGS)), tuple(sorted(draw.sample(range(1, STEPS), 10))))


def stop_at(patch: pytest.MonkeyPatch, step: int) -> None:
    """Make the process ask itself to stop in the middle of a step."""
    from mhsa_cli.core.training.stack import Stack

    real = Stack.step

    def instead(self: Stack, *arguments: Any, **more: Any) -> None:
        if self.updates + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)
        real(self, *arguments, **more)

    patch.setattr(Stack, "step", instead)


def forget_second_moments(patch: pytest.MonkeyPatch) -> None:
    """The mutant: what is resumed has its weights and first moments, the second moments begin at nought."""
    from mhsa_cli.core.training import checkpoint, lockstep

    real = checkpoint.restore

    def instead(stack: Any, slot: int, files: Any) -> float:
        found = real(stack, slot, files)
        stack.moment2.zero_()
        return found

    patch.setattr(lockstep, "restore", instead)


def contents(run: Path) -> dict[str, bytes]:
    """Everything that must be equal: the files of the last checkpoint, the curve, the heads, and the final figures."""
    newest = max((run / "checkpoints").iterdir())
    files = [*newest.iterdir(), run / "metrics.jsonl"]
    found = {path.name: path.read_bytes() for path in files}
    info = json.loads((run / "run.json").read_text())
    found["final"] = json.dumps([info["final"], info["weights_sha256"], info["status"]]).encode()
    return found


@cache
def unbroken(config: str, server: ForkServer) -> dict[str, bytes]:
    """The same run, never stopped; trained once."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        done = server.run(["train", *BASE, *CONFIGS[config], "--name", "r"], Path(folder))
        assert done.code == 0, done.err
        return contents(Path(folder) / "runs/r")


def check(case: Case, place: Place) -> None:
    """Train with stops, and compare with the run that had none."""
    wanted = unbroken(case.config, place.server)
    argv: list[str] = ["train", *BASE, *CONFIGS[case.config], "--name", "r"]
    for step in case.stops:
        done = place.server.run(argv, place.path, [("tests.faults.rows.resume:stop_at", step), *place.mutant])
        assert done.code == 143, f"stopped at {step}: exit code {done.code}: {done.err}"
        argv = ["train", "--resume", "r"]
    done = place.server.run(argv, place.path, place.mutant)
    assert done.code == 0, done.err
    found = contents(place.path / "runs/r")
    assert found.keys() == wanted.keys()
    for name, data in wanted.items():
        assert found[name] == data, f"{name} differs from that of the run that was never stopped"


ROW = Row(
    fault=f"stop and resume at every step of a {STEPS}-step run",
    promise="P2",
    quick=89,
    long=404,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.resume:forget_second_moments",
)
