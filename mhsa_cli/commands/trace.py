"""`mhsa trace`: follow the tensors of an untrained model from token ids to logits, with checks."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Annotated

from mhsa_cli.commands.options import ConfigOption, JsonOption, Overrides, SetOption, all_overrides, flag, option
from mhsa_cli.commands.output import Paper, print_json
from mhsa_cli.config.custom_attention import refuse_block
from mhsa_cli.config.encoder_decoder import refuse_encoder_decoder
from mhsa_cli.config.load import load_config
from mhsa_cli.errors import MhsaError, unwanted
from mhsa_cli.renderers.pictures.trace import trace_picture
from mhsa_cli.renderers.pictures.trace_words import check_words
from mhsa_cli.text import escape


def trace(
    overrides: Overrides = None,
    config: ConfigOption = None,
    settings: SetOption = None,
    batch: Annotated[int | None, option("--batch", "N", "rows of the first training batch to use [default: 2]")] = None,
    forward_only: Annotated[bool, flag("--forward-only", "skip the backward pass, for large configs")] = False,
    as_json: JsonOption = False,
) -> None:
    """Run `mhsa trace`."""
    changes = all_overrides("trace", overrides, settings)
    wanted = load_config(config, changes)
    refuse_block(wanted.model.attention, "mhsa trace")
    refuse_encoder_decoder(wanted.model.encoder_layers > 0, "mhsa trace")
    batch_size = wanted.train.batch_size  # the memory check of the config is for this many rows
    if batch is not None and not 1 <= batch <= batch_size:
        hint = f"add train.batch_size={batch}" if batch > batch_size else None
        raise unwanted("--batch", batch, f"1 to {batch_size}, the rows of a training batch", hint)
    from mhsa_cli.jobs.untrained import trace_model  # imports torch: only after the config is checked

    found = trace_model(wanted, min(2, batch_size) if batch is None else batch, forward_only)
    if as_json:
        checks = [
            {"name": c.name, "passed": c.passed, "figure": c.figure, "text": check_words(c)} for c in found.checks
        ]
        print_json({**asdict(found), "checks": checks})
    else:
        paper = Paper()
        paper.draw(trace_picture(found, paper.surface))
        file = [] if config is None else ["--config", config]
        paper.next(f"{escape(shlex.join(['mhsa', 'train', *file, *changes]))}")
    if not all(check.passed for check in found.checks):
        raise MhsaError(
            "a check failed: attention is wrong here", "please report it, with the config and torch version"
        )
