"""A run in Python: its curve, its heads and what is said of them, its model."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhsa_cli.api.plot import File, file_of, page_of, run_figure, written
from mhsa_cli.api.settings import check_kinds, config_and_changes
from mhsa_cli.api.shown import InFolder, ShownMaps
from mhsa_cli.api.tables import Table, table
from mhsa_cli.config.custom_attention import refuse_block
from mhsa_cli.config.own_file import OwnCode
from mhsa_cli.config.schema import Config
from mhsa_cli.errors import MhsaError, unwanted
from mhsa_cli.jobs.guest import as_guest
from mhsa_cli.jobs.load_heads import (
    measured_maps,
    read_addresses,
    report_of,
    stored_maps,
    tell_other_weights,
    without_maps,
)
from mhsa_cli.jobs.run_config import run_config
from mhsa_cli.jobs.steps import check_step, find_step
from mhsa_cli.records.claim_words import words
from mhsa_cli.records.evaluation import Evaluation
from mhsa_cli.records.heads import HeadMaps, HeadScore
from mhsa_cli.renderers.figures.sheet_options import RUN_PARTS
from mhsa_cli.renderers.kit.console import Surface
from mhsa_cli.renderers.kit.palette import BOLD
from mhsa_cli.renderers.kit.text_lines import Lines, stacked, wrap_phrases
from mhsa_cli.renderers.kit.ticks import fixed, percents
from mhsa_cli.renderers.pictures.explain import explain_model, head_line
from mhsa_cli.renderers.pictures.heads import heads_picture
from mhsa_cli.runs.listing import METRICS, origin_of
from mhsa_cli.runs.metrics import record_to_dict, records_of
from mhsa_cli.runs.names import NEWEST, runs_root
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import Head, escape, from_file

if TYPE_CHECKING:
    from torch.nn import Module

    from mhsa_cli.jobs.trained_run import TrainedRun
    from mhsa_cli.renderers.figures.sheet import PaperFigure

Heads = str | Iterable[str | tuple[int, int]]
NUMBERS = (int, float, type(None))


def load(
    run: str | os.PathLike[str] = NEWEST,
    *,
    step: int | str | None = None,
    runs: str | os.PathLike[str] | None = None,
    attention: str | None = None,
    task: str | None = None,
) -> Run:
    """Open a run by its name or path; left out, the newest. With `step` its heads and model are those of that step.

    `step` is a number, "first", "best" or "last". `runs` is the folder of runs [default: $MHSA_RUNS or ./runs].
    `attention` and `task` name the user's code of the run, FILE.py:Name: it runs where a model is needed.
    Raises: RunError.
    """
    with as_guest():
        if not isinstance(run, str | os.PathLike):
            raise unwanted("run", repr(run), "the name or path of a run")
        folder = RunDir.open(runs_root(None if runs is None else Path(runs)), run)
        return Run(folder, OwnCode(attention, task), find_step(folder, None if step is None else check_step(str(step))))


class Run(InFolder):
    """A run: its curve, its heads, its model; each is read or measured when it is first asked for.

    Tables are pandas DataFrames where pandas is installed, else lists of dicts. `print` writes a run's heads as
    text, a notebook draws their maps.
    """

    _folder: RunDir

    def __init__(self, folder: RunDir, own: OwnCode, step: int | None = None) -> None:
        self._folder, self._own, self._step = folder, own, step

    @cached_property
    def info(self) -> dict[str, Any]:
        """What run.json says: status, steps, seconds, final figures, chance level, digests."""
        with as_guest():
            return self._folder.read_run_json()

    @cached_property
    def config(self) -> Config:
        """All settings, as `config.model.n_heads`."""
        with as_guest():
            return run_config(self._folder)

    @cached_property
    def metrics(self) -> Table:
        """The curve: a row for each record of `kind` step, eval or epoch; losses in nats."""
        with as_guest():
            return table(record_to_dict(record) for record in records_of(self._folder.records(METRICS)))

    @cached_property
    def heads(self) -> Table:
        """A row for each head: its label, its weight on the label's target, and what it does to the loss."""
        return table(_row(head) for head in report_of(self._maps).heads)

    @cached_property
    def claims(self) -> Table:
        """A row for each statement about the model or a head, with its figures and as a sentence."""
        report = report_of(self._maps)
        claims = [*report.verdict.claims, *(claim for head in report.heads for claim in head.evidence)]
        rows = ({field.name: getattr(claim, field.name) for field in fields(claim)} for claim in claims)
        return table({**row, "text": words(claim)} for row, claim in zip(rows, claims, strict=True))

    def attention(self, tokens: str | Iterable[int] | None = None) -> ShownMaps:
        """Return the attention maps of every head on a row of the task, or on given tokens.

        `tokens`: ids or symbols, as "3 5 9 |" or [3, 5, 9]; for text, characters. Raises: UsageError.
        """
        if tokens is None:
            return ShownMaps.of(self._maps)
        with as_guest():
            from mhsa_cli.jobs.trained_run import maps_on_tokens

            text = tokens if isinstance(tokens, str) else " ".join(map(str, tokens))
            return ShownMaps.of(maps_on_tokens(self._trained, text, "tokens"))

    def ablate(self, heads: Heads) -> Table:
        """Measure loss and accuracy with heads ablated together: a row for each way of ablation.

        `heads`: "L0.H3,L1.H0", or addresses as (layer, head). Raises: UsageError.
        """
        with as_guest():
            refuse_block(self.config.model.attention, "ablate", "replaces the patterns of built-in attention")
            chosen = read_addresses(",".join(_addresses(heads)), self._maps, "heads")
            from mhsa_cli.jobs.trained_run import measure_ablation

            found, _ = measure_ablation(self._trained, chosen)
            return table({field.name: getattr(one, field.name) for field in fields(one)} for one in found)

    def evaluate(self, *, rows: int | None = None, seed: int | None = None, **settings: Any) -> Table:
        """Evaluate on held-out rows, also of the task with other settings: a row for each, the first as trained.

        `settings` are those of the task, a list for several values: `evaluate(seq_len=[8, 12])`. `positions` and
        `answers` have the figures by position. Raises: UsageError for rows that the model cannot take.
        """
        with as_guest():
            whole = "a whole number"
            check_kinds({"rows": (rows, int, whole), "seed": (seed, int, whole)})
            _, changes = config_and_changes(None, None, {f"task.{key}": v for key, v in settings.items()}, grid=True)
            from mhsa_cli.jobs.evaluate import evaluate_trained

            found = evaluate_trained(self._trained, self._folder, self._own, changes, rows, seed)
            trained = {key: self.config.to_dict()["task"].get(key) for key in found.results[-1].settings}
            return table({**trained, **one.settings, **_figures(one)} for one in found.results)

    def plot(
        self, path: File = None, *, only: str | None = None, width: str | float | None = None, theme: str = "light"
    ) -> PaperFigure:
        """Return a matplotlib Figure: the loss, heads over training, their maps and effects; also written to `path`.

        `only`: one part, "curve", "lifts", "context", "maps" or "effects". `width`: "3.3in", "84mm" or inches. `theme`:
        "light" or "dark". A path ends in .pdf, .svg or .png. Needs the extra `plots`. Raises: UsageError.
        """
        file, page = file_of(path), page_of(RUN_PARTS, only, width, theme)
        with as_guest():
            maps = self._maps if not without_maps(self._folder) and only not in ("curve", "lifts", "context") else None
            return written(run_figure(self._folder, maps, page), file, repr(self).strip("<>"))

    @property
    def model(self) -> Module:
        """The trained model, a torch module in eval mode: `model(ids)` gives logits (B, T, V) for ids (B, T)."""
        return self._trained.model

    @cached_property
    def _trained(self) -> TrainedRun:
        with as_guest():
            from mhsa_cli.jobs.trained_run import load_trained_run

            return load_trained_run(self._folder, self._own, self._step)

    @cached_property
    def _maps(self) -> HeadMaps:
        with as_guest():
            maps = measured_maps(self._folder, self._own, self._step)
            tell_other_weights(self._folder, maps)
            return maps

    def __repr__(self) -> str:
        final = self.info.get("final") or {}
        origin = origin_of(self.info)
        step = self.info.get("step", 0) if self._step is None else self._step
        figures = [f"step {step}" if origin is None else from_file(origin)]
        if self._step is None and "eval_loss" in final:
            figures += [f"loss {fixed(final['eval_loss'], 4)}", f"accuracy {percents(final['eval_accuracy'])}"]
        if self.info["status"] != "finished":
            figures.append(escape(self.info["status"]))
        return f"<run {escape(self.name)}: {', '.join(figures)}>"

    def _picture(self, surface: Surface) -> Lines:
        """Draw the heads as measured at the end of the training, without torch; those of another step are measured."""
        title = wrap_phrases([[(repr(self).strip("<>"), BOLD)]], surface.width)
        try:
            with as_guest():
                maps = stored_maps(self._folder) if self._step is None else self._maps
                why = without_maps(self._folder)
        except MhsaError as error:
            maps, why = None, error.message
        if maps is None:
            return stacked([title, wrap_phrases([f"no attention maps{f': {why}' if why else ''}"], surface.width)])
        said = Lines()
        if maps.report is not None:
            for sentence in explain_model(maps.report).split("\n"):
                said += wrap_phrases([sentence], surface.width)
        return stacked([title, said, heads_picture(maps, surface)])


def _figures(one: Evaluation) -> dict[str, Any]:
    plain = asdict(one)
    del plain["settings"]
    return {"exact_match": one.exact_match, **plain}


def _addresses(heads: Heads) -> Iterator[str]:
    if isinstance(heads, str):
        yield heads
        return
    if not isinstance(heads, Iterable):
        raise unwanted("heads", repr(heads), 'heads such as "L0.H3,L1.H0" or [(0, 3), (1, 0)]')
    for head in heads:
        yield head if isinstance(head, str) else str(Head(*head))


def _row(head: HeadScore) -> dict[str, Any]:
    """Write a head as a row: its numbers under their own names, and those of its label's target."""
    numbers = {field.name: getattr(head, field.name) for field in fields(head)}
    target = head.scores.get(head.target or "")
    return {
        "name": head.name,
        "label": None if head.label is None else head.label.text,
        "label_id": None if head.label is None else head.label.id,
        "role": None if head.role is None else str(head.role),
        **{key: None if target is None else getattr(target, key) for key in ("mass", "uniform", "lift")},
        **{key: value for key, value in numbers.items() if isinstance(value, NUMBERS) and key not in ("role", "label")},
        "text": head_line(head),
    }
