"""A run that was trained with somebody's own block: the block is imported only where a command is told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from mhsa_cli.config.custom_attention import find_block, is_file, split, way
from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.custom import CustomAttention
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.text import escape

KEY = "attention"  # in run.json: the block's file, name and sha256


def _load_block(target: str) -> CustomAttention:
    """Import a block; what runs its file is loaded for that alone."""
    from mhsa_cli.check.build import load_block

    return load_block(target)


def build_custom_model(config: Config, task: Task) -> TransformerLM | None:
    """Load and try the block that a new training's config names, and build its model; None if the block is ours.

    Raises: UsageError if it cannot be trained.
    """
    if not is_file(config.model.attention):
        return None
    model = build_model(config, task, custom=_load_block(config.model.attention))
    block = model.custom
    assert block is not None
    _introduce(block.attention)
    if not block.findings.has_weights:
        tell(f"note: no maps of its heads: {block.findings.reason}")
    return model


def _introduce(custom: CustomAttention) -> None:
    """Say in a line whose attention is trained, and where to learn whether it is right."""
    seen = "is it right?" if custom.known else "it does not equal the reference, see"
    tell(f"note: the attention is yours, {escape(custom.name)}; {seen} mhsa check {escape(custom.name)}")
    if custom.untrained:
        first, *more = map(escape, custom.untrained)
        names = f"{first} and {len(more)} more stay" if more else f"{first} stays"
        tell(f"note: {names} as drawn, untrained: not among the block's parameters()")


def block_facts(model: TransformerLM | None) -> dict[str, Any]:
    """Say in run.json which block a run is trained with; nothing if it is ours."""
    if model is None or model.custom is None:
        return {}
    custom = model.custom.attention
    file, name = split(custom.name)
    return {KEY: {"file": file, "name": name, "sha256": custom.sha256}}


def load_block(
    config: Config, info: Mapping[str, Any], given: str | None, *, who: str, allow: bool | None
) -> CustomAttention | None:
    """Load the block that a run was trained with, if it is named again; None if the run's attention is ours.

    `allow` is None where a changed file is only noted; else it is refused unless allowed.
    Raises: UsageError if it is not named, or another one is; RunError if its file changed.
    """
    own = config.model.attention
    if not is_file(own):
        if given is not None:
            raise UsageError(f"{who} was trained with our own attention, {own}", "leave out --attention")
        return None
    if given is not None and split(given)[1] != split(own)[1]:
        raise UsageError(f"--attention names {escape(given)}, {who} was trained with {escape(own)}", way(escape(own)))
    custom = _load_block(find_block(own, [] if given is None else [given], who))
    told = (info.get(KEY) or {}).get("sha256")
    if told != custom.sha256:
        said = f"{escape(str(custom.file))} is not the file {who} was trained with (sha256 {custom.sha256[:12]}"
        said += f", not {escape(str(told))[:12]})"
        if allow is False:
            raise RunError(said, "put the old file back, or go on all the same with --allow-inexact")
        tell(f"note: {said}: what is computed here may be something else")
    return custom


def build_custom_models(configs: Sequence[Config], task: Task, block: str | None) -> list[TransformerLM] | None:
    """Build the models of trials from the block that is named for them; None if their attention is ours.

    Raises: UsageError, or RunError if the block's file is not the one that a trial was begun with.
    """
    if block is None:
        return None
    custom = _load_block(block)
    return [build_model(config, task, custom=custom) for config in configs]


def _blocks(configs: Sequence[Config]) -> list[str]:
    """List the blocks that are not ours, each once."""
    return [name for name in dict.fromkeys(config.model.attention for config in configs) if is_file(name)]


def try_blocks(configs: Sequence[Config], engine: str) -> dict[str, str]:
    """Try the blocks that a new sweep's cells name, one config of each, before anything is trained.

    Returns their files' sha256. Raises: UsageError.
    """
    names = _blocks(configs)
    if names and engine != "local":
        said = f"--engine {engine}: {escape(names[0])} is a file of this machine alone"
        raise UsageError(said, "train here, with --jobs")
    found = {name: _load_block(name) for name in names}
    for config in configs:
        if config.model.attention in found:
            build_model(config, build_task(config.task), custom=found[config.model.attention])
    for custom in found.values():
        _introduce(custom)
    return {name: custom.sha256 for name, custom in found.items()}


def name_blocks(
    configs: Sequence[Config], recorded: Mapping[str, str], given: Sequence[str] | None, who: str
) -> dict[str, str]:
    """Say by which name each block of a sweep's trials is imported; `given` is None in a new sweep, which names them.

    Raises: UsageError if one is not named again; RunError if its file changed since the sweep began.
    """
    if given is None:
        return {block: block for block in _blocks(configs)}
    named = {block: find_block(block, given, who) for block in _blocks(configs)}
    for block, name in named.items():
        file = Path(split(name)[0])
        if file.is_file() and sha256(file.read_bytes()).hexdigest() != recorded.get(block):
            raise RunError(f"{escape(file)} is not the file {who} was begun with", "put the old file back")
    return named
