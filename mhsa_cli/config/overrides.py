"""KEY=VALUE from the command line, and lists of values for a sweep; keys, values and errors are those of a file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from mhsa_cli.config.aliases import list_keys, setting
from mhsa_cli.config.fields import all_keys, is_list, is_text
from mhsa_cli.config.problems import ConfigError, Mark, Problem, Source, clip
from mhsa_cli.config.reader import read_value
from mhsa_cli.config.yaml_events import Document

EXAMPLE = "for example train.lr=1e-3 or n_heads=8"
_KEY = re.compile(r"[A-Za-z_.][\w.-]*=", re.ASCII)
SEED_LIST_REFUSED = ("`train.seed` may not be a list here", "write --seeds N: N seeds from `train.seed` on")
_CLOSING = {"[": "]", "{": "}"}
_QUOTE = re.compile(r"""'(?:[^']|'')*'?|"(?:\\.|[^"\\])*"?""", re.DOTALL)  # to the end if none closes it
_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
_WRAPPED = re.compile(r"\w*[\[({](.*)[\])}]")
_RANGE = re.compile(r"range\((\d{1,4})(?:,(\d{1,4}))?(?:,([1-9]\d{0,3}))?\)")
_FEW = 12  # values of a range that are written out


def is_override(argument: str) -> bool:
    """Return whether an argument is `KEY=VALUE`; a file with `=` in its name is written `./a=b.yaml`."""
    return _KEY.match(argument) is not None


@dataclass(frozen=True, slots=True)
class Override:
    """One `KEY=VALUE`: the path of its key, its place, and the value as a document of its own."""

    path: tuple[str, ...]
    key: Mark
    value: Document


def apply(document: Document, overrides: Sequence[str]) -> None:
    """Apply the overrides to the document; a key that is set twice, in any spelling, is a problem."""
    first: dict[tuple[str, ...], str] = {}
    for text in overrides:
        try:
            override = read(text)
        except ConfigError as error:
            document.problems.extend(error.problems)
            continue
        if override.path in first:
            key, before = ".".join(override.path), first[override.path]
            document.problems.append(set_twice(override.key, key, before, "keep one of them"))
            continue
        first[override.path] = text
        put(document, override)


def set_twice(mark: Mark, key: str, before: str, hint: str) -> Problem:
    """Return the problem of a key that the earlier argument `before` sets, too."""
    return mark.problem("set-twice", f"`{clip(key)}` is set already, by `{clip(before)}`", hint)


def read(text: str) -> Override:
    """Read `KEY=VALUE`. Raises: ConfigError if the rest of the argument cannot be read; else see `value.problems`."""
    source = Source(text, [text], override=True)
    key, equals, value = text.partition("=")
    whole = Mark(source, 1, 1, max(1, len(key)))
    if not equals or not key.strip():
        what = "wanted KEY=VALUE" + (", found nothing before the `=`" if equals else "")
        raise whole.error("override", what, EXAMPLE)
    if not all(part.strip() for part in key.split(".")):
        raise ConfigError([_gap(key.strip(), value, whole)])
    path = resolve_key(key.strip(), all_keys(), whole)
    if len(path) == 1 and path[0] in ("task", "model", "train"):
        example = {"task": "name=copy", "model": "d_model=64", "train": "lr=1e-3"}[path[0]]
        message = f"`{path[0]}` is a section: set its keys one by one"
        raise whole.error("section", message, f"for example {path[0]}.{example}")
    return Override(path, whole, read_value(value, source, len(key) + 2, path))


def _gap(key: str, value: str, mark: Mark) -> Problem:
    """Return the problem of a dot without a name beside it; the hint is the key, if the other name determines it."""
    keys = all_keys()
    names = [part for part in key.split(".") if part.strip()]
    missing = "section before" if key.startswith(".") else "key after" if key.endswith(".") else "name at"
    inside = [name for name in keys if names and name.startswith(f"{names[0]}.")]
    if key.endswith(".") and inside:
        hint = list_keys(inside)
    elif names and (meant := setting(names[-1], keys)):
        hint = f"write {meant}={clip(value)}"
    else:
        hint = EXAMPLE
    return mark.problem("override", f"`{clip(key)}`: the {missing} the dot is missing", hint)


