"""The control that is shipped, attention frozen uniform: it learns no pattern, and none of its heads is ever named."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tests.faults.client import ROOT
from tests.faults.row import Place, Row

CONTROL = ROOT / "configs/copy_uniform.yaml"
CHANGES = [
    [],
    ["n_heads=2", "n_layers=2", "residual=true"],
    ["task.name=reverse", "positions=learned"],
    ["task.name=induction", "vocab_size=16", "n_layers=2", "residual=true", "norm=layernorm"],
    ["n_heads=8", "d_mlp=48", "residual=true", "dropout=0.1"],
    ["positions=alibi", "n_kv_heads=2", "lr=2e-2"],
]


class Case(NamedTuple):
    """What differs from the shipped config, and the seed."""

    changes: tuple[str, ...]
    seed: int


def cases(count: int, seed: int) -> Iterator[Case]:
    """The shipped config first, then others and other seeds."""
    draw = random.Random(seed)
    for number in range(count):
        yield Case(tuple(CHANGES[number % len(CHANGES)]), 42 if number == 0 else draw.randrange(10**6))


def thaw(patch: pytest.MonkeyPatch) -> None:
    """The mutant: the control's heads may choose after all."""
    from mhsa_cli.core.model.attention import MultiHeadSelfAttention

    real = MultiHeadSelfAttention.__init__

    def instead(self: MultiHeadSelfAttention, *given: object, **named: object) -> None:
        real(self, *given, **{**named, "kind": "softmax"})  # type: ignore[arg-type]

    patch.setattr(MultiHeadSelfAttention, "__init__", instead)


def check(case: Case, place: Place) -> None:
    """Train the control; every map is even at every snapshot, no head is named, and the answers are not found."""
    argv = ["train", "--config", CONTROL, *case.changes, f"train.seed={case.seed}", "--name", "c"]
    done = place.server.run(argv, place.path, place.mutant)
    assert done.code == 0, done.err
    run = place.path / "runs/c"
    heads = json.loads((run / "heads.json").read_text())
    for layer in heads["weights"]:
        for matrix in layer:
            for query, row in enumerate(matrix):
                even = [1 / (query + 1)] * (query + 1) + [0.0] * (len(row) - query - 1)
                assert row == pytest.approx(even, abs=1e-6), f"query {query} looks {row}"
    assert heads["verdict"]["pattern_matters"] is False and heads["verdict"]["joint_delta_nats"] == 0
    assert all(head["label"] is None and head["target"] is None for head in heads["heads"])
    assert all(head["uniform_delta_nats"] == 0 for head in heads["heads"])
    for line in (run / "heads.jsonl").read_text().splitlines():
        for head in json.loads(line)["heads"]:
            lifts = [lift for lift in [*head["lifts"].values(), *head["offsets"].values()] if lift is not None]
            assert lifts and max(map(abs, lifts)) < 1e-6, f"a lift of {max(lifts)}"
    final = json.loads((run / "run.json").read_text())["final"]
    assert final["eval_accuracy"] < 0.5, f"it finds {final['eval_accuracy']:.0%} of the answers"
    assert "frozen uniform" in [claim["id"] for claim in heads["verdict"]["claims"]]
    told = place.server.run(["explain", "c"], place.path, place.mutant)
    assert told.code == 0, told.err
    named = [line.split()[0] for line in told.out.splitlines() if line.startswith("L")]
    assert sorted(named) == [f"L{head['layer']}.H{head['head']}" for head in heads["heads"]], told.out


ROW = Row(
    fault="the control, frozen uniform attention, on three tasks: no pattern, no name",
    promise="P12",
    quick=6,
    long=30,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.control:thaw",
)
