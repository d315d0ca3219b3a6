"""`mhsa verify`: is a run what its training wrote? And does this machine repeat a training bit for bit?"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mhsa_cli.commands.options import JsonOption, RunsOption
from mhsa_cli.errors import RunError, UsageError
from mhsa_cli.runs.listing import CONFIG, RUN

if TYPE_CHECKING:
    from mhsa_cli.config.load import Config
    from mhsa_cli.records.verify import Check, Verification
    from mhsa_cli.runs.checkpoints import Loaded
    from mhsa_cli.runs.rundir import RunDir
    from mhsa_cli.runs.verify import Plan

Arguments = Annotated[
    list[str] | None,
    typer.Argument(metavar="[RUN]", help="A run; left out, the newest. With --resume-check: KEY=VALUE to change."),
]
ResumeCheckOption = Annotated[
    str | None,
    typer.Option(
        "--resume-check",
        metavar="CONFIG",
        help="Train this config twice in a temporary folder, once with a stop and a resume half-way, and compare bits.",
    ),
]


def verify(
    arguments: Arguments = None,
    resume_check: ResumeCheckOption = None,
    runs: RunsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Check every file of a run: hashes, formats, the curve, weights against config. Damage: exit 4, and a way out.

    Example: mhsa verify copy-h4
    """
    if resume_check is not None:
        from mhsa_cli.commands.resume_check import check_resume

        check_resume(resume_check, arguments or [], as_json)
        return
    if len(arguments or ()) > 1:
        raise UsageError("verify takes one run", "mhsa verify RUN; list the runs: mhsa runs")
    from mhsa_cli.commands.printing import Paper, print_json
    from mhsa_cli.renderers.verify import verification_table
    from mhsa_cli.runs.disk import show

    run = _find(runs, arguments[0] if arguments else None)
    found = _verify(run)
    if as_json:
        print_json(_document(run, found))
    else:
        paper = Paper()
        paper.draw(verification_table(found, width=paper.width, surface=paper.surface))
        if found.usable:
            paper.say("\nstill of use:")
            for line in found.usable:
                paper.say(f"  {line}")
    if found.damage:
        names = ", ".join(check.name for check in found.damage)
        raise RunError(f"{show(run.path)} is damaged: {names}")


def _find(root: Path | None, name: str | None) -> RunDir:
    """Find a run folder, also one whose run.json cannot be read or is gone."""
    from mhsa_cli.runs.listing import find_run, newest_run
    from mhsa_cli.runs.names import runs_root
    from mhsa_cli.runs.rundir import RunDir

    place = runs_root(root)
    if name is None:
        return RunDir(newest_run(place))
    try:
        return RunDir(find_run(place, name))
    except RunError:
        for path in (place / name, Path(name)):
            if (path / CONFIG).is_file():
                return RunDir(path)
        raise


def _verify(run: RunDir) -> Verification:
    """Check a run; torch is loaded for its weights alone."""
    from mhsa_cli.commands.resuming import run_config
    from mhsa_cli.records.verify import Check
    from mhsa_cli.runs.verify import Verifier

    info = _info(run)
    try:
        config = run_config(run, compare=info is not None)
    except RunError as error:
        check = Check(CONFIG, "wrong", " ".join(error.message.split()))
        return Verifier(run.path, check, None, lambda _: "not compared with the config, which cannot be read").verify()
    return Verifier(run.path, _config_check(run), _plan(config, info or {}), _Fit(run, config, info)).verify()


def _info(run: RunDir) -> dict[str, Any] | None:
    """Read run.json; None if it cannot be read."""
    try:
        return run.read_run_json()
    except RunError:
        return None


def _config_check(run: RunDir) -> Check:
    """Say what of a config that could be read was compared."""
    from mhsa_cli.records.verify import Check
    from mhsa_cli.runs import seal

    try:
        listed = CONFIG in seal.listed_files(run.path)
        run.read_config_text()
    except seal.ChangedError:
        return Check(CONFIG, "note", "its text was edited; all settings are those of the training")
    except RunError:  # run.json tells nothing
        listed = False
    return Check(CONFIG, "ok", "its hash" if listed else "no hash to compare")


def _plan(config: Config, info: Mapping[str, Any]) -> Plan:
    """Say what a run's config and its run.json say of its files."""
    from mhsa_cli.config.tasks import Text
    from mhsa_cli.core.group import log_every
    from mhsa_cli.runs.continuity import Rhythm
    from mhsa_cli.runs.verify import Plan

    heads = [(layer, head) for layer in range(config.model.n_layers) for head in range(config.model.n_heads)]
    rhythm = Rhythm(log_every(config.train), config.train.steps_per_epoch, _changed_at(info))
    return Plan(rhythm, heads, isinstance(config.task, Text))


def _changed_at(info: Mapping[str, Any]) -> int:
    """Find the last step at which a resume changed a setting: before it, lines may have another rhythm."""
    changes = info.get("changes")
    steps = [one.get("step") for one in changes if isinstance(one, dict)] if isinstance(changes, list) else []
    return max((step for step in steps if isinstance(step, int)), default=0)


class _Fit:
    """Puts checkpoints into the model of a config and compares what run.json says of the last one."""

    def __init__(self, run: RunDir, config: Config, info: Mapping[str, Any] | None) -> None:
        self.run, self.config, self.info = run, config, info
        self._task: Any = None

    def __call__(self, loaded: Loaded) -> str:
        from mhsa_cli.commands.resuming import check_unedited
        from mhsa_cli.core.checkpoint import read_state
        from mhsa_cli.core.load import check_fit

        check_unedited(self.config, read_state(loaded.files)["config"])
        if self.info is None:
            return f"not compared with {RUN}, which cannot be read"
        if self._task is None:
            self._task = self._build_task()
        digest, finite = check_fit(self.config, self._task, loaded.files)
        told = self.info.get("weights_sha256")
        if told is not None and self.info.get("step") == loaded.step and told != digest:
            raise RunError(f"its weights are not those of {RUN}: sha256 {digest}, not {told}")
        return "they fit the config" if finite else "they fit the config, but hold NaN or infinity"

    def _build_task(self) -> Any:
        from mhsa_cli.commands.resuming import own_text
        from mhsa_cli.core.tasks import build_task

        try:
            return build_task(own_text(self.config, self.run).task)
        except UsageError as error:
            raise RunError(error.message) from error


def _document(run: RunDir, found: Verification) -> dict[str, Any]:
    return {
        "run": str(run.path),
        "ok": not found.damage,
        "checks": [{"name": c.name, "state": c.state, "found": c.found} for c in found.checks],
        "usable": list(found.usable),
        "checkpoint": found.checkpoint,
    }
