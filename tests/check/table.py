"""Grades every planted fault and prints what came of it, fault by style; `--write` writes docs/reference/check.md.

python -m tests.check.table [--write] [--only STYLE ...]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from unittest import mock

from mhsa_cli.check.faults import FAULTS
from mhsa_cli.check.grade import grade
from mhsa_cli.check.source.load import load
from mhsa_cli.errors import UsageError
from mhsa_cli.records.check import Grade, GradeOptions, NamedFault
from tests.check.expected import EXPECTED, FOUND
from tests.check.grading import described, grade_text, names_of
from tests.check.planted import STYLES, Planted, changed, framed, pairs, sources

DOCS = Path(__file__).parents[2] / "docs/reference/check.md"
BEGIN, END = "<!-- planted faults: begin -->", "<!-- planted faults: end -->"
NEAR = 2  # lines off that still point at the fault

NAMED, MORE, UNNAMED, OTHER, MISSED, RAISED = (
    "named", "named, with others", "unnamed", "WRONGLY NAMED", "CALLED RIGHT", "RAISED",
)  # fmt: skip
# How the styles are changed, by the end of their names.
CHANGES = {
    "_off": "The same faults in sources with parts that are off",
    "_renamed": "With unfamiliar names",
    "_two": "In two files",
}
OUTCOMES = (NAMED, MORE, UNNAMED, OTHER, MISSED, RAISED)


@dataclass(frozen=True)
class Row:
    """What came of one planted source: the outcome, what the grade said, how many lines off, and how long it took."""

    planted: Planted
    outcome: str
    described: str
    off: int | None
    seconds: float


def outcome_of(planted: Planted, result: Grade) -> str:
    """Say in one word what a grade made of a planted source."""
    named = names_of(result)
    if planted.accepts(named):
        return NAMED if len(named) == len(planted.faults) else MORE
    if result.verdict == "right":
        return MISSED
    return OTHER if named else UNNAMED


def rows(planted: Sequence[Planted]) -> Iterator[Row]:
    """Grade planted sources one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        for number, one in enumerate(planted):
            started = time.process_time()
            try:
                result = grade_text(one.source, one.entry, Path(folder, str(number)), one.beside)
            except Exception as error:  # a grade that raises is a row of the table, too
                yield Row(one, RAISED, f"{type(error).__name__}: {error}", None, time.process_time() - started)
                continue
            told = [fault for fault in result.faults if one.accepts({fault.id}) and fault.line is not None]
            off = min((lines_off(one, fault) for fault in told), default=None)
            yield Row(one, outcome_of(one, result), described(result), off, time.process_time() - started)


def lines_off(planted: Planted, fault: NamedFault) -> int:
    """Count the lines between a fault and its place in the report; another file is as far as a file is long."""
    if any(name in fault.place for name in planted.beside) is not bool(planted.file):
        return len(planted.source.splitlines())
    return abs((fault.line or 0) - planted.line)


def cpu(found: Sequence[float]) -> str:
    """Write the median and the maximum of CPU seconds."""
    return f"median {statistics.median(found):.2f} s, maximum {max(found):.2f} s of CPU in {len(found)} grades"


def counts(found: Sequence[Row]) -> str:
    """Count outcomes: "41 of 43 named; 2 unnamed"."""
    total = Counter(row.outcome for row in found)
    rest = "".join(f"; {total[kind]} {kind}" for kind in OUTCOMES[1:] if total[kind])
    return f"{total[NAMED]} of {len(found)} named{rest}"


def markdown(single: Sequence[Row], double: Sequence[Row], inside: Sequence[Row], others: Sequence[Row] = ()) -> str:
    """Write the table: a row for each fault, a column for each style, then counts."""
    styles = [name for name in STYLES if any(row.planted.style == name for row in single)]
    cells = {(row.planted.fault, row.planted.style): row.outcome for row in single}
    order = {name: place for place, name in enumerate(FAULTS)}
    faults = sorted({fault for fault, _ in cells}, key=lambda fault: order.get(fault, len(order)))
    lines = [f"| fault | {' | '.join(styles)} |", f"|---|{'---|' * len(styles)}"]
    lines += [f"| `{f}` | {' | '.join(cells.get((f, style), '') for style in styles)} |" for f in faults]
    reported = [row for row in single if row.off is not None]
    near = sum((row.off or 0) <= NEAR for row in reported)
    lines += ["", f"One fault: {counts(single)}. {len(faults)} faults in {len(styles)} styles."]
    lines += ["", f"Two faults at once: {counts(double)}. Inside a residual and a LayerNorm: {counts(inside)}."]
    lines += ["", f"Of {len(reported)} reported lines, {near} are at most {NEAR} away from the fault."]
    for ending, says in CHANGES.items() if others else ():
        these = [row for row in others if row.planted.style.endswith(ending)]
        near = sum(row.off is not None and row.off <= NEAR for row in these)
        lines += ["", f"{says}: {counts(these)}; {near} of {sum(row.off is not None for row in these)} lines near."]
    return "\n".join(lines) + "\n"


def write(text: str, path: Path = DOCS) -> None:
    """Put the table between its marks in a document; a document without them gets it at its end."""
    old = path.read_text() if path.exists() else "# Check your attention\n"
    before, begin, rest = old.partition(BEGIN)
    after = rest.partition(END)[2] if begin else "\n"
    path.write_text(f"{before.rstrip()}\n\n{BEGIN}\n\n{text}\n{END}{after}")


def seconds_of_found() -> Iterator[float]:
    """Give the CPU seconds that each file of `found/` takes that can be loaded."""
    for expected in EXPECTED:
        started = time.process_time()
        with suppress(UsageError), mock.patch.object(sys, "path", list(sys.path)):
            grade(load(f"{FOUND}/{expected.block}"), GradeOptions())
            yield time.process_time() - started


def main() -> None:
    """Grade, print what is not plainly named as it comes, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], metavar="STYLE")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    kinds: list[list[Row]] = []
    for kind in (sources, pairs, framed, changed):
        kinds.append([])
        for row in rows([one for one in kind() if not given.only or one.style in given.only]):
            kinds[-1].append(row)
            if row.outcome != NAMED or row.seconds > 5:
                print(f"{row.outcome}: {row.planted.style} {row.planted.fault} ({row.seconds:.1f} s): {row.described}",
                      flush=True)  # fmt: skip
    text = markdown(*kinds)
    everything = list(chain.from_iterable(kinds))
    print(f"\n{text}\n{cpu([row.seconds for row in everything])}")
    if not given.only:
        print(f"of attention as people write it: {cpu(list(seconds_of_found()))}")
    for row in everything:
        if row.off is not None and row.off > NEAR:
            print(f"line: {row.planted.style} {row.planted.fault}: {row.off} off (it is {row.planted.line})")
    if given.write:
        write(text)


if __name__ == "__main__":
    main()