def put(document: Document, override: Override) -> None:
    """Apply one override to the document."""
    path, value = override.path, override.value
    home = document.data
    for part in path[:-1]:
        if home.get(part) is None:
            home[part] = {}
        home = home[part]
        if not isinstance(home, dict):  # a problem of the file, which the schema reports
            return
    for table in (document.marks, document.keys):  # problems of the replaced value stay
        for known in [known for known in table if known[: len(path)] == path]:
            del table[known]
    document.bad = {known for known in document.bad if known[: len(path)] != path} | value.bad
    home[path[-1]] = value.data
    document.marks.update(value.marks)
    document.keys.update({**value.keys, path: override.key})
    document.problems.extend(value.problems)


def resolve_key(key: str, keys: Sequence[str], mark: Mark) -> tuple[str, ...]:
    """Return the path of a key, `train.lr` or its last name. Raises: ConfigError if several sections have the name."""
    if "." in key:
        return tuple(key.split(".", 1))
    homes = [dotted for dotted in keys if dotted.rpartition(".")[2] == key]
    if len(homes) > 1:
        names = " or ".join(f"`{dotted}`" for dotted in homes)
        raise mark.error("ambiguous", f"`{clip(key)}` could be {names}", "write the whole name")
    return tuple(homes[0].split(".")) if homes else (key,)


def bracketed_list_problem(key: str, text: str) -> tuple[str, str] | None:
    """Return message and hint for values in brackets or a call like range(3), unless the key takes them."""
    dotted = setting(key, all_keys())
    if dotted is None or is_text(path := tuple(dotted.split("."))):
        return None
    signs = "(){}" if is_list(path) else "()[]{}"
    if not any(sign in _QUOTED.sub("", text) for sign in signs):
        return None
    if dotted == "train.seed":
        return SEED_LIST_REFUSED
    message = f"`{dotted}`: found `{clip(text.strip())}`, wanted values with commas between them"
    if is_list(path):
        return message, f"for example {key}=[0.9,0.95],[0.9,0.999]"
    values = _listed(text.replace(" ", ""))
    return f"{message}, without brackets", f"write {key}={values}" if values else "for example train.lr=1e-3,3e-3"


def _listed(text: str) -> str | None:
    """Write a list or range as values with commas, if its meaning is certain."""
    if span := _RANGE.fullmatch(text):
        first, last, step = span.groups()
        numbers = range(0 if last is None else int(first), int(last or first), int(step or 1))
        return ",".join(map(str, numbers)) if 0 < len(numbers) <= _FEW else None
    inside = _WRAPPED.fullmatch(text)
    plain = inside is not None and re.fullmatch(r"[-+.\w]+(,[-+.\w]+)*", inside[1], re.ASCII)
    return inside[1] if inside and plain and not text[0].isalpha() else None


def split_values(text: str) -> list[tuple[int, str]]:
    """Split at the commas outside [], {} and quotes; each item with the index of its first character."""
    items: list[tuple[int, str]] = []
    start = 0
    for comma in [*_commas(text), len(text)]:
        item = text[start:comma]
        items.append((start + len(item) - len(item.lstrip()), item.strip()))
        start = comma + 1
    return items


def _commas(text: str) -> Iterator[int]:
    closing: list[str] = []
    before = ","  # the last character but spaces: a quote opens only at the start of a value
    at = 0
    while at < len(text):
        char = text[at]
        if before in ",[{:" and (quote := _QUOTE.match(text, at)):
            at = quote.end() - 1
        elif char in _CLOSING:
            closing.append(_CLOSING[char])
        elif closing and char == closing[-1]:
            closing.pop()
        elif char == "," and not closing:
            yield at
        before = before if char == " " else char
        at += 1
