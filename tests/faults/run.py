"""`python -m tests.faults.run [--long] [--seed N] [ROW ...]`: break everything on purpose, and print what held.

With --long it runs for about an hour and a quarter and writes what came of each row into docs/explanation/promises.md.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from datetime import UTC, datetime
from multiprocessing import get_context
from pathlib import Path

from tests.faults.client import ROOT, ForkServer
from tests.faults.row import Outcome, broken_by, run_row
from tests.faults.table import ROWS

DOCS = ROOT / "docs/explanation/promises.md"
BEGIN, END = "<!-- table of faults -->", "<!-- end of table -->"


def one(name: str, long: bool, seed: int) -> tuple[str, Outcome, bool]:
    """Run a row and its mutant; says whether the mutant was noticed."""
    row = ROWS[name]
    with tempfile.TemporaryDirectory() as folder, ForkServer(Path(folder)) as server:
        outcome = run_row(row, row.long if long else row.quick, server, seed)
        with broken_by(row.mutant) as mutant:
            noticed = bool(run_row(row, row.quick, server, mutant=mutant, first=True).failures)
    return name, outcome, noticed


def line(name: str, outcome: Outcome, noticed: bool) -> str:
    """Write a row as Markdown."""
    row, notes, when = ROWS[name], "; ".join(sorted(outcome.notes)), f"{datetime.now(UTC):%Y-%m-%d}"
    cells = [row.promise, f"`{name}`: {row.fault}", f"{outcome.count:,}", str(len(outcome.failures))]
    return "| " + " | ".join([*cells, "yes" if noticed else "NO", f"{outcome.seconds:.0f}", when, notes]) + " |"


def write(found: dict[str, str], seed: int) -> None:
    """Put rows into the table of the docs; those of other kinds stay."""
    before, _, rest = DOCS.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    old = {name: text for text in table.splitlines() for name in ROWS if f"| `{name}`: " in text}
    packages = ("torch", "safetensors", "pydantic")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    machine = f"{os.cpu_count()} cores, Python {platform.python_version()}, {versions}, seed {seed}"
    titles = ["promise", "fault", "cases", "failures", "mutant noticed", "seconds", "when", "notes"]
    head = ["| " + " | ".join(titles) + " |", "|---" * len(titles) + "|"]
    rows = [text for name in ROWS if (text := {**old, **found}.get(name))]
    content = "\n".join([f"`make faults`, two rows at a time, {machine}:", "", *head, *rows])
    DOCS.write_text(f"{before}{BEGIN}\n{content}\n{END}{after}")


def main() -> int:
    """Run the rows, two at a time, and say what came of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("rows", nargs="*", help=f"of {', '.join(ROWS)}; left out, all")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    wanted = parser.parse_args()
    names = wanted.rows or list(ROWS)
    found: dict[str, str] = {}
    bad = False
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1), mp_context=get_context("spawn")) as pool:
        for name, outcome, noticed in pool.map(one, names, [wanted.long] * len(names), [wanted.seed] * len(names)):
            found[name] = line(name, outcome, noticed)
            print(found[name], flush=True)
            for failure in outcome.failures[:20]:
                print(f"    {failure}", file=sys.stderr, flush=True)
            bad = bad or bool(outcome.failures) or not noticed
    if wanted.long:
        write(found, wanted.seed)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
