"""The data of the page as plain JSON, in a size that a browser opens at once."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Iterable, Sequence
from typing import Any

from mhsa_cli.records.claims import Claim
from mhsa_cli.records.heads import HeadMaps, HeadReport, HeadScore, HeadSummary, LayerPart, TargetScore
from mhsa_cli.records.labels import TARGETS, Label, Role
from mhsa_cli.records.report import RunFacts, RunReport
from mhsa_cli.records.thinning import evenly, thin
from mhsa_cli.records.timeline import HeadHistory, Interval, SnapshotRecord
from mhsa_cli.records.training import Series
from mhsa_cli.renderers.kit.cells import pool, sees_future
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.renderers.pictures.explain import explain_head, explain_model, explain_teamwork, head_line
from mhsa_cli.text import escape, from_file, shortened

FORMAT = 1
MOST = 1_850_000  # characters of the whole document: with its script and its styles, a page stays below 2 MB
CURVE = 400  # points of a loss curve
MAPS, EACH = 700_000, 4  # characters of the maps at the end, of all runs together, and of a weight: larger are pooled
FEW = 16  # frames
LEAST_STEPS = 40  # snapshots whose lifts stay in the largest documents
Json = dict[str, Any]
Layers = Sequence[Sequence[Sequence[Sequence[Any]]]]  # maps: layer, head, query, key


def runs_document(runs: Sequence[RunReport]) -> Json:
    """Make the document of one run, or of two side by side."""
    return fitted({"format": FORMAT, "kind": "runs", "runs": run_parts(runs)})


def run_parts(runs: Sequence[RunReport]) -> list[Json]:
    """Write each run whole, except that maps of long rows are pooled."""
    return [_run(run, MAPS // max(1, len(runs))) for run in runs]


def fitted(document: Json) -> Json:
    """Make a document fit: the frames of its runs are thinned, then all_lifts left out, then the steps thinned.

    All lifts are left out, too, where they would leave room for FEW frames only.
    """
    runs = document["runs"]
    for shrink in (_leave, _without_all_lifts, *[_with_half_the_steps] * 4, _without_frames):
        for run in runs:
            shrink(run)
        frames = [run.pop("frames") for run in runs]
        room = (MOST - size_of(document)) // max(1, len(runs))
        for run, own in zip(runs, frames, strict=True):
            run["frames"] = _thinned(own, room)
        few = any(len(run["frames"]) < min(FEW, len(own)) for run, own in zip(runs, frames, strict=True))
        if size_of(document) <= MOST and not (few and shrink is _leave):
            break
        for run, own in zip(runs, frames, strict=True):
            run["frames"] = own
    return document


def size_of(document: Any) -> int:
    """Count the characters of a document as JSON."""
    return len(json.dumps(document, separators=(",", ":")))


def _leave(run: Json) -> None:
    """Change nothing."""


def _without_all_lifts(run: Json) -> None:
    for head in run["heads"]:
        head["all_lifts"] = {}


def _without_frames(run: Json) -> None:
    run["frames"] = []


def _with_half_the_steps(run: Json) -> None:
    count = len(run["steps"])
    kept = evenly(range(count), max(LEAST_STEPS, count // 2))
    for part in (run, *run["heads"]):
        for name in ("steps", "in_context", "lifts"):
            if name in part:
                part[name] = [part[name][place] for place in kept] if part[name] else []


def _thinned(frames: Sequence[Json], room: int) -> list[Json]:
    """Keep as many frames as there is room for, at least the first and the last."""
    each = max(map(size_of, frames), default=1) + 1
    return evenly(frames, max(2, room // each))


# -- a run ------------------------------------------------------------------------------------------------------------


def _run(run: RunReport, room: int) -> Json:
    maps, report = run.maps, None if run.maps is None else run.maps.report
    parts = () if maps is None else maps.parts
    weights, size = ([], 1) if maps is None else _pooled(_own_parts(maps.weights, parts), room)
    frames = [_own_parts(_square(one.maps), parts, one.pool) for one in run.snapshots if one.maps]
    return {
        "name": escape(run.name),
        "task": escape(run.facts.task),
        "origin": None if run.facts.origin is None else escape(run.facts.origin),
        "facts": [[label, escape(value)] for label, value in facts(run.facts)],
        "settings": [[escape(key), escape(value)] for key, value in run.settings],
        "sentences": sentences(run),
        "tokens": [] if maps is None else [escape(token) for token in maps.tokens],
        "step": None if maps is None or run.facts.origin is not None else maps.step,
        "parts": [_part(part) for part in parts] or None,
        "causal": maps is not None and not any(map(sees_future, _each(maps.weights))),
        "heads": [] if maps is None else _heads(maps, run.histories, run.snapshots),
        "shape": [len(weights), max(map(len, weights), default=0)],
        "weights": weights,
        "pool": size,
        "curve": {role: _curve(run.series, role) for role in ("train", "eval")},
        "levels": _levels(run.facts),
        "steps": [one.step for one in run.snapshots],
        "in_context": [_figure(one.in_context) for one in run.snapshots],
        "frames": [_frame(one, cells) for one, cells in zip((o for o in run.snapshots if o.maps), frames, strict=True)],
        "maps_shape": [_shape(layer) for layer in frames[0]] if frames else [],
        "ablation": None if report is None else _ablation(report),
        "arrows": [] if report is None else [_arrow(c) for c in report.verdict.claims if c.predicate == "path"],
        "checks": checks(run) or None,
    }


def facts(found: RunFacts) -> list[tuple[str, str]]:
    """Write the figures of a run as labels and values."""
    rows: list[tuple[str, str | None]] = [
        ("status", found.status if found.status != "finished" else None),
        ("model", None if found.origin is None else from_file(found.origin)),
        ("parameters", None if found.parameters is None else f"{found.parameters:,}"),
        ("steps", _steps(found) if found.origin is None else None),
        ("ended by", None if found.ended_by is None else f"train.{found.ended_by}"),
        ("time", None if found.seconds is None else f"{found.seconds:.1f} s on {found.device or 'an unknown device'}"),
        ("final loss", None if found.loss is None else f"{fixed(found.loss, 4)} nats"),
        ("accuracy", None if found.accuracy is None else percents(found.accuracy)),
        ("chance level", _chance(found)),
        *((f"baseline {name}", f"{fixed(loss, 4)} nats") for name, loss in found.baselines.items()),
        ("evaluation rows also seen in training", None if found.seen is None else f"{found.seen} of {found.rows}"),
        ("weights sha256", None if found.weights_sha256 is None else shortened(found.weights_sha256, 12)),
    ]
    return [(label, value) for label, value in rows if value is not None]


def _steps(found: RunFacts) -> str | None:
    if found.step is None:
        return None if found.total_steps is None else f"of {found.total_steps:,}"
    if found.step == 0 and found.status == "finished":
        return "0, untrained: initial weights"
    whole = found.total_steps in (None, found.step)
    return f"{found.step:,}" if whole else f"{found.step:,} of {found.total_steps:,}"


def _chance(found: RunFacts) -> str | None:
    if found.chance_loss is None:
        return None
    loss = f"loss {fixed(found.chance_loss, 4)} nats"
    return loss if found.chance_accuracy is None else f"{loss}, accuracy {percents(found.chance_accuracy)}"


def sentences(run: RunReport) -> list[str]:
    """Write what the heads of a run do, in the sentences of `mhsa explain`, and the notes on its task."""
    maps = run.maps
    if maps is None:
        return [f"No attention maps: {run.no_maps or 'nothing was measured yet'}."]
    if maps.report is None:
        return ["The heads of this run were not measured."]
    found = [*explain_model(maps.report).split("\n"), explain_teamwork(maps.report)]
    if maps.report.verdict.try_task:
        found.append(f"A task where attention matters: {maps.report.verdict.try_task}.")
    return [escape(text) for text in (*found, maps.note) if text]


def checks(run: RunReport) -> str:
    """Write what a reader must know before the figures are believed; "" where all is as it should be."""
    maps, found = run.maps, []
    if run.facts.status != "finished":
        found.append(f"The run is {escape(run.facts.status)}.")
    if maps is not None and maps.report is None:
        found.append(f"The maps are those of the snapshot at step {maps.step}, without their tokens.")
    elif maps is not None and maps.step != run.facts.step and run.facts.origin is None:
        found.append(f"Maps and heads were measured at step {maps.step}.")
    if run.other_weights:
        found.append("The checkpoint holds other weights than those measured here.")
    return " ".join(found)


def _part(part: LayerPart) -> Json:
    return {"role": str(part.role), "queries": list(part.queries), "keys": list(part.keys)}


def _each(layers: Layers) -> Iterable[Any]:
    return (head for layer in layers for head in layer)


def _own_parts(layers: Layers, parts: Sequence[LayerPart], size: int = 1) -> Layers:
    """Keep the queries and keys of each layer of an encoder-decoder; of maps pooled before, every cell with one."""
    if not parts:
        return layers
    cuts = [[slice(first // size, -(-end // size)) for first, end in (part.queries, part.keys)] for part in parts]
    return [
        [[row[keys] for row in head[queries]] for head in layer]
        for layer, (queries, keys) in zip(layers, cuts, strict=True)
    ]


def _square(layers: Layers) -> Layers:
    """Fill the rows of causal maps, which end at their query, with the future."""
    return [[[[*row, *[0] * (len(head) - len(row))] for row in head] for head in layer] for layer in layers]


def _pooled(layers: Layers, room: int) -> tuple[Layers, int]:
    """Round maps to 3 decimals; of long rows, keep the largest weight of squares of so many tokens."""
    cells, size = sum(math.prod(_shape([head])) for head in _each(layers)), 1
    while EACH * cells / size**2 > room:
        size *= 2
    return [[[[*map(_figure, row)] for row in pool(head, size)] for head in layer] for layer in layers], size


def _figure(value: float | None) -> float | int | None:
    """Round to 3 decimals; a whole number is written as one, and what is not finite as null."""
    if value is None or not math.isfinite(value):
        return None
    found = round(value, 3)
    return int(found) if found == int(found) else found


def nats(value: float | None) -> float | None:
    """Round a loss to 5 digits; null if it is not finite."""
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


def _curve(series: Sequence[Series], role: str) -> list[list[float | None]]:
    points = [point for one in series if one.role == role for point in one.points]
    return [[step, nats(loss)] for step, loss in thin(points, CURVE)]


def _levels(found: RunFacts) -> list[list[Any]]:
    chance = [] if found.chance_loss is None else [["chance", nats(found.chance_loss)]]
    return chance + [[escape(name), nats(loss)] for name, loss in found.baselines.items()]


def _shape(layer: Sequence[Sequence[Sequence[Any]]]) -> list[int]:
    """Return the rows and columns of a layer's maps."""
    return [len(layer[0]), len(layer[0][0])] if layer else [0, 0]


