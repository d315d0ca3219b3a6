"""Problems at their place in the file, with a hint, from the errors of pydantic."""

from __future__ import annotations

import re
from typing import Any, get_origin

from pydantic.fields import FieldInfo

from mhsa_cli.config.aliases import list_keys, normalise, suggest
from mhsa_cli.config.fields import all_keys, base_type, describe, expected, field_of, options
from mhsa_cli.config.problems import Mark, Problem, clip
from mhsa_cli.config.ranges import is_range
from mhsa_cli.config.scalars import MAX_DIGITS, NULLS, ScalarError, resolve, write
from mhsa_cli.config.section import Section
from mhsa_cli.config.spelling import did_you_mean
from mhsa_cli.config.tasks import TASK_SCHEMAS, schema_of, task_name
from mhsa_cli.config.yaml_events import Document, Path

SPELLINGS = {
    "bf16": "bfloat16", "fp16": "bfloat16", "fp32": "float32", "float": "float32", "fp64": "float64",
    "double": "float64",
    "ln": "layernorm", "rms": "rmsnorm", "sin": "sinusoidal", "sine": "sinusoidal", "sinusoid": "sinusoidal",
    "learnt": "learned", "rotary": "rope", "cos": "cosine", "lin": "linear", "halves": "half",
}  # fmt: skip
OTHER_KINDS = frozenset({"geglu", "glu", "elu", "siglu"})  # one letter from ours, but no misspelling of it
_THOUSANDS = re.compile(r"[0-9]{1,3}([_,][0-9]{3})+")


def _field(path: Path, task: str) -> FieldInfo:
    """Return the field at a path; of a task's key, that of this task, or of the default task if it is unknown."""
    schema: type[Section] = schema_of(task) or TASK_SCHEMAS["repeat"]
    return schema.model_fields[str(path[1])] if path[0] == "task" else field_of(f"{path[0]}.{path[1]}")


def problem(error: Any, document: Document) -> Problem | None:
    """Translate an error of pydantic; None if the value has a problem already."""
    task = task_name(document.data.get("task", {}))
    path: Path = tuple(error["loc"])
    if path[0] == "task" and len(path) > 1:  # pydantic names the schema it chose: (task, copy, seq_len)
        path = (path[0], *path[2:])
    if error["type"].startswith("union_tag") and isinstance(document.data.get("task"), dict):
        path = ("task", "name")
    if _is_bad(path, document):
        return None
    if error["type"] == "extra_forbidden":
        return unknown(path, document)
    if error["type"] == "rule":
        context = error["ctx"]
        places = [tuple(name.split(".")) if "." in name else (path[0], name) for name in context["at"]]
        mark = find(document, *places, path)
        prefix = "" if places else f"`{_dotted(path)}`: "
        value = _get(document.data, path)
        hint = context["hint"] or _several(value, mark)
        if hint is None and len(path) == 2 and _is_null(value):
            hint = _default_hint(_field(path, task))
        return mark.problem(context["code"], prefix + context["message"], hint)
    return _wrong_value(path, document, task)


def find(document: Document, *paths: Path) -> Mark:
    """Return the mark of the first of `paths` in the document, else of a section, else of the document."""
    sections = [path[:end] for path in paths for end in range(len(path) - 1, 0, -1)]
    marks = [document.marks[path] for path in paths if path in document.marks]
    marks += [document.keys[path] for path in sections if path in document.keys]
    return marks[0] if marks else Mark(document.source)


def _dotted(path: Path) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path).lstrip(".")


def _is_bad(path: Path, document: Document) -> bool:
    """Return whether a value, or one that holds it, has a problem already."""
    return any(path[:n] in document.bad for n in range(1, len(path) + 1))


def unknown(path: Path, document: Document) -> Problem | None:
    """Return the problem of an unknown key; None if its value or its task has a problem already."""
    task = task_name(document.data.get("task", {}))
    if _is_bad(path, document) or (path[0] == "task" and len(path) > 1 and schema_of(task) is None):
        return None
    *home, key = (str(part) for part in path)
    section = ".".join(home)
    # An override has the key `optimizer.lr`, but no `optimizer`: then the whole key is the place.
    mark = next((key for at, key in document.keys.items() if at[: len(path)] == path), None) or find(document, path)
    value = _get(document.data, path)
    if section == "task" and (hint := _task_setting(key, task)):
        return mark.problem("unknown-setting", f"task `{task}` has no setting `{clip(key)}`", hint)
    suggestion = suggest(key, section, all_keys(), value)
    hint = suggestion.text
    if suggestion.kind == "sections" and mark.source.override and not isinstance(value, dict):
        hint = list_keys(all_keys())
    if isinstance(value, dict) and not home:
        inner = [
            f"inside it, `{clip(name)}`: {suggest(f'{key}.{name}', '', all_keys(), item).text}"
            for name, item in list(value.items())[:4]
        ]
        hint = "\n".join([hint, *inner]) if normalise(key) not in ("task", "model", "train") else hint
    where = f" in `{section}`" if section else ""
    return mark.problem("unknown-key", f"unknown key `{clip(key)}`{where}", hint)


