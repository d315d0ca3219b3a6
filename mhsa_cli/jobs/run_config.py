"""Going on with a run: its own config, what may change in it, and whether this machine can repeat its bits."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import sha256
from pathlib import Path
from typing import Any

from mhsa_cli import __version__
from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import Text
from mhsa_cli.errors import IS, DamageError, OtherVersionError, RunError, StorageError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.checkpoints import STATE
from mhsa_cli.runs.disk import LIMIT, read_file, verify_hint
from mhsa_cli.runs.hashes import ChangedError
from mhsa_cli.runs.json_file import parse_json
from mhsa_cli.runs.listing import CONFIG, TEXT
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape

# What may change without making another training of it: how long it goes on, and what is observed.
CHANGEABLE = {"train.epochs", "train.log_every", "train.eval_every", "train.save_every", "train.keep"}
# Compared with run.json instead: it knows what `auto` came to, and which text was read, wherever the file is now.
ELSEWHERE = {"train.device", "train.threads", "task.path"}


def flat(config: Config) -> dict[str, Any]:
    """Write a config's settings as `section.key`."""
    return {f"{section}.{key}": value for section, keys in config.to_dict().items() for key, value in keys.items()}


def differences(before: Config, after: Config, may_change: Set[str] = frozenset(CHANGEABLE | ELSEWHERE)) -> list[str]:
    """Name the settings that differ, `key: before -> after`, leaving out those that may change."""
    was, now = flat(before), flat(after)
    keys = [key for key in {**was, **now} if key not in may_change]
    return [f"{k}: {was.get(k)} -> {now.get(k)}" for k in keys if was.get(k) != now.get(k)]


def run_config(run: RunDir, overrides: Sequence[str] = (), *, compare: bool = True) -> Config:
    """Read a run's own config, compared with what its run.json lists.

    Raises: RunError if it is damaged, OtherVersionError if it is whole and holds what this version does not know,
    UsageError if an override changes what was trained.
    """
    own = run.path / CONFIG
    config, changed_since = _stated(run, compare)
    if changed_since is not None:
        _check_settings(config, run, changed_since)
    if overrides:
        changed = load_config(str(own), overrides, files=False)
        if wrong := differences(config, changed):
            may = ", ".join(sorted(CHANGEABLE))
            raise UsageError("a run goes on as it began; this would change " + "; ".join(wrong), f"may change: {may}")
        config = changed
    return config


def stated_config(run: RunDir) -> Config:
    """Read the config that a run has now, edited or not. Raises: RunError, OtherVersionError."""
    return _stated(run)[0]


def _stated(run: RunDir, compare: bool = True) -> tuple[Config, ChangedError | None]:
    """Read config.yaml, and what is to be said of it if it is not the one that the run ended with."""
    try:
        text = run.read_config_text(compare=compare)
        return _parse_own(run, text, whole=compare and CONFIG in run.listed()), None
    except ChangedError as error:
        return _parse_own(run, run.read_config_text(compare=False), whole=False), error


def _parse_own(run: RunDir, text: str, *, whole: bool) -> Config:
    try:
        return parse(text.encode(), str(run.path / CONFIG))
    except UsageError as error:
        if whole:
            raise other_version("the run's config", error, run.read_run_json().get("mhsa")) from error
        raise RunError(f"the run's config is damaged:\n{error}") from error


def other_version(what: str, error: UsageError, made_by: str | None = None) -> OtherVersionError:
    """Make the error of settings that were written as they are, and that this version does not know."""
    newer = f", {escape(made_by)}" if made_by not in (None, __version__) else ""
    message = f"{what} is whole, but not all of it is known to this mhsa ({__version__}):\n{error}"
    return OtherVersionError(message, f"use the mhsa that made it{newer}")


def _check_settings(config: Config, run: RunDir, changed: ChangedError) -> None:
    """Show which settings somebody changed in config.yaml; comments and the order may change."""
    try:
        files = run.load_checkpoint(for_training=False).files
        trained_with = parse_json(files[STATE], run.path / STATE)["config"]
        wrong = edited(config, trained_with, frozenset())
    except (RunError, KeyError):
        raise changed from None
    _refuse(wrong)


