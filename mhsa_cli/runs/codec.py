"""Records to the plain data of JSON and back; the type hints of a record are its schema."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from enum import StrEnum
from functools import cache, partial
from types import NoneType
from typing import Any, NamedTuple, TypeGuard, TypeVar, get_args, get_origin, get_type_hints

from mhsa_cli.records.claim_words import WORDS, words
from mhsa_cli.records.claims import Claim, Status, stored
from mhsa_cli.records.labels import Distance, Label
from mhsa_cli.text import Head, escape, shortened

T = TypeVar("T")
Reader = Callable[[Any], Any]
LARGEST = (1 << 63) - 1
SHOWN = 40  # characters of a wrong value


class Kind(NamedTuple):
    """A kind of plain value: its name in messages, and the test for it."""

    name: str
    fits: Callable[[Any], bool]


def is_count(value: object) -> TypeGuard[int]:
    """Return whether a value is an integer from 0 to 2^63 - 1."""
    return type(value) is int and 0 <= value <= LARGEST


def is_number(value: object) -> TypeGuard[int | float]:
    """Return whether a value is a number, NaN and infinity included; a JSON boolean is none."""
    return type(value) is float or (type(value) is int and abs(value) <= LARGEST)


TEXT = Kind("a text", lambda value: isinstance(value, str))
WHOLE = Kind("a whole number", lambda value: type(value) is int and abs(value) <= LARGEST)
COUNT = Kind("a whole number from 0 to 2^63 - 1", is_count)
NUMBER = Kind("a number", is_number)
YES_NO = Kind("true or false", lambda value: isinstance(value, bool))
FINITE = Kind("a finite number", lambda value: is_number(value) and math.isfinite(value))
ADDRESS = Kind("a layer and a head", lambda value: isinstance(value, list) and [*map(is_count, value)] == [True] * 2)
LABEL = Kind("the id of a label", lambda value: Label.from_id(value) is not None)

# A Kind; a list of one schema; an object with these keys, each optional and nullable, or with any key ("*").
Schema = Kind | list[Any] | dict[str, Any]
# Per type of a record's field: the kind of its plain value, how it is read, how it is written.
KINDS: dict[Any, tuple[Kind, Reader, Reader]] = {
    Distance: (WHOLE, int, int),
    **{cls: (kind, cls, lambda value: value) for cls, kind in ((int, COUNT), (float, NUMBER), (str, TEXT))},
    bool: (YES_NO, bool, bool),
    Label: (LABEL, Label.from_id, lambda label: label.id),
    Head: (ADDRESS, lambda pair: Head(*pair), list),
}
PLAIN = frozenset({int, float, str, bool, NoneType})  # types whose values are plain data already
MALFORMED = (AttributeError, KeyError, TypeError, ValueError)  # raised by content of another structure than assumed


def shown(value: Any) -> str:
    """Write a wrong value for a message: short and printable."""
    return shortened(repr(value), SHOWN)


class ContentError(ValueError):
    """A value is missing or of the wrong kind; `where` is its place in the content."""

    def __init__(self, problem: str, where: str = "") -> None:
        super().__init__(problem)
        self.problem, self.where = problem, where

    def within(self, place: str) -> ContentError:
        """Return the same error for the content that holds this one at `place`."""
        joint = "." if self.where and self.where[0] != "[" else ""
        return ContentError(self.problem, f"{place}{joint}{self.where}")

    def __str__(self) -> str:
        return f"{self.where} is {self.problem}".lstrip()


def one_of(ids: type[StrEnum]) -> Kind:
    """Return the kind of an id."""
    return Kind(f"one of {', '.join(ids)}", lambda value: value in list(ids))


def check(schema: Schema, value: Any) -> None:
    """Compare plain data with a schema. Raises: ContentError."""
    if isinstance(schema, Kind):
        _of_kind(schema, value)
    elif isinstance(schema, list):
        _list(partial(check, schema[0]), value)
    else:
        for key, item in _object(value).items():
            expected = schema.get(key, schema.get("*"))
            if expected is not None and (item is not None or "*" in schema):
                _inside(escape(key), partial(check, expected), item)


def plain(value: Any) -> Any:
    """Turn a record, and the records in it, into plain data; nested lists of numbers are returned as they are."""
    cls = value.__class__
    if cls in PLAIN:
        return value
    if kind := KINDS.get(cls):
        return kind[2](value)
    if names := _names(cls):
        fields = {name: item if type(item := getattr(value, name)) in PLAIN else plain(item) for name in names}
        return fields if cls is not Claim else {"id": fields.pop("predicate"), **fields, "text": words(value)}
    if cls is dict or isinstance(value, Mapping):
        return {str(key): item if type(item) in PLAIN else plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple) and any(map(is_dataclass, value)):
        return [plain(item) for item in value]
    return value


@cache
def _names(cls: type) -> tuple[str, ...]:
    return tuple(field.name for field in fields(cls)) if is_dataclass(cls) else ()


def from_plain(cls: Callable[..., T], content: Any, *, finite: bool = False) -> T:
    """Make a record of plain data; unknown keys are ignored. With `finite`, NaN and infinities are refused.

    A missing key is the field's default, or None where the field is optional. Lists of lists are not checked, as they
    are large. Raises: ContentError.
    """
    values = []
    content = _object(content)
    for name, read, default in _fields(cls, finite):
        if name in content:
            values.append(_inside(name, read, content[name]))
        elif default is MISSING:
            raise ContentError("missing", name)
        else:
            values.append(default)
    return cls(*values)


@cache
def _fields(cls: Any, finite: bool) -> list[tuple[str, Reader, Any]]:
    """List the fields of a record: name, reader of its value, default."""
    hints, found = get_type_hints(cls), []
    for field in fields(cls):
        default = None if NoneType in get_args(hints[field.name]) else field.default
        default = field.default_factory() if field.default_factory is not MISSING else default
        found.append((field.name, _reader(hints[field.name], finite), default))
    return found


@cache
def _reader(hint: Any, finite: bool) -> Reader:
    origin, inside = get_origin(hint), get_args(hint)
    if NoneType in inside:
        inner = _reader(inside[0], finite)
        return lambda value: None if value is None else inner(value)
    if hint in KINDS:
        kind, read, _ = KINDS[hint]
        return partial(_scalar, read, FINITE if finite and hint is float else kind)
    if is_dataclass(hint):
        return partial(_record, hint, finite)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return partial(_scalar, hint, one_of(hint))
    if origin is Mapping:
        return partial(_mapping, inside[0], _reader(inside[1], finite), math.nan if inside[1] is float else None)
    if get_origin(inside[0]) is Sequence:
        return lambda value: value
    return partial(_list, _reader(inside[0], finite))


def claim_from_plain(value: Any) -> Claim:
    """Read a claim; a text alone, as older versions wrote, an unknown id and missing figures become that text."""
    if isinstance(value, str):
        return stored(value)
    content = _object(value)
    text, name = (_inside(key, partial(_of_kind, TEXT), content.get(key)) for key in ("text", "id"))
    if name not in WORDS:
        return stored(text)
    figures = {
        key: _inside(key, lambda item: None if item is None else _of_kind(NUMBER, item), content.get(key))
        for key in ("estimate", "se", "reference")
    }
    status = _inside("status", partial(_scalar, Status, one_of(Status)), content.get("status"))
    evidence = {key: claim_from_plain(item) if _is_claim(item) else item for key, item in content["evidence"].items()}
    subject = _inside("subject", partial(_of_kind, TEXT), content.get("subject"))
    claim = Claim(subject, name, **figures, status=status, evidence=evidence)
    try:
        words(claim)
    except MALFORMED:  # figures are missing that its sentence needs
        return stored(text)
    return claim


def _is_claim(value: Any) -> bool:
    return isinstance(value, dict) and "id" in value and "text" in value


def _record(cls: Any, finite: bool, value: Any) -> Any:
    if cls is Claim and not isinstance(value, Claim):
        return claim_from_plain(value)
    return value if isinstance(value, cls) else from_plain(cls, value, finite=finite)


def _of_kind(kind: Kind, value: Any) -> Any:
    if not kind.fits(value):
        raise ContentError(f"{shown(value)}, expected {kind.name}")
    return value


def _scalar(read: Reader, kind: Kind, value: Any) -> Any:
    return read(_of_kind(kind, value))


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ContentError(f"{shown(value)}, expected an object")
    return value


def _list(read: Reader, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ContentError(f"{shown(value)}, expected a list")
    return [_inside(f"[{number}]", read, item) for number, item in enumerate(value)]


def _mapping(cls: type, read: Reader, null: Any, value: Any) -> dict[Any, Any]:
    """Read a mapping; in one of numbers, null is NaN."""
    items = _object(value).items()
    return {_key(cls, key): _inside(escape(key), read, null if item is None else item) for key, item in items}


def _key(cls: Any, key: str) -> Any:
    if cls in (int, Distance):
        if not (key.removeprefix("-") if cls is Distance else key).isdecimal():
            raise ContentError("no whole number", escape(key))
        return int(key)
    return cls(key)


def _inside(place: str, read: Reader, value: Any) -> Any:
    try:
        return read(value)
    except ContentError as error:
        raise error.within(place) from None


def describe_malformed(error: Exception) -> str:
    """Describe one of MALFORMED for a message."""
    if isinstance(error, KeyError):
        return f"{escape(str(error.args[0]))} is missing"
    return str(error) if type(error) in (ValueError, ContentError) else "a part is of the wrong kind"
