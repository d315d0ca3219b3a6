"""A config file, bytes or an override read into a document: plain data with the place of every key and value."""

from __future__ import annotations

import os
import pathlib
import re
import stat
from typing import Any, cast

from mhsa_cli.config.fields import reads_text
from mhsa_cli.config.problems import ConfigError, Mark, Problem, Source, clip
from mhsa_cli.config.recipes import find, nearest_recipes
from mhsa_cli.config.yaml_events import OTHER_FORMATS, Document, Path, YamlReader, not_yaml, other_format

MAX_BYTES = 256 * 1024
_KINDS = {stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe", stat.S_IFSOCK: "a socket"}

_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x84\x86-\x9f\ufeff\ufffe\uffff]")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")  # the line breaks that PyYAML counts


def read_file(path: str | None) -> Document:
    """Read a config file or a recipe; None means all defaults.

    Raises: ConfigError as `read_document`, or if it is unreadable.
    """
    if path is None:
        return Document(Source("the defaults"))
    found = find(path)
    return read_document(_read_bytes(found), found)


def _read_bytes(path: str) -> bytes:
    """Read at most MAX_BYTES + 1 bytes of a config file, without waiting on a pipe or device. Raises: ConfigError."""
    whole = Mark(Source(path or "''"))
    if not path or "\0" in path:
        raise whole.error("no-file", "the file name is empty or contains a NUL, wanted a YAML file")
    try:
        mode = pathlib.Path(path).stat().st_mode
        if not stat.S_ISREG(mode):
            raise whole.error("no-file", f"found {_KINDS.get(stat.S_IFMT(mode), 'a device')}, wanted a YAML file")
        # Without O_NONBLOCK, open() would wait for ever on a pipe created since the check above.
        with os.fdopen(os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)), "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        near = " or ".join(f"`{clip(name)}`" for name in nearest_recipes(path))
        hint = f"did you mean the recipe {near}?" if near else "`mhsa config init FILE` writes one"
        raise whole.error("no-file", "there is no such file", f"{hint}\nrecipes: mhsa config list") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise whole.error("unreadable", f"cannot be read: {reason}") from None
    return data


def read_document(data: bytes, name: str) -> Document:
    """Read a config; an empty file is all defaults. Raises: ConfigError if the rest of the file cannot be read."""
    whole = Mark(Source(name))
    if len(data) > MAX_BYTES:
        raise whole.error("size", f"is larger than {MAX_BYTES // 1024} kB: this is no config")
    if other := OTHER_FORMATS.get(name[name.rfind(".") :].lower()):
        raise ConfigError([not_yaml(whole, other)])
    text = _decode(data, whole)
    source = Source(name, _BREAK.split(text))
    if found := _CONTROL.search(text):
        line, col = _place(text[: found.start()])
        message = f"found the invisible character U+{ord(found.group()):04X}, which is not allowed in a config"
        raise Mark(source, line, col).error("character", message)
    document = Document(source)
    root = YamlReader(document, text, reads_text).read(())
    if root is not None and not isinstance(root, dict):
        raise ConfigError(document.problems or [_not_a_mapping(document, root, text)])
    document.data = root or {}
    return document


def read_value(text: str, source: Source, col: int, path: Path) -> Document:
    """Read the value of an override from column `col`; that of a text key as typed, unless it is in quotes."""
    document = Document(source)
    if found := _CONTROL.search(text) or _BREAK.search(text):
        mark = Mark(source, 1, col + found.start())
        raise mark.error("character", f"found the control character U+{ord(found.group()):04X}")
    typed = text.strip(" ")
    if typed and reads_text(path, typed) and typed[0] not in "'\"" and "${" not in typed:
        document.marks[path] = Mark(source, 1, col + text.index(typed), len(typed))
        document.data = cast(Any, typed)
        return document
    document.data = YamlReader(document, "x: " + text, reads_text, shift=col - 4, at=path).read(())["x"]
    return document


def _decode(data: bytes, whole: Mark) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise whole.error("encoding", "is UTF-16, wanted UTF-8", "save it again as UTF-8")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        # The position counts from after the byte order mark.
        body = data.removeprefix(b"\xef\xbb\xbf")
        line, col = _place(body[: error.start].decode("utf-8", "replace"))
        source = Source(whole.source.name, _BREAK.split(body.decode("utf-8", "surrogateescape")))
        message = f"found the byte 0x{body[error.start]:02x}, which is not UTF-8"
        raise Mark(source, line, col).error("encoding", message, "save the file again as UTF-8") from None


def _place(before: str) -> tuple[int, int]:
    lines = _BREAK.split(before)
    return len(lines), len(lines[-1]) + 1


def _not_a_mapping(document: Document, root: Any, text: str) -> Problem:
    mark = document.marks[()]
    if isinstance(root, list):
        return mark.problem("sections", "found a list, wanted sections: `task:`, `model:`, `train:`")
    if other := other_format(text):
        return not_yaml(mark, other)
    hint = "a space is needed after the colon" if re.match(r"[\w-]+:\S", str(root)) else None
    return mark.problem(
        "sections", f"found the text `{clip(str(root))}`, wanted sections: `task:`, `model:`, `train:`", hint
    )
