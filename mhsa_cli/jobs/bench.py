"""How fast this machine is at what a config asks for."""

from __future__ import annotations

from collections.abc import Iterator

from mhsa_cli.config.load import Config
from mhsa_cli.core.bench.measure import EFFORTS, measure
from mhsa_cli.jobs.train import prepare_device
from mhsa_cli.records import BenchRecord


def bench(config: Config, quick: bool) -> Iterator[BenchRecord]:
    """Measure, giving each record as soon as it is known. Raises: UsageError if the device is not there."""
    return measure(config, prepare_device(config), EFFORTS["quick" if quick else "full"])
