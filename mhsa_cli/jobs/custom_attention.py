"""A run that was trained with somebody's own block: the block is imported only where a command is told to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mhsa_cli.config.custom_attention import is_file, split, way
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.text import escape

if TYPE_CHECKING:
    from mhsa_cli.config.load import Config
    from mhsa_cli.core.model.custom import CustomAttention
    from mhsa_cli.core.model.transformer import TransformerLM
    from mhsa_cli.core.tasks import Task
    from mhsa_cli.jobs.sweep.trial import Trial
    from mhsa_cli.runs.run_dir import RunDir

FOR_MAPS = "for maps: return (y, weights), the weights (B, H, T, T) before dropout, and train again"
KEY, NO_MAPS = "attention", "no_maps"  # in run.json: the block's file, name and sha256; why there are no maps


def begin(config: Config, task: Task) -> TransformerLM | None:
    """Load and try the block that a new training's config names, and build its model; None if the block is ours.

    Raises: UsageError if it cannot be trained.
    """
    attention = config.model.attention
    if not is_file(attention):
        return None
    from mhsa_cli.check.build import adopt
    from mhsa_cli.core.training.engine import build_model

    model = build_model(config, task, custom=adopt(attention))
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
    from mhsa_cli.check.build import adopt

    name = split(own)[1]
    if split(given)[1] != name:
        raise UsageError(f"--attention names {escape(given)}, {who} was trained with {escape(own)}", way(escape(own)))
    custom = adopt(given)
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


def only_if_ours(config: Config, what: str, does: str = "looks inside our attention") -> None:
    """Refuse to look inside a block that is not ours. Raises: UsageError."""
    attention = config.model.attention
    if is_file(attention):
        said = f"{what} {does}; model.attention is {escape(attention)}"
        raise UsageError(said, f"what is inside yours: mhsa check {escape(attention)}")


def without_maps(run: RunDir) -> str:
    """Say why a run has no maps of heads; nothing if it has."""
    why = run.read_run_json().get(NO_MAPS)
    return escape(why) if isinstance(why, str) else ""


def check_maps(run: RunDir) -> None:
    """Refuse to show heads of a run that has no maps. Raises: UsageError."""
    why = without_maps(run)
    if why:
        raise UsageError(f"{escape(run.name)} has no maps of heads: {why}", FOR_MAPS)


def check_shown(model: TransformerLM) -> None:
    """Refuse to look at the heads of a block that does not show its weights. Raises: UsageError."""
    custom = model.custom
    if custom is not None and not custom.found.shows:
        raise UsageError(f"{custom.attention.target} has no maps of heads: {custom.found.why}", FOR_MAPS)


def custom_models(trials: Sequence[Trial], task: Task, attention: str | None) -> list[TransformerLM] | None:
    """Build the models of trials whose attention is not ours, from the block that is named for it; None if it is ours.

    Raises: UsageError, or RunError if the block's file is not the one that a trial was begun with.
    """
    if attention is None:
        return None
    from mhsa_cli.check.build import adopt
    from mhsa_cli.core.training.engine import build_model

    custom = adopt(attention)
    return [build_model(trial.config, task, custom=custom) for trial in trials]


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
    from mhsa_cli.check.build import adopt
    from mhsa_cli.core.tasks import build_task
    from mhsa_cli.core.training.engine import build_model

    found = {one: adopt(one) for one in dict.fromkeys(c.model.attention for c in configs) if is_file(one)}
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
    first = {one.model.attention: one for one in configs if is_file(one.model.attention)}
    if given is None:
        return {attention: attention for attention in first}
    named = {attention: among(config, given, who) or "" for attention, config in first.items()}
    for attention, name in named.items():
        told = recorded.get(attention) if isinstance(recorded, dict) else None
        found = sha256(Path(split(name)[0]).read_bytes()).hexdigest() if Path(split(name)[0]).is_file() else None
        if found is not None and found != told:
            raise RunError(f"{escape(split(name)[0])} is not the file {who} was begun with", "put the old file back")
    return named


def among(config: Config, given: Sequence[str], who: str) -> str | None:
    """Find among several --attention the one that names a run's block again, None if the block is ours.

    Raises: UsageError if there is none.
    """
    own = config.model.attention
    if not is_file(own):
        return None
    file, name = split(own)
    fits = [one for one in given if split(one)[1] == name]
    exact = [one for one in fits if Path(split(one)[0]).name == Path(file).name] or fits
    if not exact:
        raise UsageError(f"{who} was trained with {escape(own)}, which is never imported by itself", way(escape(own)))
    return exact[0]
