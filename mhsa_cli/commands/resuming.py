"""Going on with a run: its own config, what may change in it, and whether this machine can repeat its bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mhsa_cli.config.load import Config, load_config, parse
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.runs.rundir import RunDir

TEXT_COPY = "text.txt"
# What may change without making another training of it: how long it goes on, and what is observed.
CHANGEABLE = {"train.epochs", "train.log_every", "train.eval_every", "train.save_every", "train.keep"}


def flat(config: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Write nested settings as `section.key`, without the place of a text file, which may move."""
    pairs = ((f"{section}.{key}", value) for section, keys in config.items() for key, value in keys.items())
    return {key: value for key, value in pairs if key != "task.path"}


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Name the settings that differ, `key: before -> after`, leaving out those that may change."""
    keys = [key for key in {**before, **after} if key not in CHANGEABLE]
    return [f"{k}: {before.get(k)} -> {after.get(k)}" for k in keys if before.get(k) != after.get(k)]


def run_config(run: RunDir, overrides: Sequence[str] = ()) -> Config:
    """Read a run's own config; its copy of a text file is used, wherever the original is now.

    Raises: RunError if it is damaged, UsageError if an override changes what was trained.
    """
    own = run.path / "config.yaml"
    try:
        config = parse(run.read_config_text().encode(), str(own))
    except UsageError as error:
        raise RunError(f"the run's config is damaged:\n{error}") from error
    if overrides:
        changed = load_config(str(own), overrides)
        wrong = differences(flat(config.to_dict()), flat(changed.to_dict()))
        if wrong:
            may = ", ".join(sorted(CHANGEABLE))
            raise UsageError("a run goes on as it began; this would change " + "; ".join(wrong), f"may change: {may}")
        config = changed
    copy = run.path / TEXT_COPY
    if config.task.name == "text" and copy.is_file():
        config = config.model_copy(update={"task": config.task.model_copy(update={"path": str(copy)})})
    return config


def check_unedited(config: Config, trained_with: Mapping[str, Mapping[str, Any]]) -> None:
    """Refuse a run whose config.yaml is not the one its checkpoint was trained with, showing what differs."""
    wrong = differences(flat(trained_with), flat(config.to_dict()))
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
