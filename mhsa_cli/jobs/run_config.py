"""The config of a run: read and compared with its training, and what may change when the run is resumed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from hashlib import sha256
from pathlib import Path
from typing import Any

from mhsa_cli import __version__
from mhsa_cli.config.condition import Condition
from mhsa_cli.config.load import load_config, parse
from mhsa_cli.config.scalars import write
from mhsa_cli.config.schema import Config
from mhsa_cli.config.tasks import DATA_FILES, data_file, with_data_file
from mhsa_cli.errors import IS, DamageError, OtherVersionError, RunError, StorageError, UsageError
from mhsa_cli.jobs.messages import tell
from mhsa_cli.records.formats import STATE
from mhsa_cli.runs.atomic import write_file_atomic
from mhsa_cli.runs.disk import LIMIT, read_file, verify_hint
from mhsa_cli.runs.hashes import ChangedError
from mhsa_cli.runs.json_file import parse_json
from mhsa_cli.runs.listing import CONFIG, TEXT
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import escape

EARLY_STOP = {"train.stop_at", "train.patience"}
# Settings that a resume may change: the length of the training, and what is recorded.
CHANGEABLE = {"train.epochs", *EARLY_STOP, "train.log_every", "train.eval_every", "train.save_every", "train.keep"}
# Compared with run.json, which knows the device behind `auto`, and the text wherever its file is now.
ELSEWHERE = {"train.device", "train.threads", *(f"task.{field}" for field in DATA_FILES.values())}


def flat(config: Config) -> dict[str, Any]:
    """Flatten a config to {"section.key": value}."""
    return {f"{section}.{key}": value for section, keys in config.to_dict().items() for key, value in keys.items()}


def differences(before: Config, after: Config, may_change: Set[str] = frozenset(CHANGEABLE | ELSEWHERE)) -> list[str]:
    """List the settings that differ, as `key: before -> after`, except those in `may_change`."""
    old, new = flat(before), flat(after)
    keys = [key for key in {**old, **new} if key not in may_change]
    return [f"{key}: {write(old.get(key))} -> {write(new.get(key))}" for key in keys if old.get(key) != new.get(key)]


def run_config(run: RunDir, overrides: Sequence[str] = (), *, compare: bool = True) -> Config:
    """Read a run's config, compared with its hash in run.json, and apply overrides.

    Raises: RunError if it is damaged, OtherVersionError if it is whole but not known to this version, UsageError if an
    override would make it another training.
    """
    config, changed_error = read_config(run, compare)
    if changed_error is not None:
        _check_settings(config, run, changed_error)
    if overrides:
        changed = load_config(str(run.path / CONFIG), overrides, files=False)
        if wrong := differences(config, changed):
            may = ", ".join(sorted(CHANGEABLE))
            raise UsageError(f"a resumed run cannot change {'; '.join(wrong)}", f"settings that may change: {may}")
        config = changed
    return config


def read_config(run: RunDir, compare: bool = True) -> tuple[Config, ChangedError | None]:
    """Read config.yaml, with an error if it changed since the run ended. Raises: RunError, OtherVersionError."""
    try:
        text = run.read_config_text(compare=compare)
        return _parse(run, text, whole=compare and CONFIG in run.listed()), None
    except ChangedError as error:
        return _parse(run, run.read_config_text(compare=False), whole=False), error


def _parse(run: RunDir, text: str, *, whole: bool) -> Config:
    try:
        return parse(text.encode(), str(run.path / CONFIG))
    except UsageError as error:
        if whole:
            raise other_version("the run's config", error, run.read_run_json().get("mhsa")) from error
        raise RunError(f"the run's config is damaged:\n{error}") from error


def satisfying(runs: Sequence[Path], conditions: Sequence[Condition]) -> tuple[set[Path], list[Path]]:
    """Return the runs whose configs satisfy all conditions, and those whose configs cannot be read."""
    found, unreadable = set(), []
    for path in runs:
        try:
            config, _ = read_config(RunDir(path), compare=False)
        except (RunError, StorageError):
            unreadable.append(path)
        else:
            found |= {path} if all(condition.holds(config) for condition in conditions) else set()
    return found, unreadable


def other_version(what: str, error: UsageError, made_by: str | None = None) -> OtherVersionError:
    """Make the error of settings that are whole but unknown to this version."""
    version = f", {escape(made_by)}" if made_by not in (None, __version__) else ""
    message = f"{what} is whole, but mhsa {__version__} does not know all of it:\n{error}"
    return OtherVersionError(message, f"use the version that wrote it{version}")


def _check_settings(config: Config, run: RunDir, changed: ChangedError) -> None:
    """Refuse changed settings in config.yaml; comments and order may change. Raises: RunError."""
    try:
        files = run.load_checkpoint(for_training=False).files
        trained_with = parse_json(files[STATE], run.path / STATE)["config"]
        wrong = edited(config, trained_with, frozenset())
    except (RunError, KeyError):
        raise changed from None
    _refuse(wrong)


def own_text(config: Config, run: RunDir) -> Config:
    """Point a task over a file to the run's copy of it. Raises: RunError if that text changed."""
    given = data_file(config.task)
    if given is None:
        return config
    wanted = run.read_run_json().get("text_sha256")
    copy, original = run.path / TEXT, Path(given)
    if os.path.lexists(copy):
        path, data = copy, read_file(copy, LIMIT)
    elif wanted is None or not original.is_file():
        return config  # the task reports what is wrong with its file
    else:
        path, data = original, original.read_bytes()
    if sha256(data).hexdigest() != wanted:
        raise DamageError((path, IS, "not the file the run was trained on"), "restore the original", "other-text")
    return _from_file(config, path)


