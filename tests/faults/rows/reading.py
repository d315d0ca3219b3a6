"""What a config says, read without the program: YAML 1.2's words, every range and every rule written out by hand."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Iterator
from typing import Any

import yaml
from yaml.tokens import AliasToken, AnchorToken, DirectiveToken, DocumentStartToken, TagToken

INT, FLOAT = re.compile(r"[-+]?[0-9]+"), re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
ODD_INT = re.compile(r"[-+]?0[0-9]+|[-+]?0[xX][0-9a-fA-F]+|[-+]?0[oO][0-7]+|[-+]?0[bB][01]+|[-+]?[0-9]{21,}")
WORDS = {"true": True, "True": True, "TRUE": True, "false": False, "False": False, "FALSE": False}
WORDS |= dict.fromkeys(("", "~", "null", "Null", "NULL"))
MOST = 10**9
TOKENS, LENGTH = ("int", 2, 2**20), ("int", 1, 65536)
LOSS_ON = ("word", "answers", "all")

# Of each key: its kind, and from where to where; a `?` behind the kind lets null through.
TASKS: dict[str, dict[str, tuple[Any, ...]]] = {
    "repeat": {"vocab_size": TOKENS, "seq_len": LENGTH},
    "shift": {"vocab_size": TOKENS, "seq_len": LENGTH},
    **dict.fromkeys(
        ("copy", "reverse"),
        {
            "vocab_size": TOKENS,
            "separator": ("bool",),
            "seq_len": LENGTH,
            "min_length": ("int?", 1, 32768),
            "loss_on": LOSS_ON,
        },
    ),
    "induction": {
        "vocab_size": TOKENS,
        "seq_len": ("int", 2, 65536),
        "min_period": ("int?", 1, 65535),
        "max_period": ("int?", 1, 65535),
        "distinct": ("bool",),
        "period_per": ("word", "row", "batch"),
        "loss_on": LOSS_ON,
    },
    "text": {"path": ("path",), "seq_len": LENGTH, "eval_fraction": ("float", 5e-324, 0.5)},
}
MODEL: dict[str, tuple[Any, ...]] = {
    "d_model": ("int", 1, 65536),
    "n_heads": ("int", 1, 65536),
    "d_head": ("int?", 1, 65536),
    "n_kv_heads": ("int?", 1, 65536),
    "n_layers": ("int", 1, 1024),
    "d_mlp": ("int", 0, 2**20),
    "mlp": ("word", "gelu", "relu", "swiglu"),
    "residual": ("bool",),
    "norm": ("word", "none", "layernorm", "rmsnorm"),
    "positions": ("word", "learned", "sinusoidal", "rope", "alibi", "none"),
    "rope_theta": ("float", math.nextafter(1, 2), 1e9),
    "rope_layout": ("word", "interleaved", "half"),
    "attention": ("word", "softmax", "linear", "uniform"),
    "causal": ("bool",),
    "encoder_layers": ("int", 0, 1024),
    "window": ("int?", 1, 65536),
    "bias": ("bool",),
    "init_std": ("float?", 1e-4, 100.0),
    "dropout": ("float", 0.0, math.nextafter(1, 0)),
    "max_seq_len": ("int?", 1, 65536),
    "tie_embeddings": ("bool",),
}
TRAIN: dict[str, tuple[Any, ...]] = {
    "epochs": ("int", 0, MOST),
    "steps_per_epoch": ("int", 1, MOST),
    "batch_size": ("int", 1, 2**20),
    "batch_stream": ("word", "seekable", "sequential"),
    "lr": ("float", 5e-324, 1e4),
    "schedule": ("word", "constant", "cosine", "linear"),
    "warmup_steps": ("int", 0, MOST),
    "min_lr": ("float", 0.0, 1e4),
    "weight_decay": ("float", 0.0, 1e4),
    "betas": ("betas",),
    "eps": ("float", 1e-16, 1.0),
    "grad_clip": ("float?", 5e-324, 1e9),
    "init": ("path?",),
    "seed": ("int", 0, 2**63 - 1),
    "device": ("device",),
    "dtype": ("word", "float32", "float64", "bfloat16"),
    "threads": ("int", 1, 1024),
    "log_every": ("int?", 1, MOST),
    "eval_every": ("int?", 1, MOST),
    "eval_sequences": ("int", 1, 2**20),
    "stop_at": ("goal?",),
    "patience": ("int?", 1, MOST),
    "save_every": ("int?", 1, MOST),
    "keep": ("int", 1, MOST),
}
NULLS = ("~", "null", "Null", "NULL")
MAY_BE_NULL = {("train", "init"), ("train", "stop_at")}
TEXTS = {("task", "path"), ("model", "attention"), ("train", "device"), *MAY_BE_NULL}  # the keys of text
DEFAULTS: dict[str, dict[str, Any]] = {
    "model": {
        "d_model": 32, "n_heads": 4, "d_head": None, "n_kv_heads": None, "n_layers": 1, "encoder_layers": 0,
        "d_mlp": 0, "mlp": "gelu", "residual": False,
        "norm": "none", "positions": "sinusoidal", "rope_theta": 10000.0, "rope_layout": "interleaved",
        "attention": "softmax", "causal": True, "window": None, "bias": True, "init_std": None, "dropout": 0.0,
        "max_seq_len": None, "tie_embeddings": False,
    },
    "train": {
        "epochs": 3, "steps_per_epoch": 120, "batch_size": 16, "batch_stream": "seekable", "lr": 0.005,
        "schedule": "constant", "warmup_steps": 0, "min_lr": 0.0, "weight_decay": 0.0, "betas": [0.9, 0.999],
        "eps": 1e-8, "grad_clip": None, "init": None, "seed": 42, "device": "auto", "dtype": "float32", "threads": 1,
        "log_every": None, "eval_every": None, "eval_sequences": 512, "stop_at": None, "patience": None,
        "save_every": None, "keep": 2,
    },
}  # fmt: skip
TASK_DEFAULTS: dict[str, dict[str, Any]] = {
    "repeat": {"vocab_size": 64, "seq_len": 12},
    "shift": {"vocab_size": 64, "seq_len": 12},
    **dict.fromkeys(
        ("copy", "reverse"),
        {"vocab_size": 64, "separator": True, "seq_len": 12, "min_length": None, "loss_on": "answers"},
    ),
    "induction": {
        "vocab_size": 32,
        "seq_len": 24,
        "distinct": True,
        "min_period": None,
        "max_period": None,
        "period_per": "row",
        "loss_on": "answers",
    },
    "text": {"seq_len": 64, "eval_fraction": 0.1},
}


class RefusedError(Exception):
    """This must not load, and why."""


def word(text: str) -> Any:
    """Read an unquoted word by the core schema of YAML 1.2; what could mean two things is refused."""
    if text in WORDS:
        return WORDS[text]
    if ODD_INT.fullmatch(text):
        raise RefusedError(f"the number {text[:30]}")
    if INT.fullmatch(text):
        return int(text)
    if FLOAT.fullmatch(text):
        return float(text)
    if re.fullmatch(r"[-+]?\.(inf|Inf|INF)", text):
        return -math.inf if text[0] == "-" else math.inf
    return math.nan if text in (".nan", ".NaN", ".NAN") else text


def plain(node: Any, at: tuple[str, ...] = ()) -> Any:
    """Turn a parser's node into plain data; the value of a key of text is what stands there, whatever it looks like."""
    if isinstance(node, yaml.SequenceNode):
        return [plain(item) for item in node.value]
    if isinstance(node, yaml.MappingNode):
        found: dict[str, Any] = {}
        for key, value in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in found:
                raise RefusedError("a key that is no word, or stands twice")
            found[key.value] = plain(value, (*at, key.value))
        return found
    if "${" in node.value:
        raise RefusedError("interpolation")
    as_written = node.style is not None or (
        at in TEXTS and node.value and (at not in MAY_BE_NULL or node.value not in NULLS)
    )
    return node.value if as_written else word(node.value)


