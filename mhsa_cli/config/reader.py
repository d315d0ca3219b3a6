"""From YAML bytes to plain data in which every key and value knows its place.

The parser's events are walked here, one by one, with YAML 1.2 core rules: so aliases, depth and size are stopped before
they cost anything, and no tag can ever build an object.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass, field
from typing import Any

import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from mhsa_cli.config import foreign
from mhsa_cli.config.problems import ConfigError, Mark, Problem, Source, clip
from mhsa_cli.config.scalars import ScalarError, resolve

MAX_BYTES = 256 * 1024
MAX_DEPTH = 16
MAX_VALUES = 1000

Path = tuple[str | int, ...]

BAD: Any = object()  # stands for a value already complained about, so that the schema cannot take a default for it

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # the line breaks that PyYAML counts


@dataclass(slots=True)
class Document:
    """Plain data of a config, the places of its keys and values, and the problems met while reading."""

    source: Source
    data: dict[str, Any] = field(default_factory=dict)
    marks: dict[Path, Mark] = field(default_factory=dict)
    keys: dict[Path, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    bad: set[Path] = field(default_factory=set)


def read_bytes(path: str) -> bytes:
    """Read a config file's bytes; never waits on a pipe or a device.

    Raises: ConfigError when it is missing, unreadable, not a regular file or too large.
    """
    whole = Mark(Source(path))
    try:
        mode = os.stat(path).st_mode  # noqa: PTH116 - the path may hold bytes that are not UTF-8
        if not stat.S_ISREG(mode):
            raise ConfigError([whole.problem(f"found {_kind(mode)}, wanted a YAML file")])
        # Without O_NONBLOCK, a pipe put there since the look above would make open() wait for ever.
        with open(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise ConfigError([whole.problem("there is no such file", "`mhsa config init FILE` writes one")]) from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError([whole.problem(f"cannot be read: {reason}")]) from None
    return data


def _kind(mode: int) -> str:
    kinds = {stat.S_IFDIR: "a directory", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}
    return kinds.get(stat.S_IFMT(mode), "a device")


def read_document(data: bytes, name: str) -> Document:
    """Read a whole config. An empty file is an empty mapping: every setting at its default.

    Raises: ConfigError where nothing sensible can be said about the rest of the file.
    """
    whole = Mark(Source(name))
    if len(data) > MAX_BYTES:
        raise ConfigError([whole.problem(f"is larger than {MAX_BYTES // 1024} kB: this is no config")])
    if name.lower().endswith((".py", ".toml")):
        raise ConfigError([whole.problem(*foreign.refusal(name))])
    text = _decode(data, whole)
    source = Source(name, _BREAK.split(text))
    if found := _CONTROL.search(text):
        line, col = _place(text[: found.start()])
        message = f"found the invisible character U+{ord(found.group()):04X}, which has no place in a config"
        raise ConfigError([Mark(source, line, col).problem(message)])
    walk = _Walk(Document(source), text)
    root = walk.run(())
    if root is not None and not isinstance(root, dict):
        raise ConfigError(walk.document.problems or [_not_a_mapping(walk.document, root, text)])
    walk.document.data = root or {}
    return walk.document


def read_value(text: str, source: Source, col: int, path: Path) -> Document:
    """Read the value of an override exactly as if it stood after `key: ` in a file; `col` is where it starts."""
    document = Document(source)
    if found := _CONTROL.search(text) or _BREAK.search(text):
        mark = Mark(source, 1, col + found.start())
        raise ConfigError([mark.problem(f"found the control character U+{ord(found.group()):04X}")])
    walk = _Walk(document, "x: " + text, shift=col - 4, at=path)
    document.data = walk.run(())["x"]
    return document


def _decode(data: bytes, whole: Mark) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise ConfigError([whole.problem("is UTF-16, wanted UTF-8", "save it again as UTF-8")])
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # A BOM is cut off before decoding, so the position counts from behind it.
        body = data.removeprefix(b"\xef\xbb\xbf")
        line, col = _place(body[: error.start].decode("utf-8", "replace"))
        source = Source(whole.source.name, _BREAK.split(body.decode("utf-8", "surrogateescape")))
        message = f"found the byte 0x{body[error.start]:02x}, which is not UTF-8"
        raise ConfigError([Mark(source, line, col).problem(message, "save the file again as UTF-8")]) from None


def _place(before: str) -> tuple[int, int]:
    lines = _BREAK.split(before)
    return len(lines), len(lines[-1]) + 1


def _not_a_mapping(document: Document, root: Any, text: str) -> Problem:
    mark = document.marks[()]
    if isinstance(root, list):
        return mark.problem("found a list, wanted sections: `task:`, `model:`, `train:`")
    if alien := foreign.guess(text):
        return mark.problem(*foreign.refusal(alien))
    hint = "a space is needed after the colon" if re.match(r"[\w-]+:\S", str(root)) else None
    return mark.problem(f"found the text `{clip(str(root))}`, wanted sections: `task:`, `model:`, `train:`", hint)


class _Stop(Exception):  # noqa: N818 - not an error of ours, only the way out of the walk
    """Leaves the walk: what follows cannot be read."""


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner and parser; the text was looked through before, and may hold a path's odd bytes."""

    def check_printable(self, data: Any) -> None:
        pass


