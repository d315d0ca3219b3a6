"""`mhsa check`: test attention code and locate its faults."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import count
from pathlib import Path
from typing import Annotated, Any

import typer

from mhsa_cli.commands.deleted_folder import need_folder
from mhsa_cli.commands.options import JsonOption, argument, flag, option
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.errors import ANSWERED_NO, UsageError, unwanted
from mhsa_cli.jobs.grade.blocks import Row, check_options, check_readable, expand, is_passed
from mhsa_cli.jobs.grade.reports import check_free, report_names, write_reports, write_table
from mhsa_cli.jobs.grade.runner import Limits, grade_all
from mhsa_cli.jobs.messages import tell
from mhsa_cli.records.check import Grade, GradeOptions
from mhsa_cli.renderers.pictures.check import fitted_grade, grade_picture, grades_table
from mhsa_cli.renderers.pictures.check_csv import grades_csv
from mhsa_cli.renderers.pictures.check_markdown import grade_markdown, grades_markdown
from mhsa_cli.renderers.pictures.check_words import by_fault, faults_of, verdict_word
from mhsa_cli.text import escape, plural


def _at_most(largest: float) -> Callable[[float], float]:
    """Make the check of an option; the ranges of typer let nan pass."""

    def check_value(value: float) -> float:
        if not 0.1 <= value <= largest:
            raise typer.BadParameter(f"a number from 0.1 to {largest:,}")
        return value

    return check_value


def check(
    blocks: Annotated[list[str], argument("BLOCK...", "FILE:NAME of a class, function or instance; FILE; or a folder")],
    entry: Annotated[str | None, option("--entry", "NAME", "name of the block in every file of a folder")] = None,
    as_json: JsonOption = False,
    markdown: Annotated[bool, flag("--markdown", "print Markdown")] = False,
    table: Annotated[
        Path | None, option("--csv", "FILE", "write a table for a spreadsheet: a row for each block")
    ] = None,
    out: Annotated[Path | None, option("--out", "DIR", "write a Markdown report for each student")] = None,
    seconds: Annotated[
        float, option("--seconds", "N", "time limit for each block, in seconds", callback=_at_most(86_400))
    ] = 30.0,
    memory: Annotated[
        float, option("--memory", "GIB", "memory limit for each block, in GiB", callback=_at_most(65_536))
    ] = 4.0,
    jobs: Annotated[int | None, option("--jobs, -j", "N", "processes at a time [default: one per core]", min=1)] = None,
    causal: Annotated[
        bool | None, flag("--causal/--no-causal", "require a causal mask, or none [default: detect]")
    ] = None,
    order: Annotated[str | None, option("--order", "qkv", "order in a fused projection [default: detect]")] = None,
    verbose: Annotated[bool, flag("--verbose, -v", "list all laws, also on a low terminal")] = False,
    rope: Annotated[
        str | None, option("--rope", "KIND", "rotary positions: none, interleaved or half [default: detect]")
    ] = None,
    d_model: Annotated[int | None, option("--d-model", "N", "d_model of the block [default: 24]", min=1)] = None,
    n_heads: Annotated[int | None, option("--n-heads", "N", "number of heads of the block [default: 4]", min=1)] = None,
    seq_len: Annotated[int | None, option("--seq-len", "N", "number of tokens in a row [default: 7]", min=2)] = None,
    given: Annotated[
        list[str] | None, option("--with", "KEY=VALUE", "argument for the constructor or the call; repeatable")
    ] = None,
) -> None:
    """Run `mhsa check`."""
    if as_json and markdown:
        raise UsageError("--json and --markdown exclude each other", "keep one of them")
    options = GradeOptions(causal, order, rope, d_model, n_heads, seq_len, tuple(_pairs(given or ())))
    check_options(options)
    limits = Limits(seconds, memory)
    need_folder()
    many = len(blocks) > 1 or Path(blocks[0]).is_dir()
    rows = expand(blocks, entry, [path for path in (table, out) if path is not None])
    names = report_names(rows)
    check_free(table, out, list(names.values()))
    numbers = count(1)

    def on_grade(grade: Grade) -> None:
        faults = ", ".join(fault.id for fault in faults_of(grade))
        if many:
            result = f"{grade.block}  {verdict_word(grade)}{f': {faults}' if faults else ''}"
            tell(f"{next(numbers)}/{len(rows)}  {result}")

    alone = not (many or as_json)  # else a block that cannot be loaded gets a row or a document
    if alone:
        check_readable(rows[0].block)
    try:
        results = list(grade_all(rows, options, limits, jobs, on_grade))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if alone and results[0].error is not None:
        raise results[0].error
    grades = [result.grade for result in results]
    passed = is_passed(rows, grades)
    _print(grades, many, as_json, markdown, passed, verbose)
    if table is not None:
        tell(f"wrote {escape(write_table(table, grades_csv(grades)))}")
    if out is not None:
        written = write_reports(out, _reports(rows, grades, names))
        tell(f"wrote {plural(len(written), 'report')} in {escape(out)}")
    if not passed:
        wrong = any(grade.verdict == "wrong" for grade in grades)
        raise typer.Exit(ANSWERED_NO if wrong else UsageError.exit_code)


def _reports(rows: Sequence[Row], grades: Sequence[Grade], names: Mapping[str, str]) -> dict[str, str]:
    """Write a report for each owner: the grade of the only block, or a table of all and then each."""
    owned: dict[str, list[Grade]] = {}
    for row, grade in zip(rows, grades, strict=True):
        if row.owner in names:
            owned.setdefault(row.owner, []).append(grade)
    return {
        names[owner]: "\n".join([*([grades_markdown(own)] if len(own) > 1 else []), *map(grade_markdown, own)])
        for owner, own in owned.items()
    }


def _pairs(given: Sequence[str]) -> Sequence[str]:
    first: dict[str, str] = {}
    for pair in given:
        key = pair.partition("=")[0]
        if not key.isidentifier() or "=" not in pair:
            raise unwanted("--with", pair, "KEY=VALUE", "for example: --with bias=false")
        if key in first:
            raise UsageError(f"--with: found `{pair}` and `{first[key]}`, wanted `{key}` once", "keep one of them")
        first[key] = pair
    return given


def _print(grades: Sequence[Grade], many: bool, as_json: bool, markdown: bool, passed: bool, verbose: bool) -> None:
    if as_json:
        documents = [{"block": grade.block, **_document(grade)} for grade in grades]
        counted = {fault.id: len(owners) for fault, owners in by_fault(grades)}
        print_json({"passed": passed, "faults": counted, "blocks": documents} if many else _document(grades[0]))
        return
    paper = Paper()
    if markdown:
        paper.say((grades_markdown(grades) if many else grade_markdown(grades[0])).rstrip("\n"))
    elif many:
        paper.draw(grades_table(grades, paper.surface))
    else:
        surface = paper.surface
        whole = verbose or not surface.animate
        paper.draw(grade_picture(grades[0], surface) if whole else fitted_grade(grades[0], surface, surface.height - 1))


def _document(grade: Grade) -> dict[str, Any]:
    document = asdict(grade)
    del document["block"]
    named = document["faults"]
    document["faults"] = [fault for fault in named if not fault["edge"]]
    for key in ("notes", "tried"):
        document[key] = [note["text"] for note in document[key]]
    return {
        "passed": grade.passed,
        **document,
        "remarks": [fault for fault in named if fault["edge"]],
        "failure": grade.failure,
    }
