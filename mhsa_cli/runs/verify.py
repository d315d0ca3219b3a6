"""All checks of a run folder: hashes, formats, metrics, heads, checkpoints, leftover files."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from mhsa_cli.errors import MhsaError, OtherVersionError, RunError, StorageError
from mhsa_cli.records.formats import STATE
from mhsa_cli.records.verify import Check, Verification
from mhsa_cli.runs import hashes
from mhsa_cli.runs.checkpoints import FOLDER, Checkpoint, Loaded, list_checkpoints, read_checkpoint
from mhsa_cli.runs.commit import REPLACED
from mhsa_cli.runs.disk import LIMIT, OpenFile, digest
from mhsa_cli.runs.heads import maps_from_dict, parse_heads, snapshots_from_lines
from mhsa_cli.runs.json_file import parse_json
from mhsa_cli.runs.line_ends import WAY_OUT, LineEndsError
from mhsa_cli.runs.listing import CONFIG, HEADS, INIT, LOCK, METRICS, RUN, SCORES, TEXT, load_info, with_status
from mhsa_cli.runs.metrics import Records
from mhsa_cli.runs.metrics_audit import Curve, Rhythm
from mhsa_cli.text import Head, escape, quoted

Heads = Sequence[Head]
NO_HASHES = "from an older version, which kept no hashes"
ENDED, SOUND = ("finished", "stopped"), ("ok", "note")
OWN = {CONFIG, RUN, METRICS, HEADS, SCORES, TEXT, INIT, LOCK, FOLDER}


def state_of(error: MhsaError) -> str:
    """Return the state of a check that ended with this error."""
    if isinstance(error, StorageError):
        return "unreadable"
    return "other version" if isinstance(error, OtherVersionError) else "wrong"


class Plan(NamedTuple):
    """What a run's config implies for its files."""

    rhythm: Rhythm
    heads: Heads
    has_text: bool
    has_init: bool = False