class _Walk:
    """Turns parser events into data, recording a mark for every key and value."""

    def __init__(self, document: Document, text: str, shift: int = 0, at: Path = ()) -> None:
        self.document, self.text, self.shift, self.at = document, text, shift, at
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
            document.problems.append(Mark(document.source).problem(message))
        raise ConfigError(document.problems)

    def _documents(self, path: Path) -> Any:
        self.loader.get_event()  # the start of the stream
        if isinstance(self.loader.peek_event(), StreamEndEvent):
            return None
        start = self.loader.get_event()
        if isinstance(start, DocumentStartEvent) and (start.version or start.tags):
            self._complain(start, "found a `%` directive, which is not supported", "remove the line")
        root = self._value(self.loader.get_event(), path, 0)
        if not isinstance(self.loader.get_event(), DocumentEndEvent):
            raise _Stop
        after = self.loader.get_event()
        if not isinstance(after, StreamEndEvent):
            self._complain(after, "found a second document, wanted one", "remove everything from this `---` on")
        return root

    def _mark(self, event: Event) -> Mark:
        start, end = event.start_mark, event.end_mark
        span = end.column - start.column if end.line == start.line else 1
        return Mark(self.document.source, start.line + 1, start.column + 1 + self.shift, max(1, span))

    def _complain(self, event: Event, message: str, hint: str | None = None) -> Any:
        self.document.problems.append(self._mark(event).problem(message, hint))
        return BAD

    def _value(self, event: Event, path: Path, depth: int) -> Any:
        self.values += 1
        if depth > MAX_DEPTH or self.values > MAX_VALUES:
            what = f"nested deeper than {MAX_DEPTH} levels" if depth > MAX_DEPTH else f"more than {MAX_VALUES:,} values"
            self._complain(event, f"found {what}: this is no config")
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

    def _node(self, event: Event, path: Path, depth: int) -> Any:
        if isinstance(event, AliasEvent):
            hint = "write the value out again"
            return self._complain(event, f"found the alias `*{clip(event.anchor)}`: aliases are not supported", hint)
        refused = self._decorated(event)
        if isinstance(event, MappingStartEvent):
            mapping = self._mapping(path, depth)
            return BAD if refused else mapping
        if isinstance(event, SequenceStartEvent):
            items: list[Any] = []
            while not isinstance(self.loader.peek_event(), SequenceEndEvent):
                items.append(self._value(self.loader.get_event(), (*path, len(items)), depth + 1))
            self.loader.get_event()
            return BAD if refused else items
        assert isinstance(event, ScalarEvent)
        return BAD if refused else self._scalar(event)

    def _decorated(self, event: Any) -> bool:
        if event.anchor is not None:
            self._complain(event, f"found the anchor `&{clip(event.anchor)}`: anchors are not supported", "remove it")
        if event.tag is not None:
            tag = event.tag.replace("tag:yaml.org,2002:", "!!")
            self._complain(
                event,
                f"found the tag `{clip(tag)}`: tags and object creation are not supported",
                "write the plain value",
            )
        return event.anchor is not None or event.tag is not None

    def _scalar(self, event: ScalarEvent) -> Any:
        text = event.value
        if "${" in text:
            return self._complain(event, f"found `{clip(text)}`: interpolation is not supported", "write the value")
        if event.style is not None:  # quoted or block text is text
            return text
        try:
            return resolve(text)
        except ScalarError as error:
            return self._complain(event, str(error), error.hint)

    def _mapping(self, path: Path, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(self.loader.peek_event(), MappingEndEvent):
            key = self._key(self.loader.get_event(), mapping, path)
            event = self.loader.get_event()
            if key is None or key in mapping:  # complained about already: read on, and keep the first
                self._skip(event, depth)
                continue
            child = (*path, key)
            mapping[key] = self._value(event, child, depth + 1)
            if (
                isinstance(event, ScalarEvent)
                and event.style is None
                and event.value == ""
                and self._own(child) != self.at
            ):
                own = self._own(child)
                self.document.marks[own] = self.document.keys[own]  # an empty value has no place of its own
        self.loader.get_event()
        return mapping

    def _skip(self, event: Event, depth: int) -> None:
        kept = Document(self.document.source, problems=self.document.problems)
        self.document, kept = kept, self.document
        try:
            self._value(event, ("?",), depth + 1)
        finally:
            self.document = kept

    def _key(self, event: Event, mapping: dict[str, Any], path: Path) -> str | None:
        if not isinstance(event, ScalarEvent):
            self._complain(event, "found a list, mapping or alias as a key, wanted a plain word")
            self._skip(event, len(path))
            return None
        key = event.value
        own = self._own((*path, key))
        if self._decorated(event):
            return None
        if event.style is None and key == "<<":
            self._complain(event, "found the merge key `<<`: merging is not supported", "write the keys out")
            return None
        if key in ("_target_", "_component_"):
            self._complain(event, f"found `{key}`: interpolation and object creation are not supported", "remove it")
            return None
        if not key.strip():
            self._complain(event, "found an empty key, wanted a name before the colon")
            return None
        if key in mapping:
            first = self.document.keys[own].line
            self._complain(
                event,
                f"found the key `{clip(key)}` a second time; it stands on line {first} already",
                "keep one of them",
            )
            return key
        self.document.keys[own] = self._mark(event)
        return key

    def _syntax(self, error: yaml.MarkedYAMLError) -> Problem:
        place = error.problem_mark or error.context_mark
        if place is None:
            return Mark(self.document.source).problem(f"is not valid YAML: {error.problem}")
        mark = Mark(self.document.source, place.line + 1, place.column + 1 + self.shift)
        line = mark.text or ""
        if "\t" in line[: place.column + 1] or line[: len(line) - len(line.lstrip())].count("\t"):
            tab = Mark(mark.source, mark.line, line.index("\t") + 1)
            return tab.problem("found a tab, YAML wants spaces here", "replace the tab by spaces")
        if alien := foreign.guess(self.text):
            return mark.problem(*foreign.refusal(alien))
        return mark.problem(f"is not valid YAML: {clip(str(error.problem), 100)}", foreign.syntax_hint(error))
