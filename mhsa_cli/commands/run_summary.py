"""The summary of a run, for `mhsa train` and the commands that show parts of it: curve, epochs, facts, heads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mhsa_cli.commands.output import Paper
from mhsa_cli.errors import RunError
from mhsa_cli.jobs.load_heads import without_maps
from mhsa_cli.records.heads import HeadMaps, HeadReport, HeadScore
from mhsa_cli.records.training import EpochRecord, Series
from mhsa_cli.renderers.kit.table import Column, table
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.renderers.pictures.curve import Level, known_levels, loss_curve
from mhsa_cli.renderers.pictures.explain import explain_model
from mhsa_cli.renderers.pictures.heads import heads_picture
from mhsa_cli.renderers.pictures.own_scores import kept_names, own_score_table
from mhsa_cli.renderers.pictures.task import baselines_text
from mhsa_cli.renderers.pictures.training_end import TrainingEnd
from mhsa_cli.runs.heads import maps_from_dict
from mhsa_cli.runs.listing import ENDED_BY, METRICS, dropped_records, origin_of, run_argument
from mhsa_cli.runs.metrics import records_of
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, escape, from_file, plural, shortened

UNTRAINED = "untrained: initial weights"


def levels_of(runs: Sequence[RunDir]) -> list[Level]:
    """Return the levels for a picture of the loss that are known and the same for all runs."""
    first, *others = (known_levels(run.read_run_json()) for run in runs)
    return [level for level in first if all(level in other for other in others)]


def result_document(run: RunDir) -> dict[str, Any]:
    """Collect the figures of a run for `mhsa train --json`. Raises: RunError if one is missing."""
    info = run.read_run_json()
    keys = ("epoch", "loss", "eval_loss", "eval_accuracy")
    epochs = (record for record in records_of(run.records(METRICS)) if isinstance(record, EpochRecord))
    try:
        return {
            "run": str(run.path),
            "steps": info["step"],
            **({} if info.get(ENDED_BY) is None else {ENDED_BY: info[ENDED_BY]}),
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
    """Return the facts about the evaluation rows: their number, how many training also saw, their digest."""
    return {key: info.get(key) for key in ("eval_rows", "eval_rows_seen", "eval_rows_sha256")}


def result_line(run: RunDir) -> str:
    """Write where a run is and its result, in one line."""
    info = run.read_run_json()
    final, step = info["final"], plural(info["step"], "step")
    result = f"eval loss {fixed(final['eval_loss'], 4)}, accuracy {percents(final['eval_accuracy'])}"
    return f"{run.path}: {result}, {step}, {info['seconds']:.1f} s"


def show_run(run: RunDir, series: Sequence[Series], epochs: Sequence[EpochRecord | None], paper: Paper) -> None:
    """Print the whole summary of a training."""
    info = run.read_run_json()
    if origin_of(info) is None:
        paper.draw(loss_curve(series, paper.surface, levels=levels_of([run])))
    show_epochs(paper, epochs)
    show_facts(paper, info)
    paper.say()
    why = without_maps(run)
    if why:
        paper.say(f"no attention maps: {why}")
    else:
        show_heads(paper, maps_from_dict(run.read_heads()))
    look = "explain" if not why else "curve" if origin_of(info) is None else "runs"
    paper.offer(f"\nwrote {run.path}\nnext: mhsa {look} {run_argument(run.path)}")


def run_end(run: RunDir, series: Sequence[Series], epochs: Sequence[EpochRecord]) -> TrainingEnd:
    """Collect what a terminal shows at the end of a training; `mhsa runs` and others give what is omitted."""
    info, name = run.read_run_json(), run_argument(run.path)
    why, chance, step = without_maps(run), info["chance"], info["step"]
    maps = None if why else maps_from_dict(run.read_heads())
    facts = [size_and_time(info), *([ended_by(info)] if info.get(ENDED_BY) else [])]
    if step == 0:
        facts.append(UNTRAINED)
    if not epochs:
        facts.append(chance_text(chance))
    if info["eval_rows_seen"]:
        facts.append(rows_seen(info))
    report = None if maps is None else maps.report
    task = None if report is None else report.verdict.try_task
    return TrainingEnd(
        series,
        epochs,
        {"chance": chance["loss"], **(info.get("baselines") or {})},
        chance["accuracy"],
        facts,
        maps,
        f"no attention maps: {why}" if why else "" if maps is None or report is not None else maps.note,
        [
            *([] if task is None else [f"a task where attention matters: mhsa train task.name={task}"]),
            f"wrote {run.path}",
            f"next: mhsa {'curve' if why else 'explain'} {name}",
        ],
        f"mhsa inspect-heads {name}",
    )


def show_epochs(paper: Paper, epochs: Sequence[EpochRecord | None]) -> None:
    """Print a row for each epoch, below a blank line; None stands for omitted epochs."""
    columns: list[Column[EpochRecord | None]] = [
        Column("epoch", lambda e: str(e.epoch) if e else "...", "right"),
        Column("train loss", lambda e: fixed(e.loss, 4) if e else "", "right"),
        Column("eval loss", lambda e: fixed(e.eval_loss, 4) if e else "", "right"),
        Column("accuracy", lambda e: percents(e.eval_accuracy) if e else "", "right"),
    ]
    if epochs:
        paper.say()
        paper.draw(table(columns, epochs, paper.surface))


def show_facts(paper: Paper, info: Mapping[str, Any]) -> None:
    """Print size and time of the run, chance level and baselines, and how many evaluation rows training also saw."""
    origin = origin_of(info)
    paper.say(f"\n{size_and_time(info)}")
    if info.get(ENDED_BY):
        paper.say(ended_by(info))
    if info["step"] == 0 and origin is None:
        paper.say(UNTRAINED)
    if origin is not None and (final := info.get("final")):
        paper.say(f"loss {fixed(final['eval_loss'], 4)} nats, accuracy {percents(final['eval_accuracy'])}")
    paper.say(chance_text(info["chance"]))
    if info.get("baselines"):
        paper.say(baselines_text(info["baselines"]))
    if info["eval_rows_seen"] is not None:
        paper.say(rows_seen(info))
    paper.say(f"weights sha256: {shortened(info['weights_sha256'], 12)}")


def size_and_time(info: Mapping[str, Any]) -> str:
    """Write parameters, steps, device and seconds."""
    origin = origin_of(info)
    what = plural(info["step"], "step") if origin is None else from_file(origin)
    return f"{info['parameters']:,} parameters, {what} on {info['device']}, {info['seconds']:.1f} s"


def ended_by(info: Mapping[str, Any]) -> str:
    """Write where a run ended early, and by which setting."""
    return f"ended at step {info['step']} of {info['total_steps']} by train.{info[ENDED_BY]}"


def chance_text(chance: Mapping[str, float]) -> str:
    """Write the chance level."""
    return f"chance level: loss {fixed(chance['loss'], 4)} nats, accuracy {percents(chance['accuracy'])}"


def rows_seen(info: Mapping[str, Any]) -> str:
    """Write how many of the evaluation rows training had, too."""
    return f"evaluation rows also seen in training: {info['eval_rows_seen']} of {info['eval_rows']}"


def show_heads(paper: Paper, maps: HeadMaps, heads: Sequence[Head] | None = None) -> None:
    """Print the maps and the paragraph about the model."""
    paper.draw(heads_picture(maps, paper.surface, heads))
    if maps.report is not None:
        paper.say()
        show_model(paper, maps.report)
    elif maps.note:
        paper.say(maps.note)


def show_model(paper: Paper, report: HeadReport) -> None:
    """Print the paragraph about the model, and a task to try where attention has no effect."""
    paper.say(explain_model(report))
    if report.verdict.try_task:
        paper.offer(f"a task where attention matters: mhsa train task.name={report.verdict.try_task}")


def show_own_scores(paper: Paper, heads: Sequence[HeadScore]) -> None:
    """Print the user's own scores that the heads have, below a blank line."""
    if names := kept_names(heads):
        paper.say()
        paper.draw(own_score_table(heads, names, paper.surface))