def _frame(one: SnapshotRecord, layers: Layers) -> Json:
    cells = bytes(percent for head in _each(layers) for row in head for percent in row)
    return {"step": one.step, "pool": one.pool, "maps": base64.b64encode(cells).decode("ascii")}


def _ablation(report: HeadReport) -> Json | None:
    verdict = report.verdict
    if verdict.loss_nats is None or all(head.uniform_delta_nats is None for head in report.heads):
        return None
    effects = [head.effect("uniform") for head in report.heads]
    return {
        "clean": nats(verdict.loss_nats),
        "coalitions": [nats(loss) for loss in report.coalitions] or None,
        "singles": [None if effect is None else [*map(nats, effect)] for effect in effects],
        "rows": escape(verdict.inputs),
    }


def _arrow(claim: Claim) -> Json:
    """Write a patched path, `L0.H1:L1.H0+L1.H2.k`, as an arrow."""
    writers, _, rest = claim.evidence["path"].partition(":")
    readers, _, part = rest.rpartition(".") if rest != "logits" else ("", "", "")
    return {
        "from": writers.split("+"),
        "to": readers.split("+") if readers else None,
        "part": part or None,
        "delta": nats(claim.estimate),
        "se": nats(claim.se),
        "null": nats(claim.reference),
        "status": str(claim.status),
    }