def _task_setting(key: str, task: str) -> str | None:
    """Return the hint about a setting that the task does not have; None leaves it to the general search."""
    name = normalise(key)
    names = sorted(TASK_SCHEMAS[task].model_fields, key=lambda field: field != "name")
    settings = f"settings of `{task}`: " + ", ".join(names)
    if task == "text" and name == "vocab_size":
        return "the vocabulary of `text` comes from its file: remove the line"
    owners = [other for other, schema in TASK_SCHEMAS.items() if name in schema.model_fields]
    if owners and name not in TASK_SCHEMAS[task].model_fields:
        return f"it is a setting of {', '.join(f'`{owner}`' for owner in owners)}; {settings}"
    keys = [f"task.{field}" for field in TASK_SCHEMAS[task].model_fields]
    hint = suggest(key, "task", [*keys, *(k for k in all_keys() if not k.startswith("task."))])
    return settings if hint.kind == "keys" else f"{hint.text}\n{settings}"


def _get(data: Any, path: Path) -> Any:
    for part in path:
        try:
            data = data[part]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _wrong_value(path: Path, document: Document, task: str) -> Problem:
    name, value = _dotted(path), _get(document.data, path)
    if len(path) == 1:
        mark = find(document, path)
        if path[0] == "task" and isinstance(value, str):
            message = f"`task`: found {describe(value)}, wanted a mapping"
            return mark.problem("section", message, "write `task: {name: ...}`")
        hint = "a space is needed after the colon" if re.match(r"[\w-]+:\S", str(value)) else None
        return mark.problem("section", f"`{name}`: found {describe(value)}, wanted a mapping of its keys", hint)
    if path == ("task", "name"):
        mark = find(document, path)
        message = f"`task.name`: found {describe(value)}, wanted one of {', '.join(TASK_SCHEMAS)}, or FILE.py:Name"
        return mark.problem("unknown-task", message, _several(value, mark) or did_you_mean(str(value), TASK_SCHEMAS))
    field = _field(path, task)
    known = _get(document.data, path[:1])
    if isinstance(known, dict) and path[1] not in known:
        where = find(document, ("task", "name"), path)
        return where.problem("missing", f"`{name}` is missing: wanted {expected(field)}")
    if len(path) > 2 and value is None and path not in document.marks:  # the list is too short
        path = path[:2]
        name, value = _dotted(path), _get(document.data, path)
    mark = find(document, path)
    found = _as_written(value, mark) if path in document.marks else describe(value)
    message = f"`{name}`: found {found}, wanted {expected(field)}"
    if len(path) > 2:
        message = f"`{name}`: found {found}; `{_dotted(path[:2])}` wants {expected(field)}"
    return mark.problem("value", message, _value_hint(value, str(path[1]), field, mark))


def _as_written(value: Any, mark: Mark) -> str:
    """Describe the value found; a number by its characters in the file: 1e999, not inf."""
    start = (mark.col or 1) - 1
    written = (mark.text or "")[start : start + mark.span]
    try:
        same = isinstance(value, bool | int | float) and repr(resolve(written)) == repr(value)
    except ScalarError:
        same = False
    return f"`{clip(written)}`" if same else describe(value)


def _value_hint(value: Any, key: str, field: FieldInfo, mark: Mark) -> str | None:
    kind = base_type(field)
    if get_origin(kind) is not tuple and (several := _several(value, mark)):
        return several
    if _is_null(value):
        return _default_hint(field)
    if choices := options(field):
        return _choice_hint(value, choices)
    if kind is bool and isinstance(value, str):
        words = {**dict.fromkeys(("yes", "on", "y"), "true"), **dict.fromkeys(("no", "off", "n"), "false")}
        return f"write `{words[value.lower()]}`" if value.lower() in words else None
    if kind is int and isinstance(value, float):
        if value.is_integer() and abs(value) < 10**MAX_DIGITS:
            return f"write {int(value)}"
        return "a fraction x epochs x steps_per_epoch gives the steps" if key == "warmup_steps" else None
    return _text_hint(value, mark) if kind in (int, float) and isinstance(value, str) else None


def _is_null(value: Any) -> bool:
    return value is None or (isinstance(value, str) and value in NULLS)  # the value of a text key is a text


def _default_hint(field: FieldInfo) -> str | None:
    return None if field.is_required() else f"leave the line out for the default, {write(field.get_default())}"


def _several(value: Any, mark: Mark) -> str | None:
    """Return the hint about an override with several values, in brackets or not: a sweep takes them."""
    listed = isinstance(value, list) or (isinstance(value, str) and not _THOUSANDS.fullmatch(value))
    if not (mark.source.override and listed):
        return None
    key, _, typed = (mark.text or "").partition("=")
    items = [item.strip() for item in typed.strip().removeprefix("[").removesuffix("]").split(",")]
    if is_range(typed):
        return f"one run has one value; to train each of several: mhsa sweep {key.strip()}={typed.strip()}"
    if len(items) < 2 or not all(re.fullmatch(r"[-+.\w]+", item, re.ASCII) for item in items):
        return None
    return f"one run has one value; to train each of several: mhsa sweep {key.strip()}={','.join(items)}"


def _choice_hint(value: Any, choices: tuple[str, ...]) -> str | None:
    word = str(value).lower()
    if word in ("float16", "fp16", "half"):
        return "float16 needs loss scaling; use bfloat16"
    if SPELLINGS.get(word) in choices:
        return f"did you mean `{SPELLINGS[word]}`?"
    return None if word in OTHER_KINDS else did_you_mean(word, choices)


def _text_hint(value: str, mark: Mark) -> str | None:
    line = mark.text or ""
    if mark.col is not None and line[mark.col - 1 : mark.col] in ("'", '"') and re.match(r"[-+.\d]", value):
        return "remove the quotes"
    if _THOUSANDS.fullmatch(value):
        return f"write {re.sub('[_,]', '', value)}"
    if unit := re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z%]+)", value):
        return f"units such as `{unit.group(2)}` are not supported: write a plain number"
    return None
