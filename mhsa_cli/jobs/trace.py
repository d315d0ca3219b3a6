"""The tensor story of a config's untrained model."""

from __future__ import annotations

from mhsa_cli.config.load import Config
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.trace.run import tell
from mhsa_cli.jobs.train import prepare_device
from mhsa_cli.records import Trace


def trace(config: Config, rows: int, forward_only: bool) -> Trace:
    """Follow so many rows through the model, and check on the way what must be true. Raises: UsageError."""
    device = prepare_device(config)
    return tell(config, build_task(config.task), batch=rows, forward_only=forward_only, device=device)
