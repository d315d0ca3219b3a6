"""A YAML parser's events as plain data, with the place of every key and value and a problem for all that is refused.

Events come one by one, so aliases, depth and size are stopped before they cost anything, and no tag builds an object.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml import events
from yaml.parser import ParserError

from mhsa_cli.config.problems import ConfigError, Mark, Problem, Source, clip
from mhsa_cli.config.scalars import ScalarError, resolve

MAX_DEPTH = 16
MAX_VALUES = 1000
OTHER_FORMATS = {".py": "Python", ".toml": "TOML"}  # by the extension of the file

_ASSIGNMENT = re.compile(r"^[ ]*[A-Za-z_][\w.]*[ ]*=[ ]*\S", re.MULTILINE)
_YAML_LINE = re.compile(r"^[ ]*[\w-]+:([ ]|$)", re.MULTILINE)
_TABLE = re.compile(r"^[ ]*\[[\w.\"-]+\][ ]*(#.*)?$", re.MULTILINE)
_PYTHON = re.compile(r"^[ ]*(import|from|def|class)[ ]+\w", re.MULTILINE)

Path = tuple[str | int, ...]

INVALID: Any = object()  # a value that has its problem already: the schema must not replace it by a default


@dataclass(slots=True)
class Document:
    """Plain data of a config, the places of its keys and values, and the problems found while reading."""

    source: Source
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    bad: set[Path] = field(default_factory=set)


class _Unreadable(Exception):  # noqa: N818 - internal
    """The rest of the document cannot be read; its problem is recorded."""


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and parser; the text was checked before, and a path in it may hold bytes that are not UTF-8."""

    def check_printable(self, data: Any) -> None:
        pass


