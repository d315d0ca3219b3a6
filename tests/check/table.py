"""Grades every planted fault and prints what came of it, fault by style; `--write` puts the table into docs/check.md.

python -m tests.check.table [--write] [--only STYLE ...]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from mhsa_cli.check.faults import FAULTS
from mhsa_cli.records.check import Grade
from tests.check.grading import described, grade_text, names_of
from tests.check.planted import STYLES, Planted, framed, pairs, sources

DOCS = Path(__file__).parents[2] / "docs" / "check.md"
BEGIN, END = "<!-- planted faults: begin -->", "<!-- planted faults: end -->"
NEAR = 2  # lines off that still point at the fault

NAMED, MORE, UNNAMED, OTHER, MISSED, RAISED = (
    "named", "named, with others", "unnamed", "WRONGLY NAMED", "CALLED RIGHT", "RAISED",
)  # fmt: skip
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
        for one in planted:
            started = time.perf_counter()
            try:
                result = grade_text(one.source, one.entry, Path(folder))
            except Exception as error:  # a grade that raises is a row of the table, too
                yield Row(one, RAISED, f"{type(error).__name__}: {error}", None, time.perf_counter() - started)
                continue
            lines = [f.line for f in result.faults if one.accepts({f.id}) and f.line is not None]
            off = min((abs(line - one.line) for line in lines), default=None)
            yield Row(one, outcome_of(one, result), described(result), off, time.perf_counter() - started)


def counts(found: Sequence[Row]) -> str:
    """Count outcomes: "41 of 43 named; 2 unnamed"."""
    total = Counter(row.outcome for row in found)
    rest = "".join(f"; {total[kind]} {kind}" for kind in OUTCOMES[1:] if total[kind])
    return f"{total[NAMED]} of {len(found)} named{rest}"


def markdown(single: Sequence[Row], double: Sequence[Row], inside: Sequence[Row]) -> str:
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
    return "\n".join(lines) + "\n"


def write(text: str, path: Path = DOCS) -> None:
    """Put the table between its marks in a document; a document without them gets it at its end."""
    old = path.read_text() if path.exists() else "# Check your attention\n"
    before, begin, rest = old.partition(BEGIN)
    after = rest.partition(END)[2] if begin else "\n"
    path.write_text(f"{before.rstrip()}\n\n{BEGIN}\n\n{text}\n{END}{after}")


def main() -> None:
    """Grade, print what is not plainly named as it comes, then the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--only", nargs="*", default=[], metavar="STYLE")
    given = parser.parse_args()
    import torch

    torch.set_num_threads(1)
    kinds: list[list[Row]] = []
    for kind in (sources, pairs, framed):
        kinds.append([])
        for row in rows([one for one in kind() if not given.only or one.style in given.only]):
            kinds[-1].append(row)
            if row.outcome != NAMED or row.seconds > 5:
                print(f"{row.outcome}: {row.planted.style} {row.planted.fault} ({row.seconds:.1f} s): {row.described}",
                      flush=True)  # fmt: skip
    text = markdown(*kinds)
    everything = list(chain.from_iterable(kinds))
    print(f"\n{text}\n{len(everything)} grades in {sum(row.seconds for row in everything):.0f} s")
    for row in everything:
        if row.off is not None and row.off > NEAR:
            print(f"line: {row.planted.style} {row.planted.fault}: {row.off} off (it is {row.planted.line})")
    if given.write:
        write(text)


if __name__ == "__main__":
    main()