# -- a head -----------------------------------------------------------------------------------------------------------


def _heads(maps: HeadMaps, histories: Sequence[HeadHistory], snapshots: Sequence[SnapshotRecord]) -> list[Json]:
    scores = {} if maps.report is None else {head.address: head for head in maps.report.heads}
    followed = {one.address: one for one in histories}
    over = {head.address: place for place, head in enumerate(snapshots[-1].heads)} if snapshots else {}
    found = []
    for summary in maps.heads:
        place = over.get(summary.address)
        every = [] if place is None else [one.heads[place].lifts for one in snapshots]
        names = dict.fromkeys(name for lifts in every for name in lifts)
        found.append(
            {
                **_head(summary, scores.get(summary.address)),
                **_over_training(followed.get(summary.address)),
                "all_lifts": {target_name(name): [_figure(lifts.get(name)) for lifts in every] for name in names},
            }
        )
    return found


def _head(summary: HeadSummary, score: HeadScore | None) -> Json:
    label, target = (None, None) if score is None else (score.label, score.scores.get(score.target or ""))
    return {
        "name": summary.name,
        "layer": summary.layer,
        "head": summary.head,
        "label": None if label is None else escape(label.text),
        "label_id": None if label is None else label.id,
        "role": None if score is None or score.role is None else str(score.role),
        "sentence": "" if score is None else escape(head_line(score)),
        "why": "" if score is None else escape(explain_head(score)),
        "target": None if score is None or score.target is None else target_name(score.target, target),
        "entropy": _figure(summary.entropy if score is None else score.entropy),
        **{name: _figure(getattr(target, name, None)) for name in ("mass", "uniform", "lift")},
        "share": _figure(getattr(score, "share", None)),
        "share_se": _figure(getattr(score, "share_se", None)),
        "delta": nats(getattr(score, "uniform_delta_nats", None)),
        "delta_se": nats(getattr(score, "uniform_delta_se", None)),
        "scores": [] if score is None else [_score(name, one) for name, one in score.scores.items()],
    }


def _score(name: str, one: TargetScore) -> list[Any]:
    return [target_name(name, one), *map(_figure, (one.mass, one.uniform, one.lift, one.null, one.random_null))]


def _over_training(one: HeadHistory | None) -> Json:
    if one is None:
        return {"lifts": [], "followed": "", "onset": None}
    followed = "" if not one.target else target_name(one.target, one)
    return {"lifts": [_figure(lift) for lift in one.lifts], "followed": followed, "onset": _ends(one.onset)}


def _ends(found: Interval | None) -> list[int] | None:
    return None if found is None else [found.low, found.high]


def target_name(target: str, found: TargetScore | HeadHistory | None = None) -> str:
    """Name a target on screen, with the distance or the token that was found if they are known."""
    if target not in TARGETS:
        return escape(target)
    numbers = {name: getattr(found, name, None) for name in ("distance", "period", "token")}
    label = Label(target, Role.SHOWN, **numbers)
    return label.pattern if None not in label.numbers.values() else target
