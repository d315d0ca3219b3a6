"""`mhsa trace`: the tensor story of a config, from token ids to logits, with what must be true checked on the way."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Annotated

from mhsa_cli.commands.options import ConfigOption, JsonOption, Overrides, SetOption, all_overrides, flag, option
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.custom_attention import refuse_block
from mhsa_cli.config.load import load_config
from mhsa_cli.errors import MhsaError, UsageError
from mhsa_cli.renderers.pictures.trace import trace_picture
from mhsa_cli.renderers.pictures.trace_words import check_words
from mhsa_cli.text import escape

BatchOption = Annotated[
    int | None, option("--batch", "N", "Rows to send through, of the first training batch; else 2.")
]
ForwardOption = Annotated[bool, flag("--forward-only", "No backward pass: for large configs.")]


def trace(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    batch: BatchOption = None,
    forward_only: ForwardOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa trace`."""
    changes = all_overrides("trace", overrides, settings)
    wanted = load_config(config, changes)
    refuse_block(wanted.model.attention, "mhsa trace")
    rows = _rows(batch, wanted.train.batch_size)
    from mhsa_cli.jobs.untrained import trace_model  # torch: not before the config is known to be good

    told = trace_model(wanted, rows, forward_only)
    if as_json:
        checks = [{"name": c.name, "passed": c.passed, "figure": c.figure, "text": check_words(c)} for c in told.checks]
        print_json({**asdict(told), "checks": checks})
    else:
        paper = Paper()
        paper.draw(trace_picture(told, paper.surface))
        file = [] if config is None else ["--config", config]
        paper.next(f"{escape(shlex.join(['mhsa', 'train', *file, *changes]))}")
    if not all(check.passed for check in told.checks):
        raise MhsaError("a check failed: attention is wrong here", "please report it, with the config and your torch")


def _rows(batch: int | None, batch_size: int) -> int:
    """Find how many rows to send: what fits into memory was checked for a whole batch, so there are no more."""
    if batch is None:
        return min(2, batch_size)
    if not 1 <= batch <= batch_size:
        hint = f"with train.batch_size={batch} a batch has as many" if batch > batch_size else None
        raise UsageError(f"--batch {batch}: wanted 1 to {batch_size}, the rows of a training batch", hint)
    return batch
