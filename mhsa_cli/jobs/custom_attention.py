"""Custom attention in runs and sweeps: its file is imported only if the config or --attention names it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.config.custom_attention import find_block, is_file, way
from mhsa_cli.config.own_file import file_digest, split
from mhsa_cli.config.schema import Config
from mhsa_cli.core.model.custom import CustomAttention
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.errors import RunError, UsageError, unwanted
from mhsa_cli.jobs.messages import tell
from mhsa_cli.jobs.own_source import check_unchanged
from mhsa_cli.jobs.own_task import make_task
from mhsa_cli.text import escape, quoted

KEY = "attention"  # in run.json: file, name and sha256 of the custom attention


def _load(name: str) -> CustomAttention:
    from mhsa_cli.check.build import load_block  # runs the file

    return load_block(name)


def build_custom_model(config: Config, task: Task) -> TransformerLM | None:
    """Load, test and build the custom attention of a new training's config; None for built-in attention.

    Raises: UsageError if it cannot be trained.
    """
    if not is_file(config.model.attention):
        return None
    model = build_model(config, task, custom=_load(config.model.attention))
    block = model.custom
    assert block is not None
    _note(block.attention)
    if not block.findings.has_weights:
        tell(f"note: no maps of its heads: {block.findings.reason}")
    return model


def _note(custom: CustomAttention) -> None:
    """Print which custom attention is trained, whether it equals the reference, and what of it is not trained."""
    name = escape(custom.name)
    known = "equal to the reference" if custom.known else "not equal to the reference"
    tell(f"note: custom attention {name}, {known}; details: mhsa check {quoted(custom.name)}")
    if custom.untrained:
        first, *more = map(escape, custom.untrained)
        names = f"{first} and {len(more)} more stay" if more else f"{first} stays"
        tell(f"note: {names} at the initial values: not among the block's parameters()")


def block_facts(model: TransformerLM | None) -> dict[str, Any]:
    """Describe custom attention for run.json; empty for built-in attention."""
    if model is None or model.custom is None:
        return {}
    custom = model.custom.attention
    file, name = split(custom.name)
    return {KEY: {"file": file, "name": name, "sha256": custom.sha256}}


def load_block(
    config: Config, info: Mapping[str, Any], given: str | None, *, who: str, allow_changed: bool | None
) -> CustomAttention | None:
    """Load the custom attention of a run if `given` names it; None for built-in attention.

    With `allow_changed` None a changed file gives a note; with False it is refused.
    Raises: UsageError if it is not named, or another one is; RunError if its file changed.
    """
    attention = config.model.attention
    if not is_file(attention):
        if given is not None:
            raise UsageError(f"{who} was trained with built-in attention, {attention}", "remove --attention")
        return None
    if given is not None and split(given)[1] != split(attention)[1]:
        raise unwanted("--attention", given, f"{attention}, with which {who} was trained", way(attention))
    custom = _load(find_block(attention, [] if given is None else [given], who))
    recorded = (info.get(KEY) or {}).get("sha256")
    check_unchanged(custom.file, custom.sha256, recorded, f"{who} was trained with", allow_changed)
    return custom


def build_custom_models(configs: Sequence[Config], task: Task, name: str | None) -> list[TransformerLM] | None:
    """Build the models of trials with the custom attention `name`; None for built-in attention. Raises: UsageError."""
    if name is None:
        return None
    custom = _load(name)
    return [build_model(config, task, custom=custom) for config in configs]


def _names(configs: Sequence[Config]) -> list[str]:
    return [name for name in dict.fromkeys(config.model.attention for config in configs) if is_file(name)]


def try_blocks(configs: Sequence[Config], engine: str) -> dict[str, str]:
    """Test the custom attention of a new sweep on one config of each cell. Returns the sha256 of its files.

    Raises: UsageError.
    """
    names = _names(configs)
    if names and engine != "local":
        message = f"--engine {engine} excludes custom attention: {escape(names[0])} is a file of this machine"
        raise UsageError(message, "train on this machine: remove --engine")
    loaded = {name: _load(name) for name in names}
    for config in configs:
        if config.model.attention in loaded:
            build_model(config, make_task(config), custom=loaded[config.model.attention])
    for custom in loaded.values():
        _note(custom)
    return {name: custom.sha256 for name, custom in loaded.items()}


def name_blocks(
    configs: Sequence[Config], recorded: Mapping[str, str], given: Sequence[str] | None, who: str
) -> dict[str, str]:
    """Map the custom attention in a sweep's configs to the name to import; `given` is None in a new sweep.

    Raises: UsageError if `given` lacks one; RunError if its file changed since the sweep began.
    """
    if given is None:
        return {name: name for name in _names(configs)}
    found = {name: find_block(name, given, who) for name in _names(configs)}
    for name, other in found.items():
        file = Path(split(other)[0])
        if file.is_file() and file_digest(other) != recorded.get(name):
            raise RunError(f"{escape(file)} is not the file {who} began with", "restore the file")
    return found
