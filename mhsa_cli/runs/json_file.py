"""Strict JSON files: no NaN, errors with file and position, a format number, and a hash of their own."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mhsa_cli.errors import IS, UPDATE, DamageError, NewerFormatError
from mhsa_cli.records.formats import FORMAT
from mhsa_cli.runs.line_ends import check_line_ends
from mhsa_cli.text import escape

DEEPEST = 50  # levels of nesting; our files have six
NONFINITE = "nonfinite"
OWN_HASH, FILES = "sha256", "files"
_STRICT = json.JSONEncoder(allow_nan=False)  # made once: writing a record takes microseconds
_INDEX = re.compile(r"[0-9]{1,9}")
_LAST_LINE = re.compile(rb',\n "sha256": "([0-9a-f]{64})"\n}\n\Z')


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


_READER = json.JSONDecoder(parse_constant=_refuse_constant)  # made once: a curve may have a million lines


def parse_json(raw: bytes, path: Path, line: int | None = None) -> dict[str, Any]:
    """Parse one JSON object; `line` is its number in a file with one object per line. Raises: DamageError."""
    place = f"{line}: " if line else " "
    try:
        value = _READER.decode(raw.decode("utf-8"))
        if raw.count(b"[") + raw.count(b"{") > DEEPEST and _is_deep(value):
            raise RecursionError
        if isinstance(value, dict):
            return value
        place, reason = f"{line or 1}: ", "expected an object in { }"
    except json.JSONDecodeError as error:
        place, reason = f"{line or error.lineno}:{error.colno}: ", error.msg
    except UnicodeDecodeError as error:
        reason = f"byte {error.start} is not UTF-8"
    except RecursionError:
        reason = "too deeply nested"
    except ValueError as error:
        reason = str(error)
    raise DamageError((path, ":", f"{place}damaged JSON: {reason}"), code="json")


def parse_document(raw: bytes, path: Path) -> dict[str, Any]:
    """Parse one JSON object of a known format number. Raises: DamageError, NewerFormatError."""
    content = parse_json(raw, path)
    check_format(content, path)
    return content


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(DEEPEST):
        inside = (item for outer in level for item in (outer.values() if isinstance(outer, dict) else outer))
        level = [item for item in inside if isinstance(item, dict | list)]
        if not level:
            return False
    return True


def check_format(content: Mapping[str, Any], path: Path) -> None:
    """Check that the format number is known. Raises: NewerFormatError, DamageError."""
    number = content.get("format")
    if type(number) is not int:  # JSON's true is none
        found = "no format number" if number is None else f"the format number {escape(repr(number))[:40]}"
    elif number > FORMAT:
        message = f" was made by a newer mhsa (format {number}, this one reads up to {FORMAT})"
        raise NewerFormatError((path, message), UPDATE)
    elif number >= 1:
        return
    else:
        found = f"the unknown format number {number}"
    raise DamageError((path, f" has {found}: expected 1 to {FORMAT}"), code="format")


def dump_json(value: Mapping[str, Any], indent: int | None = None) -> str:
    """Write an object as strict JSON: NaN and infinities become null and are listed under "nonfinite".

    Example: `{"loss": nan}` -> `{"loss": null, "nonfinite": {"loss": "nan"}}`; nested values as `"a/0/b"`.
    """
    with contextlib.suppress(ValueError, TypeError):  # searching for NaN first takes six times as long
        return _STRICT.encode(value) if indent is None else json.dumps(value, allow_nan=False, indent=indent)
    found: dict[str, str] = {}
    clean = _without_nonfinite(value, None, found)
    if found:
        clean[NONFINITE] = found
    return json.dumps(clean, allow_nan=False, indent=indent)


def dump_sealed(value: Mapping[str, Any]) -> bytes:
    """Write an object as a JSON file whose last line is the SHA-256 of everything before it."""
    body = dump_json(value, 1)[: -len("\n}")].encode("ascii")
    return body + f',\n "{OWN_HASH}": "{hashlib.sha256(body).hexdigest()}"\n}}\n'.encode("ascii")


def is_sealed(raw: bytes) -> bool:
    """Return whether a JSON file ends with its own hash; the oldest do not."""
    return _LAST_LINE.search(raw[-100:]) is not None


def check_sealed(raw: bytes, content: Mapping[str, Any], path: Path) -> None:
    """Compare a file with its own hash, if it has one. Raises: DamageError."""
    if (OWN_HASH not in content and FILES not in content) or _hash_fits(raw):
        return
    check_line_ends(path, lambda: io.BytesIO(raw), lambda pieces: _hash_fits(b"".join(pieces)))
    differs, lost = "damaged or was edited: its own hash differs", "damaged: its own hash is not on its last line"
    raise DamageError((path, IS, differs if is_sealed(raw) else lost), code="hash")


def _hash_fits(raw: bytes) -> bool:
    found = _LAST_LINE.search(raw[-100:])
    return found is not None and hashlib.sha256(raw[: -len(found[0])]).hexdigest().encode("ascii") == found[1]


def _without_nonfinite(value: Any, where: str | None, found: dict[str, str]) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        found[where or ""] = "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"
        return None
    if isinstance(value, Mapping):
        return {key: _without_nonfinite(item, _join(where, str(key)), found) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_without_nonfinite(item, _join(where, str(at)), found) for at, item in enumerate(value)]
    return value


def _join(where: str | None, key: str) -> str:
    key = key.replace("~", "~0").replace("/", "~1")  # as in JSON pointers
    return key if where is None else f"{where}/{key}"


def restore_nonfinite(content: dict[str, Any]) -> dict[str, Any]:
    """Restore the NaN and infinities listed by `dump_json`; changes and returns `content`."""
    found = content.pop(NONFINITE, None)
    for where, text in found.items() if isinstance(found, dict) else ():
        *above, last = (key.replace("~1", "/").replace("~0", "~") for key in where.split("/"))
        place: Any = content
        for key in above:
            place = _item(place, key)
        if text in ("nan", "inf", "-inf") and _item(place, last, missing=False) is None:  # only a null is replaced
            place[int(last) if isinstance(place, list) else last] = float(text)
    return content


def _item(place: Any, key: str, missing: Any = None) -> Any:
    if isinstance(place, dict):
        return place.get(key, missing)
    if isinstance(place, list) and _INDEX.fullmatch(key) and int(key) < len(place):
        return place[int(key)]
    return missing