def own_text(config: Config, run: RunDir) -> Config:
    """Let a text task read the run's copy of its file, wherever the original is now. Raises: RunError if it changed."""
    if not isinstance(config.task, Text):
        return config
    wanted = run.read_run_json().get("text_sha256")
    copy, original = run.path / TEXT, Path(config.task.path)
    if os.path.lexists(copy):
        path, data = copy, read_file(copy, LIMIT)
    elif wanted is None or not original.is_file():
        return config  # the task says what is wrong with its file
    else:
        path, data = original, original.read_bytes()
    if sha256(data).hexdigest() != wanted:
        raise DamageError((path, IS, "not the text the run was trained on"), "put the original back", "other-text")
    return config.model_copy(update={"task": config.task.model_copy(update={"path": str(path)})})


def keep_text(config: Config, run: RunDir) -> None:
    """Copy a text task's file, byte for byte, into the run folder, so that the folder needs nothing outside itself."""
    if isinstance(config.task, Text):
        data = Path(config.task.path).read_bytes()
        write_file_atomic(run.path / TEXT, data)
        run.update(text_sha256=sha256(data).hexdigest())


def text_digests(configs: Iterable[Config]) -> dict[str, str]:
    """Give the SHA-256 of each file that text tasks read, by its path as the configs name it."""
    paths = {config.task.path for config in configs if isinstance(config.task, Text)}
    return {path: sha256(Path(path).read_bytes()).hexdigest() for path in sorted(paths)}


def planned_text(config: Config, digests: Mapping[str, str], sweep: Path) -> Config:
    """Let a trial's text task read the text that its sweep was planned with: the file itself, else a trial's copy.

    `digests` are those of the plan; older plans have none. Raises: RunError if that text is nowhere.
    """
    if not isinstance(config.task, Text) or config.task.path not in digests:
        return config
    wanted = digests[config.task.path]
    for path in (Path(config.task.path), *sorted(sweep.glob(f"*/{TEXT}"))):
        if path.is_file() and sha256(path.read_bytes()).hexdigest() == wanted:
            return config.model_copy(update={"task": config.task.model_copy(update={"path": str(path)})})
    said = f"{escape(config.task.path)} is not the text that the sweep was planned with, and no trial has a copy"
    raise RunError(said, "put the original back")


def check_unedited(config: Config, trained_with: Mapping[str, Mapping[str, Any]], run: RunDir) -> None:
    """Refuse a run whose config.yaml is not the one its checkpoint was trained with, showing what differs.

    What may change does so in a run alone that was gone on with so: its run.json lists it.
    """
    wrong = edited(config, trained_with, ELSEWHERE | (CHANGEABLE if _was_changed(run) else set()))
    if wrong and CONFIG in run.listed():  # then it is the config that the run ended with: it was compared
        said = "the checkpoint is of another run; config.yaml differs: " + "; ".join(wrong)
        raise RunError(said, verify_hint(run.path))
    _refuse(wrong)


def _was_changed(run: RunDir) -> bool:
    """Tell whether a resume changed a setting, for all that can be known."""
    try:
        return bool(run.read_run_json().get("changes"))
    except RunError:
        return True


def edited(config: Config, trained_with: Mapping[str, Mapping[str, Any]], may_change: Set[str]) -> list[str]:
    """Name the settings in which a config is not the one that a checkpoint was trained with."""
    try:
        # Read as a config is: a setting that did not exist yet had what is now its default.
        before = parse(json.dumps(trained_with).encode(), "state.json")
    except UsageError as error:  # the checkpoint's hashes fit
        raise other_version("the checkpoint's state.json", error) from error
    return differences(before, config, may_change)


def _refuse(wrong: Sequence[str]) -> None:
    if wrong:
        raise RunError("config.yaml was edited after training: " + "; ".join(wrong), "put the old values back")


def check_same_machine(before: Mapping[str, Any], now: Mapping[str, Any], allow: bool) -> None:
    """Refuse to resume where bits may differ (device, threads, torch), unless that was allowed."""
    wrong = [f"{key}: {before.get(key)} -> {value}" for key, value in now.items() if before.get(key) != value]
    if wrong and not allow:
        raise RunError(
            "resuming here would not repeat the run bit for bit: " + "; ".join(wrong),
            "--allow-inexact goes on all the same",
        )


def tell_edited(run: RunDir) -> None:
    """Say so where a setting in config.yaml is not that of the training whose figures are shown."""
    try:
        run.read_config_text()  # its hash alone; the settings are read where that differs
    except (RunError, StorageError):
        try:
            run_config(run)
        except (RunError, StorageError) as error:
            tell(f"note: {error.message}; what is shown is of the training as it was")
