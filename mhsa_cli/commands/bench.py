"""`mhsa bench`: measure training speed and memory on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import groupby
from typing import Annotated, Any

from mhsa_cli.commands.options import ConfigOption, JsonOption, Overrides, SetOption, all_overrides, flag
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.custom_attention import refuse_block
from mhsa_cli.config.load import load_config
from mhsa_cli.records.bench import BenchRecord, ImportSpeed, Machine, NotMeasured
from mhsa_cli.renderers.pictures.bench import bench_section


def bench(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    quick: Annotated[bool, flag("--quick", "measure less, in a few seconds")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa bench`."""
    wanted = load_config(config, all_overrides("bench", overrides, settings))
    refuse_block(wanted.model.attention, "mhsa bench")
    from mhsa_cli.jobs.untrained import measure_speed  # imports torch: only after the config is checked

    records = measure_speed(wanted, quick)
    if as_json:
        print_json(document(records))
        return
    paper = Paper()
    for number, (_, section) in enumerate(groupby(records, key=lambda record: record.section)):
        if number:
            paper.say()
        paper.draw(bench_section(list(section), paper.surface))


def document(records: Iterable[BenchRecord]) -> dict[str, Any]:
    """Group the records by section; machine and import_torch have one record, the others a list."""
    found: dict[str, Any] = {"machine": None, "steps": [], "stacks": [], "attention": [], "import_torch": None}
    found["not_measured"] = []
    for record in records:
        if isinstance(record, NotMeasured):
            found["not_measured"].append(_plain(record))
        elif isinstance(record, Machine | ImportSpeed):
            found[record.section] = _plain(record)
        else:
            found[record.section].append(_plain(record))
    return found


def _plain(record: BenchRecord) -> dict[str, Any]:
    quartiles = ("q25", "median", "q75")
    return {
        key: dict(zip(quartiles, value, strict=True)) if isinstance(value, tuple) else value
        for key, value in asdict(record).items()
    }
