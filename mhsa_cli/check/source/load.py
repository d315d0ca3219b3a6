"""Load the block that FILE:NAME names, by running only the statements of the file that it needs."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

from mhsa_cli.check.sentences import make_note
from mhsa_cli.check.source.dependencies import Statement, attention_names, definitions, needed_by, other_library
from mhsa_cli.check.source.execute import Failure, run_statements
from mhsa_cli.check.source.read_file import Script, read_script
from mhsa_cli.check.source.trace import Trace
from mhsa_cli.errors import UsageError
from mhsa_cli.records.check import NOTHING, Note

SHOWN = 3  # notes of one kind before the rest is only counted


@dataclass(frozen=True)
class Source:
    """A loaded block: `attention` is the class, function or instance, `text` its Python source.

    Of a notebook, `text` is the code cells, of Markdown the code blocks; `place` gives the place of a line of it in
    words. `namespace` holds the globals of the block, `notes` what was skipped or failed, `loading` what ran. A block
    that is not torch or NumPy is not run: `library` is what it uses, and `attention` None.
    """

    path: Path
    name: str
    text: str
    attention: Any
    namespace: dict[str, Any]
    notes: tuple[Note, ...]
    place: Callable[[int], str]
    loading: Trace = field(default_factory=Trace)
    library: str = ""

    def place_in(self, file: str, line: int) -> str:
        """Give the place of a line of any of the user's files in words; another file by its path from the block's."""
        other = self.other_file(file)
        return f"{other}, line {line}" if other else self.place(line)

    def other_file(self, file: str) -> str:
        """Give the path of another file from the folder of the block's, "" for that itself."""
        own = file in ("", str(self.path))
        return "" if own else Path(os.path.relpath(file, self.path.parent)).as_posix()


def parse_block(block: str) -> tuple[Path, str | None]:
    """Split FILE:NAME into path and name; the name is None if only a file is given."""
    file, colon, name = block.rpartition(":")
    if colon and file and re.fullmatch(r"[^\W\d][\w.]*", name) and not Path(block).exists():
        return Path(file), name
    return Path(block.removesuffix(":") if file else block), None


def load(block: str) -> Source:
    """Load FILE:NAME; of FILE alone, the only class or function that looks like attention.

    Raises: UsageError if there is no such object or it cannot be defined, with the line that failed.
    """
    path, name = parse_block(block)
    script = read_script(path.absolute())
    notes = list(script.notes)
    if name is None:
        name = _only_attention(script)
        notes.append(make_note("only_attention", name=name))
    root, *attributes = name.split(".")
    needed = needed_by(root, script.statements)
    by_star = any(one.always_runs and "*" in one.binds for one in needed)
    if not by_star and not any(root in one.binds for one in needed):
        raise _no_such_name(script, root)
    if library := other_library(needed):
        return Source(script.path, name, script.text, None, {}, tuple(notes), script.place, library=library)
    module, failures, loading = run_statements(script, needed)
    notes += _skipped(script, needed, root)
    notes += _shortened([make_note("failed", failure=str(failure), name=root) for failure in failures], "more_failed")
    found = _find(script, vars(module), root, failures)
    for attribute in attributes:
        if not hasattr(found, attribute):
            raise UsageError(f"{script.path}: {root} has no {attribute}", f"name a class: {script.path}:{root}")
        found = getattr(found, attribute)
    if not callable(found):
        kind = type(found).__name__
        what = "None" if found is None else f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
        raise UsageError(f"{script.path}: {name} is {what}, which is not callable", _names_hint(script, root))
    return Source(script.path, name, script.text, found, vars(module), tuple(notes), script.place, loading)


def load_whole(name: str) -> Any:
    """Run all of FILE.py, as an import does, and return what NAME is in it. Raises: UsageError with what failed."""
    path, attribute = parse_block(name)
    script = read_script(path.absolute())
    module, failures, _ = run_statements(script, script.statements)
    if failures:
        first = failures[0]
        raise UsageError(f"{path}, {first.place}: {first.message}", first.hint or None)
    found = vars(module).get(attribute or "")
    if not callable(found):
        raise _no_such_name(script, attribute or "")
    return found


def _only_attention(script: Script) -> str:
    found = attention_names(script.statements)
    if len(found) == 1:
        return found[0]
    if found:
        message, code = f"{len(found)} names look like attention: {', '.join(found)}", None
    else:
        message = "nothing in it looks like attention: no class with forward or __call__, no function of q, k, v"
        code = NOTHING
    raise UsageError(f"{script.path}: {message}", _names_hint(script), code)


def _names_hint(script: Script, without: str = "") -> str:
    names = [name for name in definitions(script.statements) if name != without]
    shown = ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")
    return f"name one of {shown}: {script.path}:{names[0]}" if names else "it defines no class or function"


def _no_such_name(script: Script, name: str) -> UsageError:
    bound = {known for one in script.statements for known in one.binds}
    near = [known for known in bound if known.lower() == name.lower()] or difflib.get_close_matches(name, bound, n=1)
    hint = f"did you mean {near[0]}? " if near else ""
    hint += _names_hint(script)
    hint = "\n  ".join([hint, *(note.text for note in script.notes)])
    return UsageError(f"{script.path} has no {name}", hint, NOTHING)


def _find(script: Script, namespace: dict[str, Any], name: str, failures: list[Failure]) -> Any:
    if name in namespace:
        return namespace[name]
    if not failures:
        raise _no_such_name(script, name)
    # A missing package causes what fails after it; otherwise the last failure is nearest to the block.
    cause = next((failure for failure in failures if failure.hint), failures[-1])
    others = [f"also {failure}" for failure in failures if failure is not cause][:SHOWN]
    hint = cause.hint or "fix that line, or name a block that does not need it"
    message = f"{script.path}, {cause.place}: {name} cannot be defined: {cause.message}"
    raise UsageError(message, "\n  ".join([hint, *others]))


def _skipped(script: Script, needed: Sequence[Statement], name: str) -> list[Note]:
    """Note the lines with side effects that were skipped; ranges with only definitions between them are joined."""
    run = {one.node.lineno for one in needed}
    relevant = [one for one in script.statements if one.has_side_effects or one.node.lineno in run]
    notes = []
    for was_run, group in groupby(relevant, key=lambda one: one.node.lineno in run):
        if not was_run:
            skipped = list(group)
            where = _line_range(script, skipped[0].first_line, skipped[-1].node.end_lineno or skipped[-1].node.lineno)
            notes.append(make_note("skipped", where=where, name=name))
    return _shortened(notes, "more_skipped")


def _line_range(script: Script, first: int, last: int) -> str:
    start, end = script.place(first), script.place(last)
    if first == last:
        return f"{start} runs"
    return f"{start} to {end} run" if script.path.suffix.lower() == ".ipynb" else f"lines {first}-{last} run"


def _shortened(notes: list[Note], more: str) -> list[Note]:
    return notes if len(notes) <= SHOWN else [*notes[:SHOWN], make_note(more, count=len(notes) - SHOWN)]
