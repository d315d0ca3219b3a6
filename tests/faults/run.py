"""`python -m tests.faults.run [--long] [--seed N] [ROW ...]`: break everything on purpose, and print what held.

With --long it runs for about an hour and writes its table into docs/promises.md.
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

DOCS = ROOT / "docs/promises.md"
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
    row, notes = ROWS[name], "; ".join(sorted(outcome.notes))
    cells = [row.promise, row.fault, f"{outcome.count:,}", str(len(outcome.failures)), "yes" if noticed else "NO"]
    return "| " + " | ".join([*cells, f"{outcome.seconds:.0f}", notes]) + " |"


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
    if wanted.long and not wanted.rows:
        versions = ", ".join(
            f"{name} {importlib.metadata.version(name)}" for name in ("torch", "safetensors", "pydantic")
        )
        when = f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}, {versions}"
        head = [
            "| promise | fault | cases | failures | mutant noticed | seconds | notes |",
            "|---|---|---|---|---|---|---|",
        ]
        table = "\n".join([f"`make faults`, {when}, seed {wanted.seed}:", "", *head, *found.values()])
        before, _, rest = DOCS.read_text().partition(BEGIN)
        DOCS.write_text(f"{before}{BEGIN}\n{table}\n{END}{rest.partition(END)[2]}")
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