class YamlReader:
    """Turns parser events into data, with a mark for every key and value."""

    def __init__(
        self, document: Document, text: str, reads_text: Callable[[Path, str], bool], shift: int = 0, at: Path = ()
    ) -> None:
        """Take the text; for an override, `at` is its key and `shift` the offset of its columns.

        `reads_text` returns whether what is written at a key is text, whatever it looks like.
        """
        self.document, self.text, self.shift, self.at = document, text, shift, at
        self.reads_text = reads_text
        self.loader: Any = None  # PyYAML's loaders have no types
        self.values = 0

    def read(self, path: Path) -> Any:
        """Read the only document. Raises: ConfigError for whatever the parser rejects."""
        document = self.document
        try:
            self.loader = _Loader(self.text)
            return self._documents(path)
        except _Unreadable:
            pass
        except yaml.MarkedYAMLError as error:
            document.problems.append(self._syntax(error))
        except Exception as error:  # the parser also raises ValueError, IndexError and others
            message = f"is not readable as YAML ({type(error).__name__}: {clip(str(error))})"
            document.problems.append(Mark(document.source).problem("syntax", message))
        raise ConfigError(document.problems)

    def _documents(self, path: Path) -> Any:
        self.loader.get_event()  # the start of the stream
        if isinstance(self.loader.peek_event(), events.StreamEndEvent):
            return None
        start = self.loader.get_event()
        if start.version or start.tags:
            self._refuse(start, "directive", "found a `%` directive, which is not supported", "remove the line")
        root = self._value(self.loader.get_event(), path, 0)
        self.loader.get_event()  # the end of the document
        after = self.loader.get_event()
        if not isinstance(after, events.StreamEndEvent):
            message = "found a second document, wanted one"
            self._refuse(after, "documents", message, "remove everything from this `---` on")
        return root

    def _mark(self, event: Any) -> Mark:
        start, end = event.start_mark, event.end_mark
        span = end.column - start.column if end.line == start.line else 1
        return Mark(self.document.source, start.line + 1, start.column + 1 + self.shift, span)

    def _refuse(self, event: events.Event, code: str, message: str, hint: str | None = None) -> Any:
        self.document.problems.append(self._mark(event).problem(code, message, hint))
        return INVALID

    def _value(self, event: events.Event, path: Path, depth: int) -> Any:
        self.values += 1
        if depth > MAX_DEPTH or self.values > MAX_VALUES:
            what = f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"more than {MAX_VALUES:,} values"
            self._refuse(event, "size", f"found {what}: this is no config")
            raise _Unreadable
        place = self._place(path)
        self.document.marks[place] = self._mark(event)
        value = self._node(event, path, depth)
        if value is INVALID:
            self.document.bad.add(place)
        return value

    def _place(self, path: Path) -> Path:
        # An override is read as the value of `x`, but its place is that of its key.
        return self.at + path[1:] if self.at else path

    def _node(self, event: events.Event, path: Path, depth: int) -> Any:
        if isinstance(event, events.AliasEvent):
            message = f"found the alias `*{clip(str(event.anchor))}`: aliases are not supported"
            return self._refuse(event, "alias", message, "write the value out again")
        refused = self._refuse_anchor_and_tag(event)
        if isinstance(event, events.MappingStartEvent):
            mapping = self._mapping(path, depth)
            return INVALID if refused else mapping
        if isinstance(event, events.SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(self.loader.peek_event(), events.SequenceEndEvent):
                items.append(self._value(self.loader.get_event(), (*path, len(items)), depth + 1))
            self.loader.get_event()
            return INVALID if refused else items
        assert isinstance(event, events.ScalarEvent)
        return INVALID if refused else self._scalar(event, self._place(path))

    def _refuse_anchor_and_tag(self, event: Any) -> bool:
        if event.anchor is not None:
            message = f"found the anchor `&{clip(event.anchor)}`: anchors are not supported"
            self._refuse(event, "anchor", message, "remove it")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            message = f"found the tag `{clip(tag)}`: tags and object creation are not supported"
            self._refuse(event, "tag", message, "write the plain value")
        return event.anchor is not None or event.tag is not None

    def _scalar(self, event: events.ScalarEvent, place: Path) -> Any:
        text = event.value
        if "${" in text:
            message = f"found `{clip(text)}`: interpolation is not supported"
            return self._refuse(event, "interpolation", message, "write the value")
        if event.style is not None or (text and self.reads_text(place, text)):  # quoted or block text is text
            return text
        try:
            return resolve(text)
        except ScalarError as error:
            return self._refuse(event, "number", str(error), error.hint)

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(self.loader.peek_event(), events.MappingEndEvent):
            key = self._key(self.loader.get_event(), mapping, path)
            event = self.loader.get_event()
            if key is None or key in mapping:  # it has its problem: read on, and keep the first value
                self._skip(event, depth)
                continue
            child = (*path, key)
            mapping[key] = self._value(event, child, depth + 1)
            place = self._place(child)
            if place != self.at and self.document.marks[place].span == 0:
                self.document.marks[place] = self.document.keys[place]  # an empty value has no place of its own
        self.loader.get_event()
        return mapping

    def _skip(self, event: events.Event, depth: int) -> None:
        document = self.document
        self.document = Document(document.source, problems=document.problems)
        try:
            self._value(event, ("?",), depth + 1)
        finally:
            self.document = document

    def _key(self, event: events.Event, mapping: dict[str, Any], path: Path) -> str | None:
        if not isinstance(event, events.ScalarEvent):
            self._refuse(event, "key", "found a list, mapping or alias as a key, wanted a plain word")
            raise _Unreadable
        key = event.value
        place = self._place((*path, key))
        if self._refuse_anchor_and_tag(event):
            return None
        if event.style is None and key == "<<":
            self._refuse(event, "merge", "found the merge key `<<`: merging is not supported", "write the keys out")
            return None
        if key in ("_target_", "_component_"):
            message = f"found `{key}`: interpolation and object creation are not supported"
            self._refuse(event, "interpolation", message, "remove it")
            return None
        if not key.strip():
            self._refuse(event, "key", "found an empty key, wanted a name before the colon")
            return None
        if key in mapping:
            line = self.document.keys[place].line
            message = f"found the key `{clip(key)}` a second time; the first is on line {line}"
            self._refuse(event, "key-twice", message, "keep one of them")
            return key
        self.document.keys[place] = self._mark(event)
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
        if other := other_format(self.text):
            return not_yaml(mark, other)
        for number in (place.line, place.line + 1):  # the parser often fails one line after the mistake
            glued = re.match(r"\s*[\w-]+(:)[^\s/]", lines[number - 1]) if 0 < number <= len(lines) else None
            if glued:
                colon = Mark(mark.source, number, glued.start(1) + 1)
                return colon.problem("syntax", "is not valid YAML here", "a space is needed after the colon")
        return mark.problem(
            "syntax", f"is not valid YAML: {clip(str(error.problem), 100)}", _syntax_hint(error, self.text)
        )


def other_format(text: str) -> str | None:
    """Guess that `text` is Python or TOML, by its `name = value` lines."""
    if _YAML_LINE.search(text):
        return None
    if _PYTHON.search(text):
        return "Python"
    if _ASSIGNMENT.search(text):
        return "TOML" if _TABLE.search(text) else "Python or TOML"
    return None


def not_yaml(mark: Mark, other: str) -> Problem:
    """Return the problem of a config in another format."""
    message = f"YAML expected, this is {other}; it is not run or converted"
    return mark.problem("not-yaml", message, "write `key: value` lines instead of `key = value`")


def _syntax_hint(error: yaml.MarkedYAMLError, text: str) -> str | None:
    """Name the usual cause of a syntax error, by its type and the characters at its marks."""
    end, start, is_parser = error.problem_mark, error.context_mark, isinstance(error, ParserError)
    if end is None or (start is None and is_parser):
        return None
    found = text[end.index : end.index + 1]
    if start is None:
        if found == ":":
            return "is there a second `: ` on this line, or is the indentation off? Quote text that holds `: `"
        return None if found in ("-", "?") else "quote text that begins with this character"
    opened = text[start.index : start.index + 1]
    if is_parser:
        if start.index == end.index:  # a value is missing
            return None
        if opened in ("[", "{"):
            return "is a bracket left open, or a comma missing?"
        return "is the indentation of this line the same as of its neighbours?"
    if opened in ("'", '"'):
        if text[end.index - 1] == "\\":  # an unknown escape
            return None
        if text.count(opened, start.index) % 2:
            return "is a quote or bracket left open?"
    if opened != "%" and (end.line > start.line or not found):
        return "is the colon missing, or the space after it? Wanted `key: value`"
    return None
