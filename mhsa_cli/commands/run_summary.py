"""What a run shows at its end, and what `mhsa curve` shows again later: curve, epochs, heads, files, next command."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.text import Text

from mhsa_cli.commands.output import Paper
from mhsa_cli.errors import RunError
from mhsa_cli.jobs.load_heads import without_maps
from mhsa_cli.records.heads import HeadMaps
from mhsa_cli.records.training import EpochRecord, Series
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.text_lines import Lines
from mhsa_cli.renderers.kit.ticks import nats
from mhsa_cli.renderers.pictures.curve import loss_curve
from mhsa_cli.renderers.pictures.explain import explain_model
from mhsa_cli.renderers.pictures.heads import head_table
from mhsa_cli.renderers.pictures.heatmap import head_maps
from mhsa_cli.runs.heads import maps_from_dict
from mhsa_cli.runs.listing import METRICS, dropped_records, run_argument
from mhsa_cli.runs.metrics import records_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, escape


def baseline_of(runs: Sequence[RunDir]) -> tuple[float, str] | None:
    """Give the line of guessing for a picture of the loss, if it is known and the same for all runs."""
    first, *others = ((run.read_run_json().get("chance") or {}).get("loss") for run in runs)
    return None if first is None or any(loss != first for loss in others) else guessing(first)


def guessing(loss: float) -> tuple[float, str]:
    """Give the line of guessing with what is written at it."""
    return loss, f"guessing {loss:.2f}"


def result_document(run: RunDir) -> dict[str, Any]:
    """Put a run's figures together as `mhsa train --json` prints them. Raises: RunError if one is missing."""
    info = run.read_run_json()
    keys = ("epoch", "loss", "eval_loss", "eval_accuracy")
    epochs = (record for record in records_of(run.records(METRICS)) if isinstance(record, EpochRecord))
    try:
        return {
            "run": str(run.path),
            "steps": info["step"],
            "parameters": info["parameters"],
            "epochs": [{key: getattr(epoch, key) for key in keys} for epoch in epochs],
            "final": {key: info["final"][key] for key in ("eval_loss", "eval_accuracy")},
            **evaluated_on(info),
            "dropped_records": dropped_records(info),
            "seconds": info["seconds"],
            "weights_sha256": info["weights_sha256"],
        }
    except (KeyError, TypeError) as error:
        raise RunError(f"{escape(run.path)}: run.json lacks what a finished run has ({error})") from error


def evaluated_on(info: Mapping[str, Any]) -> dict[str, Any]:
    """Give what is known of the rows that a run was evaluated on: how many, how many were trained on, their digest."""
    return {key: info.get(key) for key in ("eval_rows", "eval_rows_seen", "eval_rows_sha256")}


def show_run(run: RunDir, series: Sequence[Series], epochs: Sequence[EpochRecord | None]) -> None:
    """Print a run that has just ended."""
    info, paper = run.read_run_json(), Paper()
    paper.draw(loss_curve(series, paper.surface, baseline=guessing(info["chance"]["loss"])))
    show_epochs(paper, epochs)
    show_facts(paper, info)
    paper.say()
    why = without_maps(run)
    if why:
        paper.say(f"no maps of heads: {why}")
    else:
        show_heads(paper, maps_from_dict(run.read_heads()))
    paper.offer(f"\nwrote {run.path}\nnext: mhsa {'curve' if why else 'explain'} {run_argument(run.path)}")


def show_epochs(paper: Paper, epochs: Sequence[EpochRecord | None]) -> None:
    """Print a row an epoch, below a blank line; None are those left out. Without an epoch nothing."""
    columns: list[Column[EpochRecord | None]] = [
        Column("epoch", lambda e: str(e.epoch) if e else "...", "right"),
        Column("train loss", lambda e: nats(e.loss) if e else "", "right"),
        Column("eval loss", lambda e: nats(e.eval_loss) if e else "", "right"),
        Column("accuracy", lambda e: f"{e.eval_accuracy:.1%}" if e else "", "right"),
    ]
    if epochs:
        paper.say()
        paper.draw(table(columns, epochs, paper.surface))


def show_facts(paper: Paper, info: Mapping[str, Any]) -> None:
    """Print the run in a line, what guessing scores, and whether the evaluation rows were new."""
    chance, seen = info["chance"], info["eval_rows_seen"]
    device = f"{info['device']}, {info['seconds']:.1f} s"
    paper.say(f"\n{info['parameters']:,} parameters, {info['step']:,} steps on {device}")
    if info["step"] == 0:
        paper.say("nothing was trained: these are the initial weights")
    paper.say(f"guessing scores {chance['loss']:.4f} nats and {chance['accuracy']:.1%}")
    if seen:
        paper.say(f"{seen} of the {info['eval_rows']} evaluation rows also occur in training")
    elif seen == 0:
        paper.say(f"none of the {info['eval_rows']} evaluation rows occurs in training")
    paper.say(f"weights sha256 {info['weights_sha256']}")


def show_heads(paper: Paper, maps: HeadMaps, heads: Sequence[Head] | None = None) -> None:
    """Print the maps and what a reader must know of their task."""
    paper.draw(heads_picture(maps, paper.surface, heads))
    if maps.report is not None:
        paper.say(f"\n{' '.join(explain_model(maps.report))}")
    elif maps.note:
        paper.say(maps.note)


def heads_picture(maps: HeadMaps, surface: Surface, heads: Sequence[Head] | None = None) -> Lines:
    """Draw maps, and under them what was measured of these heads."""
    picture = head_maps(maps, surface, heads=heads)
    if maps.report is None:
        return picture
    return picture + Lines([Text()]) + head_table(maps, surface, heads=heads)