class Loader(yaml.BaseLoader):
    """PyYAML's own composer; strange bytes of a path are let through."""

    def check_printable(self, data: Any) -> None:
        pass


def parsed(text: str) -> Any:
    """Read YAML; anchors, tags, directives and second documents are refused."""
    try:
        tokens = [type(token) for token in yaml.scan(text, Loader)]
        node = yaml.compose(text, Loader)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise RefusedError(f"no YAML: {type(error).__name__}") from None
    if {AliasToken, AnchorToken, TagToken, DirectiveToken} & set(tokens) or tokens.count(DocumentStartToken) > 1:
        raise RefusedError("an anchor, an alias, a tag, a directive or a second document")
    return None if node is None else plain(node)


def read(data: bytes) -> Any:
    """Read a file's bytes."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise RefusedError("not UTF-8") from None
    if any((unicodedata.category(c) == "Cc" and c not in "\t\n\r\x85") or c in "\ufeff\ufffe\uffff" for c in text):
        raise RefusedError("an invisible character")
    return parsed(text)


def resolved(data: Any) -> dict[str, Any]:
    """Fill in what was left out, and hold every value to its range and to the rules."""
    if data is None:
        data = {}
    if not isinstance(data, dict) or set(data) - {"task", "model", "train"}:
        raise RefusedError("sections")
    given = {name: {} if data.get(name) is None else data[name] for name in ("task", "model", "train")}
    if not all(isinstance(section, dict) for section in given.values()):
        raise RefusedError("a section that is no mapping")
    name = given["task"].get("name", "repeat")
    if not isinstance(name, str) or name not in TASKS:
        raise RefusedError("task")
    whole = {"task": {"name": name, **TASK_DEFAULTS[name], **given["task"]}}
    whole |= {part: {**DEFAULTS[part], **given[part]} for part in ("model", "train")}
    ranges = {"task": {"name": ("word", name), **TASKS[name]}, "model": MODEL, "train": TRAIN}
    for part, section in whole.items():
        if set(section) != set(ranges[part]):
            raise RefusedError(f"keys of {part}")
        for key, value in section.items():
            if not fits(value, *ranges[part][key]):
                raise RefusedError(f"{part}.{key}: {value!r:.40}")
    for broken in unlawful(whole["task"], whole["model"], whole["train"]):
        raise RefusedError(broken)
    return whole


def fits(value: Any, kind: str, *limits: Any) -> bool:
    """Tell whether a value is of its kind and in its range."""
    if value is None:
        return kind.endswith("?")
    kind = kind.removesuffix("?")
    if kind == "bool":
        return isinstance(value, bool)
    if kind == "word":
        return isinstance(value, str) and value in limits
    if kind == "device":
        return isinstance(value, str) and bool(re.fullmatch(r"auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,3}))?", value, re.A))
    if kind == "path":
        return isinstance(value, str) and value != "" and not re.search("[\0-\x1f\x7f]", value)
    if kind == "goal":
        goal = re.fullmatch(r"\s*(accuracy|loss)\s*=\s*([^\s=<>:]\S*)\s*", value) if isinstance(value, str) else None
        return goal is not None and _reached(goal[1], goal[2])
    if kind == "betas":
        return isinstance(value, list) and len(value) == 2 and all(fits(v, "float", 0, 1) and v < 1 for v in value)
    number = (int,) if kind == "int" else (int, float)
    return isinstance(value, number) and not isinstance(value, bool) and bool(limits[0] <= value <= limits[1])


def _reached(measure: str, number: str) -> bool:
    try:
        value = float(number)
    except ValueError:
        return False
    return 0 < value < math.inf and (measure == "loss" or value <= 1)


def unlawful(task: dict[str, Any], model: dict[str, Any], train: dict[str, Any]) -> Iterator[str]:
    """Name the rules between settings that are broken."""
    length, heads, width = task["seq_len"], model["n_heads"], model["d_model"]
    if task["name"] in ("copy", "reverse"):
        least = task["min_length"]
        if not task["separator"]:
            if least is not None or task["loss_on"] == "all":
                yield "prefix"
        elif length % 2 or (least or 0) > length // 2 or task["vocab_size"] < (3 if least is None else 4):
            yield "prefix"
    if task["name"] == "induction":
        shortest, longest = task["min_period"] or max(1, length // 4), task["max_period"] or length // 2
        if longest >= length or shortest > longest or (task["distinct"] and longest > task["vocab_size"]):
            yield "periods"
    if (model["d_head"] is None and width % heads) or heads % (model["n_kv_heads"] or heads):
        yield "heads"
    elif model["positions"] == "rope" and (model["d_head"] or width // heads) % 2:
        yield "pairs"
    if model["attention"] == "linear" and model["positions"] == "alibi":
        yield "alibi"
    if model["window"] is not None and (model["attention"] != "softmax" or not model["causal"]):
        yield "window"
    if model["encoder_layers"]:
        copies = task["name"] in ("copy", "reverse") and task["separator"] and task["min_length"] is None
        plain = model["causal"] and model["window"] is None and model["max_seq_len"] is None
        if not (copies and plain and model["attention"] in ("softmax", "uniform")):
            yield "encoder"
    if (model["max_seq_len"] or length) < length:
        yield "reach"
    steps = train["epochs"] * train["steps_per_epoch"]
    if steps > MOST or (train["epochs"] and train["warmup_steps"] > steps):
        yield "steps"
    if train["min_lr"] > train["lr"] or (train["min_lr"] and train["schedule"] == "constant"):
        yield "min-lr"
    if train["dtype"] == "float64" and train["device"] == "mps":
        yield "dtype"


def same(found: Any, wanted: Any) -> bool:
    """Tell whether two resolved configs are equal, whole numbers kept apart from fractions and from yes and no."""
    if isinstance(wanted, dict):
        return found.keys() == wanted.keys() and all(same(found[key], wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(same, found, wanted))
    if isinstance(wanted, int) and isinstance(found, float) and not isinstance(wanted, bool):
        return found == wanted
    return type(found) is type(wanted) and bool(found == wanted)
