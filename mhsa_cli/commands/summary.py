"""What a run shows at its end, and what `mhsa curve` shows again later: curve, epochs, heads, files, next command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mhsa_cli.commands.printing import Paper, print_json
from mhsa_cli.records import EpochRecord, EvalRecord, HeadMaps, Series, StepRecord
from mhsa_cli.renderers.curve import loss_curve
from mhsa_cli.renderers.heatmap import head_maps
from mhsa_cli.renderers.table import Column, table
from mhsa_cli.runs.heads import maps_from_dict
from mhsa_cli.runs.metrics import records_of
from mhsa_cli.runs.rundir import RunDir


def history(run: RunDir, name: str | None = None) -> list[Series]:
    """Read a run's curve from its metrics: a train and an eval series (called `name`, if given), empty ones left out."""
    records = records_of(run.read_metrics())
    found = []
    for role, kind in (("train", StepRecord), ("eval", EvalRecord)):
        points = {r.step: r.loss for r in records if isinstance(r, kind)}
        label = role if name is None else name if role == "train" else f"{name} eval"
        found.append(Series(label, list(points), list(points.values()), role))
    return [series for series in found if series.steps]


def epochs_of(run: RunDir) -> list[EpochRecord]:
    """Read a run's epochs from its metrics."""
    return [record for record in records_of(run.read_metrics()) if isinstance(record, EpochRecord)]


def show_run(result: Mapping[str, Any], run: RunDir, series: Sequence[Series], as_json: bool) -> None:
    """Print a run that has just ended."""
    info, epochs = run.read_run_json(), epochs_of(run)
    if as_json:
        rows = [{k: getattr(e, k) for k in ("epoch", "loss", "eval_loss", "eval_accuracy")} for e in epochs]
        final = {key: result["final"][key] for key in ("eval_loss", "eval_accuracy")}
        document = {"run": str(run.path), "steps": result["step"], "parameters": info["parameters"], "epochs": rows}
        print_json({**document, "final": final, **{key: result[key] for key in ("seconds", "weights_sha256")}})
        return
    paper = Paper()
    chance = result["chance"]
    baseline = (chance["loss"], f"guessing {chance['loss']:.2f}")
    paper.draw(loss_curve(series, width=paper.width, surface=paper.surface, baseline=baseline))
    paper.say()
    show_epochs(paper, epochs)
    show_facts(paper, result, info)
    maps = maps_from_dict(run.read_heads())
    paper.say()
    show_heads(paper, maps)
    paper.say(f"\nwrote {run.path}")
    paper.say(f"next: mhsa inspect-heads {run.name} --head 0")


def show_epochs(paper: Paper, epochs: Sequence[EpochRecord]) -> None:
    """Print a row an epoch; of many, the first and last ones."""
    rows = [[str(e.epoch), f"{e.loss:.4f}", f"{e.eval_loss:.4f}", f"{e.eval_accuracy:.1%}"] for e in epochs]
    if len(rows) > 12:
        rows = [*rows[:5], ["..."], *rows[-5:]]
    columns = [Column("epoch", "right"), Column("train loss", "right"), Column("eval loss", "right")]
    if rows:
        paper.draw(table([*columns, Column("accuracy", "right")], rows, width=paper.width, surface=paper.surface))


def show_facts(paper: Paper, result: Mapping[str, Any], info: Mapping[str, Any]) -> None:
    """Print the run in a line, what guessing scores, and whether the evaluation rows were new."""
    chance, seen = result["chance"], result["eval_rows_seen"]
    device = f"{info['device']}, {result['seconds']:.1f} s"
    paper.say(f"\n{info['parameters']:,} parameters, {result['step']:,} steps on {device}")
    paper.say(f"guessing scores {chance['loss']:.4f} nats and {chance['accuracy']:.1%}")
    if seen:
        paper.say(f"{seen} of the {result['eval_rows']} evaluation rows also occur in training")
    elif seen == 0:
        paper.say(f"none of the {result['eval_rows']} evaluation rows occurs in training")
    paper.say(f"weights sha256 {result['weights_sha256']}")


def show_heads(paper: Paper, maps: HeadMaps, layer: int | None = None, head: int | None = None) -> None:
    """Print the maps and what a reader must know of their task."""
    paper.draw(head_maps(maps, width=paper.width, surface=paper.surface, layer=layer, head=head))
    if maps.note:
        paper.say(maps.note)
