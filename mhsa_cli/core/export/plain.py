"""CSV tables and a JSON document of what a run has measured. No torch."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from types import MappingProxyType
from typing import Any, NamedTuple

from mhsa_cli.core.export import Files, Source, flat, heads_of

BLOCK = 1000  # rows or records per chunk
# Keys that two kinds of records share for different quantities, and their columns.
COLUMNS = {"eval": {"loss": "eval_loss", "accuracy": "eval_accuracy"}, "epoch": {"loss": "epoch_loss"}}
PARTS = "evidence_parts"  # omitted: tables have the evidence as text


def to_csv(run: Source) -> Files:
    """Write metrics.csv, one row per record, and heads.csv, one row per head of heads.json if there is one.

    `loss` and `accuracy` are a training step's, `eval_loss` and `eval_accuracy` those of the evaluation rows,
    `epoch_loss` an epoch's mean training loss. Nested keys are dotted; NaN and infinities are kept; unknown is empty.
    """
    files = {"metrics.csv": table(lambda: (_in_columns(flat(record)) for record in run.metrics), ["kind", "step"])}
    if run.heads is not None:
        rows = head_rows(run)
        files["heads.csv"] = table(lambda: rows, ["layer", "head", "step"])
    return files


def head_rows(run: Source) -> list[dict[str, Any]]:
    """List the heads of heads.json as rows, flat, with their step; none if it was not written."""
    if run.heads is None:
        return []
    heads = [{k: v for k, v in head.items() if k != PARTS} for head in heads_of(run.heads, "heads.json")]
    return [{**flat(head), "step": run.heads.get("step")} for head in heads]


def _in_columns(record: Mapping[str, Any]) -> dict[str, Any]:
    names = COLUMNS.get(str(record.get("kind")), {})
    return {names.get(key, key): value for key, value in record.items()}


def table(rows: Callable[[], Iterable[Mapping[str, Any]]], first: Sequence[str]) -> Iterator[bytes]:
    """Write rows as CSV in chunks: the columns `first`, then all other keys in order of appearance.

    `rows` is called twice, for the columns and for the values.
    """
    columns = list(dict.fromkeys(chain(first, (key for row in rows() for key in row))))
    lines: Iterator[list[Any]] = chain([columns], ([row.get(column) for column in columns] for row in rows()))
    while block := list(islice(lines, BLOCK)):
        out = io.StringIO()
        csv.writer(out, lineterminator="\n").writerows(block)
        yield out.getvalue().encode("utf-8", "backslashreplace")


def to_json(run: Source) -> Files:
    """Write one strict JSON document of run, config, info, final, heads, metrics and head_scores; NaN becomes null."""
    return {"": _run_document(run)}


def _run_document(run: Source, more: Mapping[str, Any] = MappingProxyType({})) -> Iterator[bytes]:
    document = {
        "run": run.name,
        **more,
        "config": run.config.to_dict(),
        "info": run.info,
        "final": run.info.get("final"),
        "heads": run.heads,
    }
    return _document(document, {"metrics": run.metrics, "head_scores": run.head_scores})


def _document(document: Mapping[str, Any], lines: Mapping[str, Iterable[Mapping[str, Any]]]) -> Iterator[bytes]:
    """Write a document in chunks, with the long lists of `lines` at its end."""
    yield _strict(document)[:-1]
    for name, records in lines.items():
        yield f', "{name}": ['.encode("ascii")
        chunks = (_strict(record) for record in records)
        before = b""
        while block := list(islice(chunks, BLOCK)):
            yield before + b", ".join(block)
            before = b", "
        yield b"]"
    yield b"}\n"


def _strict(value: Any) -> bytes:
    return json.dumps(finite(value), allow_nan=False).encode("ascii")


def finite(value: Any) -> Any:
    """Replace non-finite numbers by None, since JSON has no NaN."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


class Trials(NamedTuple):
    """The trials of a sweep: what tells each from the others, such as its settings and seed, and its data.

    `read` gives them one after the other, as often as asked: of many trials one at a time is in memory.
    """

    read: Callable[[], Iterable[tuple[Mapping[str, Any], Source]]]


def trials_to_csv(trials: Trials) -> Files:
    """Write metrics.csv and heads.csv of all trials, with the columns that tell them from each other first."""
    names = list(dict.fromkeys(key for keys, _ in trials.read() for key in keys))

    def metrics() -> Iterator[Mapping[str, Any]]:
        for keys, run in trials.read():
            yield from ({**_in_columns(flat(record)), **keys} for record in run.metrics)

    def heads() -> Iterator[Mapping[str, Any]]:
        for keys, run in trials.read():
            yield from ({**row, **keys} for row in head_rows(run))

    return {
        "metrics.csv": table(metrics, [*names, "kind", "step"]),
        "heads.csv": table(heads, [*names, "layer", "head", "step"]),
    }


def trials_to_json(document: Mapping[str, Any], trials: Trials) -> Files:
    """Write one strict JSON document: `document`, and a list `trials` of what `to_json` writes of each."""

    def pieces() -> Iterator[bytes]:
        yield _strict(document)[:-1] + b', "trials": ['
        for place, (keys, run) in enumerate(trials.read()):
            yield (b", " if place else b"") + b"".join(_run_document(run, keys)).rstrip()
        yield b"]}\n"

    return {"": pieces()}
