"""FILE:Name to the object it names, by running only the statements of the file that it needs."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from mhsa_cli.check.sentences import noted
from mhsa_cli.check.source.dependencies import Part, definitions, likely, needed_by, parts_of
from mhsa_cli.check.source.execute import Failure, run
from mhsa_cli.check.source.read_file import Script, read_script
from mhsa_cli.errors import UsageError
from mhsa_cli.records.check import Note

SHOWN = 3  # notes of a kind before they are only counted


@dataclass(frozen=True)
class Source:
    """A block as Python has it: `attention` is the class, function or instance.

    `text` is Python: of a notebook the code cells, of Markdown the code blocks. `namespace` holds the globals that the
    block lives in. `notes` say what was left out or failed. `place` says in words where a line of `text` is.
    """

    path: Path
    name: str
    text: str
    attention: Any
    namespace: dict[str, Any]
    notes: tuple[Note, ...]
    place: Callable[[int], str]


def split(target: str) -> tuple[Path, str | None]:
    """Split FILE:Name; the name is None where only a file is given."""
    file, colon, name = target.rpartition(":")
    if colon and file and re.fullmatch(r"[^\W\d][\w.]*", name) and not Path(target).exists():
        return Path(file), name
    return Path(target.removesuffix(":") if file else target), None


def load(target: str) -> Source:
    """Load FILE:Name, or of a FILE the one thing in it that looks like attention.

    Raises: UsageError if there is no such thing, or if it does not come to be; it names the line that failed.
    """
    path, name = split(target)
    try:
        script = read_script(path.absolute())
        parts = parts_of(script.tree)
    except RecursionError as error:
        hint = "put the attention into a file of its own"
        raise UsageError(f"{path} is nested too deeply to be read", hint) from error
    notes = list(script.notes)
    if name is None:
        name = _only_one(script, parts)
        notes.append(noted("taken", name=name))
    root, *inner = name.split(".")
    chosen = needed_by(root, parts)
    by_star = any(part.always and "*" in part.binds for part in chosen)
    if not by_star and not any(root in part.binds for part in chosen):
        raise _no_such_name(script, parts, root)
    module, failures = run(script, chosen)
    notes += _left_out(script, parts, chosen, root)
    notes += _shortened([noted("failed", failure=str(failure), name=root) for failure in failures], "more_failed")
    found = _find(script, parts, vars(module), root, failures)
    for attribute in inner:
        if not hasattr(found, attribute):
            raise UsageError(f"{script.path}: {root} has no {attribute}", f"name a class: {script.path}:{root}")
        found = getattr(found, attribute)
    if not callable(found):
        kind = type(found).__name__
        what = "None" if found is None else f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
        raise UsageError(f"{script.path}: {name} is {what}, which cannot be called", _listed(script, parts, root))
    return Source(script.path, name, script.text, found, vars(module), tuple(notes), script.place)


def _only_one(script: Script, parts: Sequence[Part]) -> str:
    found = likely(parts)
    if len(found) == 1:
        return found[0]
    if not found:
        said = "nothing in it looks like attention: no class with a forward or __call__, no function of q, k, v"
    else:
        said = f"{len(found)} things in it may be meant: {', '.join(found)}"
    raise UsageError(f"{script.path}: {said}", _listed(script, parts))


def _listed(script: Script, parts: Sequence[Part], without: str = "") -> str:
    names = [name for name in definitions(parts) if name != without]
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"name one, as {script.path}:{names[0]}; there are {shown}" if names else "it defines no class or function"


def _no_such_name(script: Script, parts: Sequence[Part], name: str) -> UsageError:
    bound = {known for part in parts for known in part.binds}
    near = difflib.get_close_matches(name, bound, n=1)
    same = [known for known in bound if known.lower() == name.lower()]
    hint = f"did you mean {(same or near)[0]}? " if same or near else ""
    hint += _listed(script, parts)
    return UsageError(f"{script.path} has no {name}", "\n  ".join([hint, *(note.text for note in script.notes)]))


def _find(script: Script, parts: Sequence[Part], namespace: dict[str, Any], name: str, failures: list[Failure]) -> Any:
    if name in namespace:
        return namespace[name]
    if not failures:
        raise _no_such_name(script, parts, name)
    # The last one is the block's own, or near it; a package that is missing is the root of what failed after it.
    cause = next((failure for failure in failures if failure.hint), failures[-1])
    others = [f"also {failure}" for failure in failures if failure is not cause][:SHOWN]
    hint = cause.hint or "mend that line, or name a target that does not need it"
    said = f"{script.path}, {cause.place}: {name} cannot be defined: {cause.said}"
    raise UsageError(said, "\n  ".join([hint, *others]))


def _left_out(script: Script, parts: Sequence[Part], chosen: Sequence[Part], name: str) -> list[Note]:
    """Say which lines would run at import and did not; those with nothing but definitions between them go together."""
    kept = {part.node.lineno for part in chosen}
    told, said = [part for part in parts if part.runs or part.node.lineno in kept], []
    for was_run, together in groupby(told, key=lambda part: part.node.lineno in kept):
        if not was_run:
            left = list(together)
            where = _from_to(script, left[0].first, left[-1].node.end_lineno or left[-1].node.lineno)
            said.append(noted("at_import", where=where, name=name))
    return _shortened(said, "more_at_import")


def _from_to(script: Script, first: int, last: int) -> str:
    start, end = script.place(first), script.place(last)
    if first == last:
        return f"{start} runs"
    if script.path.suffix.lower() != ".ipynb":
        return f"lines {first}-{last} run"
    return f"{start} to {end} run"


def _shortened(notes: list[Note], more: str) -> list[Note]:
    return notes if len(notes) <= SHOWN else [*notes[:SHOWN], noted(more, count=len(notes) - SHOWN)]
