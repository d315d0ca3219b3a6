"""The walk over a YAML parser's events: plain data, a place for every key and value, and a word for what is refused.

Events come one by one, so aliases, depth and size are stopped before they cost anything, and no tag builds an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import events

from mhsa_cli.config import not_yaml
from mhsa_cli.config.problems import ConfigError, Mark, Problem, Source, clip
from mhsa_cli.config.scalars import ScalarError, resolve

MAX_DEPTH = 16
MAX_VALUES = 1000

Path = tuple[str | int, ...]

BAD: Any = object()  # stands for a value already complained about, so that the schema cannot take a default for it


@dataclass(slots=True)
class Document:
    """Plain data of a config, the places of its keys and values, and the problems met while reading."""

    source: Source
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    bad: set[Path] = field(default_factory=set)


class _Stop(Exception):  # noqa: N818 - not an error of ours, only the way out of the walk
    """Leaves the walk: what follows cannot be read."""


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and parser; the text was looked through before, and may hold a path's odd bytes."""

    def check_printable(self, data: Any) -> None:
        pass


class Walk:
    """Turns parser events into data, recording a mark for every key and value."""

    def __init__(
        self, document: Document, text: str, is_text: Callable[[Path], bool], shift: int = 0, at: Path = ()
    ) -> None:
        """Take the text; for an override, `at` is its key and `shift` how far its columns lie to the right.

        `is_text` tells of a key whether its value is text as it is written, whatever it looks like.
        """
        self.document, self.text, self.shift, self.at = document, text, shift, at
        self.is_text = is_text
        self.loader: Any = None  # PyYAML's loaders carry no types
        self.values = 0

    def run(self, path: Path) -> Any:
        """Walk the one document; every way in which the parser can fail becomes a ConfigError."""
        document = self.document
        try:
            self.loader = _Loader(self.text)
            return self._documents(path)
        except _Stop:
            pass
        except yaml.MarkedYAMLError as error:
            document.problems.append(self._syntax(error))
        except Exception as error:  # the parser also lets ValueError, IndexError and others through
            message = f"is not readable as YAML ({type(error).__name__}: {clip(str(error))})"
            document.problems.append(Mark(document.source).problem("syntax", message))
        raise ConfigError(document.problems)

    def _documents(self, path: Path) -> Any:
        self.loader.get_event()  # the start of the stream
        if isinstance(self.loader.peek_event(), events.StreamEndEvent):
            return None
        start = self.loader.get_event()
        if start.version or start.tags:
            self._complain(start, "directive", "found a `%` directive, which is not supported", "remove the line")
        root = self._value(self.loader.get_event(), path, 0)
        self.loader.get_event()  # the end of the document
        after = self.loader.get_event()
        if not isinstance(after, events.StreamEndEvent):
            self._complain(
                after, "documents", "found a second document, wanted one", "remove everything from this `---` on"
            )
        return root

    def _mark(self, event: Any) -> Mark:
        start, end = event.start_mark, event.end_mark
        span = end.column - start.column if end.line == start.line else 1
        return Mark(self.document.source, start.line + 1, start.column + 1 + self.shift, span)

    def _complain(self, event: events.Event, code: str, message: str, hint: str | None = None) -> Any:
        self.document.problems.append(self._mark(event).problem(code, message, hint))
        return BAD

    def _value(self, event: events.Event, path: Path, depth: int) -> Any:
        self.values += 1
        if depth > MAX_DEPTH or self.values > MAX_VALUES:
            what = f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"more than {MAX_VALUES:,} values"
            self._complain(event, "size", f"found {what}: this is no config")
            raise _Stop
        own = self._own(path)
        self.document.marks[own] = self._mark(event)
        value = self._node(event, path, depth)
        if value is BAD:
            self.document.bad.add(own)
        return value

    def _own(self, path: Path) -> Path:
        # An override is read as the value of `x`, but belongs to its own key.
        return self.at + path[1:] if self.at else path

    def _node(self, event: events.Event, path: Path, depth: int) -> Any:
        if isinstance(event, events.AliasEvent):
            message = f"found the alias `*{clip(str(event.anchor))}`: aliases are not supported"
            return self._complain(event, "alias", message, "write the value out again")
        refused = self._decorated(event)
        if isinstance(event, events.MappingStartEvent):
            mapping = self._mapping(path, depth)
            return BAD if refused else mapping
        if isinstance(event, events.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(self.loader.peek_event(), events.SequenceEndEvent):
                items.append(self._value(self.loader.get_event(), (*path, len(items)), depth + 1))
            self.loader.get_event()
            return BAD if refused else items
        assert isinstance(event, events.ScalarEvent)
        return BAD if refused else self._scalar(event, self._own(path))

    def _decorated(self, event: Any) -> bool:
        if event.anchor is not None:
            message = f"found the anchor `&{clip(event.anchor)}`: anchors are not supported"
            self._complain(event, "anchor", message, "remove it")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            message = f"found the tag `{clip(tag)}`: tags and object creation are not supported"
            self._complain(event, "tag", message, "write the plain value")
        return event.anchor is not None or event.tag is not None

    def _scalar(self, event: events.ScalarEvent, own: Path) -> Any:
        text = event.value
        if "${" in text:
            message = f"found `{clip(text)}`: interpolation is not supported"
            return self._complain(event, "interpolation", message, "write the value")
        if event.style is not None or (text and self.is_text(own)):  # quoted or block text is text
            return text
        try:
            return resolve(text)
        except ScalarError as error:
            return self._complain(event, "number", str(error), error.hint)

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(self.loader.peek_event(), events.MappingEndEvent):
            key = self._key(self.loader.get_event(), mapping, path)
            event = self.loader.get_event()
            if key is None or key in mapping:  # complained about already: read on, and keep the first
                self._skip(event, depth)
                continue
            child = (*path, key)
            mapping[key] = self._value(event, child, depth + 1)
            own = self._own(child)
            if own != self.at and self.document.marks[own].span == 0:
                self.document.marks[own] = self.document.keys[own]  # an empty value has no place of its own
        self.loader.get_event()
        return mapping

    def _skip(self, event: events.Event, depth: int) -> None:
        kept = Document(self.document.source, problems=self.document.problems)
        self.document, kept = kept, self.document
        try:
            self._value(event, ("?",), depth + 1)
        finally:
            self.document = kept

    def _key(self, event: events.Event, mapping: dict[str, Any], path: Path) -> str | None:
        if not isinstance(event, events.ScalarEvent):
            self._complain(event, "key", "found a list, mapping or alias as a key, wanted a plain word")
            raise _Stop
        key = event.value
        own = self._own((*path, key))
        if self._decorated(event):
            return None
        if event.style is None and key == "<<":
            self._complain(event, "merge", "found the merge key `<<`: merging is not supported", "write the keys out")
            return None
        if key in ("_target_", "_component_"):
            message = f"found `{key}`: interpolation and object creation are not supported"
            self._complain(event, "interpolation", message, "remove it")
            return None
        if not key.strip():
            self._complain(event, "key", "found an empty key, wanted a name before the colon")
            return None
        if key in mapping:
            first = self.document.keys[own].line
            message = f"found the key `{clip(key)}` a second time; it stands on line {first} already"
            self._complain(event, "key-twice", message, "keep one of them")
            return key
        self.document.keys[own] = self._mark(event)
        return key

    def _syntax(self, error: yaml.MarkedYAMLError) -> Problem:
        place = error.problem_mark or error.context_mark
        if place is None:
            return Mark(self.document.source).problem("syntax", f"is not valid YAML: {error.problem}")
        mark = Mark(self.document.source, place.line + 1, place.column + 1 + self.shift)
        line, lines = mark.text or "", mark.source.lines
        indentation = line[: len(line) - len(line.lstrip())]
        if "\t" in indentation or line[place.column : place.column + 1] == "\t":
            tab = Mark(mark.source, mark.line, line.index("\t") + 1)
            return tab.problem("tab", "found a tab, YAML wants spaces here", "replace the tab by spaces")
        if (at := line.find("${")) >= 0:
            here = Mark(mark.source, mark.line, at + 1, 2)
            return here.problem("interpolation", "found `${`: interpolation is not supported", "write the value")
        if alien := not_yaml.guess(self.text):
            return mark.problem("not-yaml", *not_yaml.refusal(alien))
        for number in (place.line, place.line + 1):  # the parser often stumbles a line after the fault
            glued = re.match(r"\s*[\w-]+(:)[^\s/]", lines[number - 1]) if 0 < number <= len(lines) else None
            if glued:
                colon = Mark(mark.source, number, glued.start(1) + 1)
                return colon.problem("syntax", "is not valid YAML here", "a space is needed after the colon")
        return mark.problem(
            "syntax", f"is not valid YAML: {clip(str(error.problem), 100)}", not_yaml.syntax_hint(error)
        )