class Verifier:
    """Checks a run folder part by part; changes nothing.

    `config` is the result of reading its config, `plan` what that implies (None if it is unreadable). `fits` compares
    a checkpoint with the model of the config: it returns a note, or raises RunError.
    """

    def __init__(self, run: Path, config: Check, plan: Plan | None, fits: Callable[[Loaded], str]) -> None:
        self.run, self.config, self.plan, self.fits = run, config, plan, fits
        self.checks: list[Check] = []
        self.info: dict[str, Any] = {}
        self.listed: dict[str, Any] = {}
        self.curve: Curve | None = None
        self.saved: list[Checkpoint] = []
        self.whole: list[int] = []
        self.line_ends = False  # some file has changed line ends
        self.refused: list[str] = []  # whole, but not of this run: commands stop at such a newest one

    def verify(self) -> Verification:
        """Run all checks."""
        self._run_json()
        self.checks.append(self.config)
        found = self._checkpoints()
        self._part(METRICS, self._metrics)
        self._part(HEADS, self._heads)
        self._part(SCORES, self._scores)
        if self.plan is None or self.plan.has_text:
            self._part(TEXT, lambda file: f"{file.size:,} bytes")
        if self.plan is None or self.plan.has_init:
            self._part(INIT, lambda file: f"{file.size:,} bytes")
        self.checks += [*found, *self._leftovers()]
        newest = max(self.whole, default=None)
        damaged = any(check.state not in SOUND for check in self.checks)
        return Verification(self.checks, self._usable(newest) if damaged else [], newest)

    def _why(self, error: MhsaError, of: str = "") -> str:
        self.line_ends |= isinstance(error, LineEndsError)
        return error.seen_from(self.run, of)

    def _run_json(self) -> None:
        try:
            info = load_info(self.run)
            self.info, self.listed = with_status(self.run, info), dict(hashes.listed_in(info))
        except MhsaError as error:
            self.checks.append(Check(RUN, state_of(error), self._why(error)))
            return
        status, step = self.info["status"], self.info.get("step")
        state = f"{escape(status)} at step {step}" if status in (*ENDED, "failed") else escape(status)
        if self.listed or status in ("running", "interrupted"):
            self.checks.append(Check(RUN, "ok", f"{state}, its own hash"))
        else:
            self.checks.append(Check(RUN, "note", f"{state}; {NO_HASHES}"))

    def _part(self, name: str, inspect: Callable[[OpenFile], str]) -> None:
        """Compare a file with its hash and inspect its content: `inspect` describes it, or raises RunError."""
        path, is_listed = self.run / name, name in self.listed
        if not os.path.lexists(path) and not is_listed:
            needed = name in (TEXT, INIT) or self.info.get("status") in ENDED
            self.checks.append(Check(name, "note", "there is none" if needed else "not written yet"))
            return
        errors: list[MhsaError] = []
        whole: OpenFile | None = None
        try:
            whole = hashes.open_listed(self.run, name, self.listed) if is_listed else None
        except MhsaError as error:
            errors.append(error)
        try:  # also of a damaged file: parts of it may still be usable
            with whole or OpenFile(path, LIMIT) as file:
                found = f"{inspect(file)}, {'its hash' if is_listed else 'no hash to compare'}"
        except MhsaError as error:
            errors.append(error)
        if errors:
            found = "; ".join(dict.fromkeys(self._why(error, name) for error in errors))
        self.checks.append(Check(name, state_of(errors[0]) if errors else "ok", found))

    def _metrics(self, file: OpenFile) -> str:
        rhythm = None if self.plan is None else self.plan.rhythm
        self.curve = curve = Curve(Records(self.run / METRICS, file.lines), rhythm)
        problem = curve.problem or curve.end_problem(self.info, max(self.whole, default=None))
        summary = f"{curve.steps:,} steps to {curve.last_step:,}, {curve.epochs} epochs"
        if not problem:
            return summary
        if METRICS in self.listed and digest(file.blocks()) == self.listed[METRICS]:
            return f"{summary}; as it was written: {problem}"
        raise RunError(f"{problem} (line {curve.line + 1})" if curve.problem else problem)

    def _heads(self, file: OpenFile) -> str:
        maps = maps_from_dict(parse_heads(file.read(), self.info, self.run / HEADS))
        self._same_heads([head.address for head in maps.heads])
        step, last = maps.step, self.info.get("step")
        stale = f", before the run went on to step {last}" if isinstance(last, int) and last != step else ""
        return f"{len(maps.heads)} heads at step {step}{stale}"

    def _scores(self, file: OpenFile) -> str:
        found = snapshots_from_lines(Records(self.run / SCORES, file.lines))
        if found:
            self._same_heads([head.address for head in found[0].heads])
        return f"{len(found)} snapshots to step {found[-1].step if found else 0}"

    def _same_heads(self, heads: Heads) -> None:
        if self.plan is not None and list(heads) != list(self.plan.heads):
            raise RunError(f"{len(heads)} heads, {len(self.plan.heads)} in {CONFIG}")

    def _checkpoints(self) -> list[Check]:
        try:
            self.saved = found = list_checkpoints(self.run)
        except MhsaError as error:
            return [Check(FOLDER, state_of(error), self._why(error))]
        checks = [check for item in found if (check := self._checkpoint(item)) is not None]
        step, ended = self.info.get("step"), self.info.get("status") in ENDED
        if ended and step not in [item.step for item in found]:
            checks.append(Check(FOLDER, "wrong", f"the checkpoint of step {step}, the run's last, is missing"))
        elif not checks:
            checks.append(Check(FOLDER, "note", "there is none yet"))
        return checks

    def _checkpoint(self, item: Checkpoint) -> Check | None:
        name, read = f"{FOLDER}/{item.path.name}", False
        try:
            files = read_checkpoint(item)
            read = True
            state = parse_json(files.get(STATE, b""), item.path / STATE)
            if state.get("step") != item.step:
                raise RunError(f"{name}/{STATE} is of step {state.get('step')}")
            fits = self.fits(Loaded(item.step, files, ()))
        except MhsaError as error:
            if not os.path.lexists(item.path):
                return None  # a training replaced it in the meantime
            if read:
                self.refused.append(name)
            return Check(name, state_of(error), self._why(error))
        self.whole.append(item.step)
        size = sum(map(len, files.values()))
        return Check(name, "ok", f"{len(files)} files, {size:,} bytes, their hashes; {fits}")

    def _leftovers(self) -> list[Check]:
        found = []
        lock = self.run / LOCK
        if os.path.lexists(lock) and (lock.is_symlink() or not lock.is_file()):
            found.append(Check(LOCK, "wrong", "not a regular file, so no process can own the run; delete it"))
        for folder, known in ((self.run, OWN), (self.run / FOLDER, {item.path.name for item in self.saved})):
            try:
                names = sorted(entry.name for entry in folder.iterdir())
            except OSError:
                continue
            for name in names:
                shown = escape(name if folder == self.run else f"{FOLDER}/{name}")
                if name.startswith(".tmp-") or name.endswith(REPLACED):
                    if self.info.get("status") != "running":  # otherwise a save may be in progress
                        found.append(Check(shown, "note", "left by a save; deleted on resume"))
                elif name not in known:
                    found.append(Check(shown, "note", "not part of a run; never read"))
        return found

    def _usable(self, newest: int | None) -> list[str]:
        """List what of a damaged run can still be used, and how."""
        wrong = {check.name for check in self.checks if check.state not in SOUND}
        run = quoted(self.run)
        curves = sorted(wrong & {METRICS, SCORES})
        loads = newest is not None and not wrong & {RUN, CONFIG, TEXT}
        found = [f"all of it, once its line ends are restored: {WAY_OUT}"] if self.line_ends else []
        if loads:
            later = [name for name in self.refused if name > f"{FOLDER}/step-{newest:08d}"]
            first = f"once {' and '.join(later)} is deleted, " if later else ""
            resumes = "" if curves else f", and mhsa train --resume {run} resumes from it"
            found.append(f"the checkpoint of step {newest}: {first}mhsa generate {run} uses it{resumes}")
        elif newest is not None:
            found.append(f"the weights of step {newest}: {FOLDER}/step-{newest:08d}/model.safetensors")
        if METRICS not in wrong and self.curve is not None:
            found.append(f"the curve: {METRICS}")
        elif self.curve is not None and self.curve.problem and self.curve.line:
            found.append(f"the curve up to line {self.curve.line}, step {self.curve.step}: {METRICS}")
        if curves and loads:
            found.append(f"to resume without its curve, delete {' and '.join(curves)}; mhsa train --resume {run}")
        if HEADS in wrong and loads:
            found.append(f"the heads, if measured again: delete {HEADS}, then mhsa inspect-heads {run}")
        if CONFIG not in wrong:
            found.append(f"the config, to repeat the run: mhsa train --config {quoted(self.run / CONFIG)}")
        return found