def _from_file(config: Config, path: Path) -> Config:
    return config.model_copy(update={"task": with_data_file(config.task, str(path))})


def keep_text(config: Config, run: RunDir) -> None:
    """Copy the file of a task over a file into the run folder, so that the folder is complete."""
    if (given := data_file(config.task)) is not None:
        data = Path(given).read_bytes()
        write_file_atomic(run.path / TEXT, data)
        run.update(text_sha256=sha256(data).hexdigest())


def text_digests(configs: Iterable[Config]) -> dict[str, str]:
    """Map the path of each text, as in the configs, to its SHA-256."""
    paths = {path for config in configs if (path := data_file(config.task)) is not None}
    return {path: sha256(Path(path).read_bytes()).hexdigest() for path in sorted(paths)}


def planned_text(config: Config, digests: Mapping[str, str], sweep: Path) -> Config:
    """Point a trial's task over a file to the text of its sweep's plan: the file itself, else a trial's copy.

    `digests` are those of the plan; older plans have none. Raises: RunError if the text is not found.
    """
    given = data_file(config.task)
    if given is None or given not in digests:
        return config
    return _from_file(config, planned_file(given, Path(given), digests[given], sweep, TEXT))


def planned_file(given: str, here: Path, wanted: str, sweep: Path, copy: str) -> Path:
    """Find a file of a sweep's plan by its sha256: `here`, else a trial's copy. Raises: RunError if it is not found."""
    for path in (here, *sorted(sweep.glob(f"*/{copy}"))):
        if path.is_file() and sha256(path.read_bytes()).hexdigest() == wanted:
            return path
    message = f"{escape(given)} is not the file of the sweep's plan, and no trial has a copy"
    raise RunError(message, "restore the original")


def check_unedited(config: Config, trained_with: Mapping[str, Mapping[str, Any]], run: RunDir) -> None:
    """Compare config.yaml with the config in the checkpoint. Raises: RunError with the differences.

    CHANGEABLE settings may differ only if run.json lists a resume that changed settings.
    """
    wrong = edited(config, trained_with, ELSEWHERE | (CHANGEABLE if _was_changed(run) else set()))
    if wrong and CONFIG in run.listed():  # its hash was compared: it is the config that the run ended with
        message = "the checkpoint is of another run; config.yaml differs: " + "; ".join(wrong)
        raise RunError(message, verify_hint(run.path))
    _refuse(wrong)


def _was_changed(run: RunDir) -> bool:
    """Whether a resume changed a setting, or might have."""
    try:
        return bool(run.read_run_json().get("changes"))
    except RunError:
        return True


def edited(config: Config, trained_with: Mapping[str, Mapping[str, Any]], may_change: Set[str]) -> list[str]:
    """List the settings that differ between a config and the one in a checkpoint."""
    try:
        # Parsed like a config: settings that did not exist yet get their defaults.
        before = parse(json.dumps(trained_with).encode(), "state.json")
    except UsageError as error:  # the checkpoint's hashes are right
        raise other_version("the checkpoint's state.json", error) from error
    return differences(before, config, may_change)


def _refuse(wrong: Sequence[str]) -> None:
    if wrong:
        raise RunError("config.yaml was edited after training: " + "; ".join(wrong), "restore the old values")


def check_same_machine(before: Mapping[str, Any], now: Mapping[str, Any], allow: bool) -> None:
    """Compare device, threads and torch, on which the bits of a run depend. Raises: RunError unless allowed."""
    wrong = [f"{key}: {before.get(key)} -> {value}" for key, value in now.items() if before.get(key) != value]
    if wrong and not allow:
        raise RunError("a resume here may change the bits: " + "; ".join(wrong), "to accept that: --allow-inexact")


def check_same_steps(config: Config, trained_with: Mapping[str, Mapping[str, Any]], allow: bool) -> None:
    """Compare how a step is computed with versions before train.min_lr; `trained_with` is the config in the checkpoint.

    A falling schedule was one step behind this one's, and the gradients of some forms came from autograd.
    Raises: RunError unless allowed.
    """
    if allow or "min_lr" in trained_with.get("train", {}):
        return
    model, schedule = config.model, config.train.schedule
    if schedule != "constant":
        what = f"its {schedule} schedule was one step behind this one's"
        effect = "changes the learning rates"
    elif (
        model.positions in ("rope", "alibi")
        or model.attention != "softmax"
        or (model.window, model.n_kv_heads or model.n_heads, model.dropout) != (None, model.n_heads, 0)
        or (model.norm == "rmsnorm" or model.mlp == "swiglu" or model.tie_embeddings)
    ):
        what, effect = "the gradient of this form is computed in another way now", "may change the bits"
    else:
        return
    raise RunError(
        f"an older version began this run: {what}, so a resume here {effect}", "to accept that: --allow-inexact"
    )


def tell_edited(run: RunDir) -> None:
    """Print a note if config.yaml was edited after the training that is shown."""
    try:
        run.read_config_text()  # compares the hash; the settings are read only if it differs
    except (RunError, StorageError):
        try:
            run_config(run)
        except (RunError, StorageError) as error:
            tell(f"note: {error.message}; results are those of the original training")
