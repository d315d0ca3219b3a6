"""What is asked of a config, or of the tasks, without a training: speed, the tensor story, a drawn row."""

from __future__ import annotations

from collections.abc import Iterator

from mhsa_cli.config.schema import Config
from mhsa_cli.core.bench.measure import EFFORTS, measure
from mhsa_cli.core.tasks import drawn
from mhsa_cli.core.trace.run import run_trace
from mhsa_cli.jobs.initial import first_model
from mhsa_cli.jobs.own_task import make_task
from mhsa_cli.jobs.train import prepare_device
from mhsa_cli.records.bench import BenchRecord
from mhsa_cli.records.trace import Trace
from mhsa_cli.records.training import TaskInfo

__all__ = ["example_of", "measure_speed", "trace_model"]


def example_of(config: Config) -> TaskInfo:
    """Draw one row of a config's task; of the user's own, its file runs. Raises: UsageError."""
    return drawn(make_task(config))


def measure_speed(config: Config, quick: bool) -> Iterator[BenchRecord]:
    """Measure this machine at a config, giving each record as soon as it is known. Raises: UsageError."""
    return measure(config, prepare_device(config), EFFORTS["quick" if quick else "full"])


def trace_model(config: Config, rows: int, forward_only: bool) -> Trace:
    """Follow so many rows through the model, and check on the way what must be true. Raises: UsageError."""
    device = prepare_device(config)
    task = make_task(config)
    model = None if config.train.init is None else first_model(config, task)
    return run_trace(config, task, batch=rows, forward_only=forward_only, device=device, model=model)
