"""A run that was trained with somebody's own block: the block is imported only where a command is told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from mhsa_cli.config.custom_attention import among, is_file, split, way
from mhsa_cli.config.load import Config
from mhsa_cli.core.model.custom import CustomAttention
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.text import escape

KEY = "attention"  # in run.json: the block's file, name and sha256


def _adopt(target: str) -> CustomAttention:
    """Import a block; what runs its file is loaded for that alone."""
    from mhsa_cli.check.build import adopt

    return adopt(target)


def begin(config: Config, task: Task) -> TransformerLM | None:
    """Load and try the block that a new training's config names, and build its model; None if the block is ours.

    Raises: UsageError if it cannot be trained.
    """
    attention = config.model.attention
    if not is_file(attention):
        return None
    model = build_model(config, task, custom=_adopt(attention))
    found = model.custom
    assert found is not None
    _introduce(found.attention)
    if not found.found.shows:
        tell(f"note: no maps of its heads: {found.found.why}")
    return model


def _introduce(custom: CustomAttention) -> None:
    """Say in a line whose attention is trained, and where to learn whether it is right."""
    seen = "is it right?" if custom.known else "it does not equal the reference, see"
    tell(f"note: the attention is yours, {escape(custom.target)}; {seen} mhsa check {escape(custom.target)}")
    if custom.untrained:
        first, *more = map(escape, custom.untrained)
        names = f"{first} and {len(more)} more stay" if more else f"{first} stays"
        tell(f"note: {names} as drawn, untrained: not among the block's parameters()")


def facts(model: TransformerLM | None) -> dict[str, Any]:
    """Say in run.json which block a run is trained with; nothing if it is ours."""
    if model is None or model.custom is None:
        return {}
    custom = model.custom.attention
    file, name = split(custom.target)
    return {KEY: {"file": file, "name": name, "sha256": custom.sha256}}


def again(
    config: Config, info: Mapping[str, Any], given: str | None, *, who: str, allow: bool | None = None
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
    if given is None:
        said = f"{who} was trained with {escape(own)}, which is never imported by itself"
        raise UsageError(said, way(escape(own)))
    name = split(own)[1]
    if split(given)[1] != name:
        raise UsageError(f"--attention names {escape(given)}, {who} was trained with {escape(own)}", way(escape(own)))
    custom = _adopt(given)
    check_same(custom, info.get(KEY), who, allow)
    return custom


def check_same(custom: CustomAttention, recorded: Any, who: str, allow: bool | None) -> None:
    """Compare a block's file with the one that run.json tells of. Raises: RunError."""
    told = recorded.get("sha256") if isinstance(recorded, dict) else None
    if told == custom.sha256:
        return
    said = f"{escape(str(custom.file))} is not the file {who} was trained with (sha256 {custom.sha256[:12]}"
    said += f", not {escape(str(told))[:12]})"
    if allow is False:
        raise RunError(said, "put the old file back, or go on all the same with --allow-inexact")
    tell(f"note: {said}: what is computed here may be something else")


def custom_models(configs: Sequence[Config], task: Task, attention: str | None) -> list[TransformerLM] | None:
    """Build the models of configs whose attention is not ours, from the block that is named for it; None if it is ours.

    Raises: UsageError, or RunError if the block's file is not the one that a trial was begun with.
    """
    if attention is None:
        return None
    custom = _adopt(attention)
    return [build_model(config, task, custom=custom) for config in configs]


def try_cells(configs: Sequence[Config], engine: str) -> dict[str, str]:
    """Try the blocks that a new sweep's cells name, one config of each, before anything is trained.

    Returns their files' sha256. Raises: UsageError.
    """
    first = next((one.model.attention for one in configs if is_file(one.model.attention)), None)
    if first is None:
        return {}
    if engine != "local":
        raise UsageError(
            f"--engine {engine}: {escape(first)} is a file of this machine alone", "train here, with --jobs"
        )
    found = {one: _adopt(one) for one in dict.fromkeys(c.model.attention for c in configs) if is_file(one)}
    for config in configs:
        if config.model.attention in found:
            build_model(config, build_task(config.task), custom=found[config.model.attention])
    for custom in found.values():
        _introduce(custom)
    return {attention: custom.sha256 for attention, custom in found.items()}


def named_again(configs: Sequence[Config], recorded: Any, given: Sequence[str] | None, who: str) -> dict[str, str]:
    """Say by which name each block of a sweep's trials is imported; `given` is None in a new sweep, which names them.

    Raises: UsageError if one is not named again; RunError if its file changed since the sweep began.
    """
    first = dict.fromkeys(one.model.attention for one in configs if is_file(one.model.attention))
    if given is None:
        return {attention: attention for attention in first}
    named = {attention: among(attention, given, who) or "" for attention in first}
    for attention, name in named.items():
        told = recorded.get(attention) if isinstance(recorded, dict) else None
        found = sha256(Path(split(name)[0]).read_bytes()).hexdigest() if Path(split(name)[0]).is_file() else None
        if found is not None and found != told:
            raise RunError(f"{escape(split(name)[0])} is not the file {who} was begun with", "put the old file back")
    return named
