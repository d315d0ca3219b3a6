"""The source of an object that is already there, as of a class that a notebook defined: nothing is run to load it."""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
from pathlib import Path
from typing import Any

from mhsa_cli.check.sentences import make_note
from mhsa_cli.check.source.load import Source
from mhsa_cli.records.check import IN_PROCESS

CELLS = "ipykernel_"  # folder of the files that a notebook's cells are called


def source_of(attention: Any) -> Source:
    """Describe a module, class, function or other object as a loaded block; its text is that of its file or cell.

    Its globals are those of the program: a grade sets sizes in them.
    """
    named: Any = attention.func if isinstance(attention, functools.partial) else attention
    named = named if inspect.isclass(named) or inspect.isroutine(named) else type(named)
    name = getattr(named, "__name__", type(attention).__name__)
    file = _file(named)
    text = "".join(linecache.getlines(file))
    notes = [make_note(IN_PROCESS, name=name), *([] if text else [make_note("no_source")])]
    module = sys.modules.get(getattr(named, "__module__", None) or "")
    namespace = {} if module is None else vars(module)
    cell = "cell, " if Path(file).parent.name.startswith(CELLS) else ""
    return Source(Path(file), name, text, attention, namespace, tuple(notes), f"{cell}line {{}}".format)


def _file(named: Any) -> str:
    """Name the file of a class or function; of a notebook's class, by its methods: its module has no file."""
    methods = [one for one in vars(named).values() if inspect.isfunction(one)] if inspect.isclass(named) else []
    for one in (*methods, named):
        try:
            return inspect.getsourcefile(one) or inspect.getfile(one)
        except (TypeError, OSError):
            continue
    return ""
