"""The data of the page: what is written of records made by hand, and what large ones leave out."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace
from typing import Any

import pytest

from mhsa_cli.records.claims import Claim, Status
from mhsa_cli.records.heads import HeadMaps, HeadReport, HeadScore, HeadSummary, TargetScore, Verdict
from mhsa_cli.records.labels import TARGETS, Label, Role
from mhsa_cli.records.report import RunFacts, RunReport, ShownSweep, ShownTrial
from mhsa_cli.records.sweep import SweepReport, TrialResult
from mhsa_cli.records.thinning import evenly
from mhsa_cli.records.timeline import HeadHistory, HeadSnapshot, Interval, SnapshotRecord
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.report import document
from mhsa_cli.renderers.report.document import runs_document, size_of
from mhsa_cli.renderers.report.page import report_page
from mhsa_cli.renderers.report.sweep_document import sweep_document
from tests.renderers.swept import GROUPS, PAIRS

OFFSET = TargetScore(0.91, 0.11, 0.9, distance=6, null=0.02, random_null=0.04)
FACTS = RunFacts("finished", "copy", parameters=12_345, step=30, total_steps=30, seconds=1.25, device="cpu", loss=0.01)
LARGEST = 2_000_000


def run_of(
    layers: int = 1, heads: int = 2, T: int = 3, steps: int = 3, cells: int = 3, names: tuple[str, ...] = ("previous",)
) -> RunReport:
    """A run of that size, by hand: L0.H0 attends 6 back, every lift grows, every second snapshot has maps."""
    places = [(layer, head) for layer in range(layers) for head in range(heads)]
    weights = [[[[1 / (q + 1)] * (q + 1) + [0.0] * (T - q - 1) for q in range(T)]] * heads] * layers
    scores = [HeadScore(*place, {"offset": OFFSET}, uniform_delta_nats=0.25, uniform_delta_se=0.01) for place in places]
    scores[0] = replace(scores[0], label=Label("offset", Role.SHOWN, 6), role=Role.SHOWN)
    verdict = Verdict(True, 0.5, 0.01, 0.01, [], "5 rows of copy, 3 tokens each")
    maps = HeadMaps(
        steps, "copy", list(map(str, range(T))), weights, [HeadSummary(*p, 0.5) for p in places],
        report=HeadReport(verdict, scores),
    )  # fmt: skip
    small = [[[[100 * (k == q) for k in range(q + 1)] for q in range(cells)]] * heads] * layers
    snapshots = [
        SnapshotRecord(
            step,
            [HeadSnapshot(*place, dict.fromkeys(names, step / steps), None) for place in places],
            maps=small if step % 2 == 0 or step == steps else (),
            pool=-(-T // cells),
        )
        for step in range(steps + 1)
    ]
    over, lifts = [one.step for one in snapshots], [one.step / steps for one in snapshots]
    histories = [HeadHistory(*p, "offset", "", over, lifts, onset=Interval(1, 2), distance=6) for p in places]
    series = [Series("train", over, [4.0 - lift for lift in lifts])]
    return RunReport("run", FACTS, [("task.name", "copy")], series, snapshots, histories, maps)


def only(run: RunReport) -> dict[str, Any]:
    found: dict[str, Any] = runs_document([run])["runs"][0]
    return found


def test_a_small_run_is_written_whole() -> None:
    run = only(run_of())
    first, second = run["heads"]
    assert (first["label"], first["label_id"], first["target"]) == ("offset 6", "offset:6:shown", "offset 6")
    assert (first["mass"], first["uniform"], first["lift"]) == (0.91, 0.11, 0.9)
    assert first["scores"] == [["offset 6", 0.91, 0.11, 0.9, 0.02, 0.04]]
    assert (second["label"], second["target"], second["mass"]) == (None, None, None)
    assert second["followed"] == "offset 6" and second["onset"] == [1, 2] and second["lifts"] == [0, 0.333, 0.667, 1]
    assert second["all_lifts"] == {"previous token": [0, 0.333, 0.667, 1]}
    assert run["weights"][0][1] == [[1, 0, 0], [0.5, 0.5, 0], [0.333, 0.333, 0.333]]
    assert [frame["step"] for frame in run["frames"]] == [0, 2, 3] and run["maps_shape"] == [[3, 3]]
    cells = list(base64.b64decode(run["frames"][0]["maps"]))
    assert cells == [100, 0, 0, 0, 100, 0, 0, 0, 100] * 2
    assert run["ablation"]["singles"] == [[0.25, 0.01]] * 2 and run["ablation"]["coalitions"] is None
    assert run["curve"] == {"train": [[0, 4.0], [1, 3.6667], [2, 3.3333], [3, 3.0]], "eval": []}
    assert dict(map(tuple, run["facts"])) == {
        "parameters": "12,345",
        "steps": "30",
        "time": "1.2 s on cpu",
        "final loss": "0.0100 nats",
    }


PATHS = {
    "L0.H1:L1.H2.k": (["L0.H1"], ["L1.H2"], "k"),
    "L0.H1+L0.MLP:L1.H0+L1.H2.q": (["L0.H1", "L0.MLP"], ["L1.H0", "L1.H2"], "q"),
    "embedding:logits": (["embedding"], None, None),
}


@pytest.mark.parametrize("path", PATHS)
def test_patched_paths_are_arrows(path: str) -> None:
    run = run_of()
    assert run.maps is not None and run.maps.report is not None
    claim = Claim("model", "path", 0.7, 0.02, 0.1, Status.SHOWN, {"path": path, "pairs": 64})
    verdict = replace(run.maps.report.verdict, claims=[claim])
    maps = replace(run.maps, report=replace(run.maps.report, verdict=verdict))
    (arrow,) = only(replace(run, maps=maps))["arrows"]
    assert (arrow["from"], arrow["to"], arrow["part"]) == PATHS[path]
    assert (arrow["delta"], arrow["se"], arrow["null"], arrow["status"]) == (0.7, 0.02, 0.1, "shown")


def test_what_is_not_finite_is_null() -> None:
    run = run_of()
    assert run.maps is not None
    weights = [[[[math.nan, 0, 0], [0.5, 0.5, 0], [1, 0, 0]]] * 2]
    series = [Series("train", [0, 1], [math.inf, None])]
    found = only(replace(run, series=series, maps=replace(run.maps, weights=weights)))
    assert found["weights"][0][0][0] == [None, 0, 0] and found["curve"]["train"] == [[0, None], [1, None]]
    json.dumps(found, allow_nan=False)


def test_maps_of_a_broken_model_are_masked_and_pooled_as_on_the_terminal() -> None:
    run, T = run_of(), 1024
    assert run.maps is not None
    causal = [[1 / (q + 1)] * (q + 1) + [0.0] * (T - q - 1) for q in range(T)]
    broken = [*causal[:5], [0.0, math.nan, *[math.nan] * (T - 2)], *causal[6:]]
    found = only(replace(run, maps=replace(run.maps, weights=[[broken]], tokens=["a"] * T)))
    assert found["pool"] == 4 and found["causal"]
    assert found["weights"][0][0][1][0] is None and found["weights"][0][0][2][0] == 0.111


EVERY = tuple(TARGETS)
LARGE = {
    "long rows": {"T": 512, "heads": 8, "layers": 2, "cells": 32},
    "many heads": {"layers": 12, "heads": 12, "T": 24, "cells": 24, "steps": 250, "names": EVERY},
    "many steps": {"layers": 2, "heads": 8, "T": 64, "cells": 32, "steps": 600, "names": EVERY},
}

# Whether frames are thinned and lifts left out, of one such run and of two.
CUT = {
    "long rows": ((False, False), (False, False)),
    "many heads": ((True, True), (True, True)),
    "many steps": ((True, False), (True, True)),
}


@pytest.mark.parametrize("kind", LARGE)
def test_large_runs_stay_below_two_megabytes(kind: str) -> None:
    """Frames go first, evenly and never the first or the last, then all lifts but those that are followed."""
    sizes: dict[str, Any] = LARGE[kind]
    run = run_of(**sizes)
    whole = [one.step for one in run.snapshots if one.maps]
    for count in (1, 2):
        found = runs_document([run] * count)
        assert len(report_page(found, title="x").encode()) < LARGEST
        for one in found["runs"]:
            steps = [frame["step"] for frame in one["frames"]]
            assert steps == evenly(whole, len(steps)) and len(steps) >= 2
            assert {head["lifts"][-1] for head in one["heads"]} == {1}
            assert {len(head["lifts"]) for head in one["heads"]} == {len(one["steps"])}
            thinned, dropped = len(steps) < len(whole), not any(head["all_lifts"] for head in one["heads"])
            assert (thinned, dropped) == CUT[kind][count - 1], count
            assert len(one["weights"][0][0]) == math.ceil(sizes["T"] / one["pool"]) and len(one["tokens"]) == sizes["T"]


def test_long_rows_keep_the_largest_weight_of_a_square(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document, "MAPS", 50)  # of 2 heads: 3 x 3 cells of 4 characters are too many
    found = only(run_of())
    assert found["pool"] == 2 and found["weights"][0][0] == [[1, 0], [0.333, 0.333]] and len(found["tokens"]) == 3


def test_evenly_keeps_both_ends() -> None:
    assert evenly(range(3), 3) == [0, 1, 2] and evenly(range(9), 2) == [0, 8]
    assert evenly(range(11), 6) == [0, 2, 4, 6, 8, 10]


def test_a_sweep_counts_what_its_report_has() -> None:
    trials = [
        TrialResult(f"t{cell}-{seed}", cell, seed, "finished", seed / 10, 1.0, 5, 1.0)
        for cell in range(4)
        for seed in range(3)
    ]
    trials[-1] = replace(trials[-1], status="failed", message="step 2: <b>")
    report = SweepReport(GROUPS, PAIRS, trials, 0.99)
    curves = [[(0.1, [[5, 2.0], [9, 1.0]]), (0.2, [[5, 4.0], [9, 3.0]])], [], [], []]
    shown = [ShownTrial(trials[1], "median", run_of()), ShownTrial(trials[-1], "failed", None, "gone")]
    found = sweep_document(ShownSweep("s", report, curves, shown))
    first, second, *_ = found["sweep"]["settings"]
    assert first["curve"] == {"steps": [5, 9], "median": [2.0, 1.0], "low": [2.5, 1.5], "high": [3.5, 2.5]}
    assert second["curve"]["steps"] == [] and (first["solved"], second["solved"]) == ([3, 16], [12, 16])
    assert first["onsets"] == [["offset 6", 96, 80, 112, 7, 16], ["largest drop of the loss", 104, 96, 127, 16, 16]]
    assert [one["run"] for one in found["sweep"]["shown"]] == [0, None] and len(found["runs"]) == 1
    assert found["sweep"]["shown"][1]["error"] == "step 2: <b>"
    assert size_of(found) == len(json.dumps(found, separators=(",", ":"), allow_nan=False))
