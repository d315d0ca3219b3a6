"""Configs drawn at random, valid ones, and the many ways to write each down; then, broken on purpose."""

from __future__ import annotations

import json
import random
import string
from typing import Any

from tests.faults.rows.reading import MODEL, TASKS, TRAIN, RefusedError, resolved, word

SMALL = {"vocab_size": 300, "seq_len": 60, "d_model": 96, "n_heads": 8, "n_kv_heads": 8, "n_layers": 3, "d_mlp": 90,
         "min_length": 9, "min_period": 6, "max_period": 14, "batch_size": 64, "eval_sequences": 999, "window": 99,
         "max_seq_len": 90, "epochs": 20, "steps_per_epoch": 500, "warmup_steps": 40}  # fmt: skip


def value(draw: random.Random, key: str, kind: str, *limits: Any) -> Any:
    """Draw a value of a key, its limits now and then."""
    if kind.endswith("?") and draw.random() < 0.3:
        return None
    kind = kind.removesuffix("?")
    if kind == "bool":
        return draw.random() < 0.5
    if kind == "word":
        return draw.choice(limits)
    if kind == "device":
        return draw.choice(["auto", "cpu", "mps", "cuda", "cuda:0", "cuda:17"])
    if kind == "path":
        text = "".join(draw.choice(string.printable[:95] + "äß漢\u00a0") for _ in range(draw.randint(1, 12)))
        return text.replace("${", "$(")
    if kind == "goal":
        return draw.choice(["accuracy=0.5", "accuracy = 1", "loss=0.25", "loss=1e-3"])
    if kind == "betas":
        return [draw.choice([0.0, 0.9, 0, draw.random()]) for _ in range(2)]
    if kind == "int":
        high = min(limits[1], SMALL.get(key, limits[1]))
        return draw.choice([limits[0], high, draw.randint(limits[0], high), draw.randint(limits[0], min(high, 99))])
    low, high = limits
    return draw.choice([low, high, low + (high - low) * draw.random(), 10 ** draw.uniform(-9, 0), draw.randint(0, 9)])


def config(draw: random.Random) -> dict[str, dict[str, Any]]:
    """Draw what a file says: some keys of some sections, which together are lawful."""
    while True:
        name = draw.choice(list(TASKS))
        parts = {"task": TASKS[name], "model": MODEL, "train": TRAIN}
        said: dict[str, dict[str, Any]] = {}
        for part, ranges in parts.items():
            keys = draw.sample(list(ranges), min(len(ranges), draw.choice([0, 1, 2, 3, 9, 99])))
            if part == "task":
                keys = list(dict.fromkeys(["name"] * (name != "repeat") + ["path"] * (name == "text") + keys))
            said[part] = {key: name if key == "name" else value(draw, key, *ranges[key]) for key in keys}
        said = {part: said[part] for part in draw.sample(list(said), draw.choice([1, 2, 3, 3])) or said}
        if draw.random() < 0.6 and {"n_heads", "d_model"} & set(said.get("model", {})):
            said["model"]["d_model"] = 24 * draw.randint(1, 4)
            said["model"]["n_heads"] = draw.choice([1, 2, 3, 4, 6, 12])
        try:
            resolved(said)
        except RefusedError:
            continue
        return said


def spelled(draw: random.Random, item: Any) -> str:
    """Write a value in one of the ways in which YAML can say it."""
    if isinstance(item, list):
        return "[" + ", ".join(spelled(draw, part) for part in item) + "]"
    if item is None:
        return draw.choice(["null", "~", "Null", "NULL"])
    if isinstance(item, bool):
        return draw.choice([str(item), str(item).lower(), str(item).upper()])
    if isinstance(item, int):
        return draw.choice(["", "", "+" if item >= 0 else ""]) + str(item)
    if isinstance(item, float):
        ways = [repr(item), f"{item:.17e}", f"{item:.17E}", repr(item).replace("e-0", "e-")]
        return draw.choice([way for way in ways if float(way) == item])
    if (
        item.isascii()
        and item.replace(":", "").isalnum()
        and item[0].isalpha()
        and item[-1] != ":"
        and word(item) == item
    ):
        return draw.choice([item, f'"{item}"', f"'{item}'"])
    return draw.choice([json.dumps(item), json.dumps(item, ensure_ascii=False), "'" + item.replace("'", "''") + "'"])


def written(draw: random.Random, said: dict[str, dict[str, Any]]) -> bytes:
    """Write a config down: in blocks, in braces or as JSON, with comments, odd line ends and a byte order mark."""
    if draw.random() < 0.15:
        return json.dumps(said, indent=draw.choice([None, 2])).encode()
    lines = draw.choice([[], ["# a run"], ["---"], [""]])
    for part, section in said.items():
        pairs = [f"{key}: {spelled(draw, item)}" for key, item in section.items()]
        if not pairs:
            lines.append(f"{part}:" + draw.choice(["", " {}", " null", "   # nothing"]))
        elif draw.random() < 0.3:
            lines.append(f"{part}: {{{', '.join(pairs)}}}")
        else:
            indent = " " * draw.choice([1, 2, 2, 4])
            lines += [f"{part}:", *(indent + pair + draw.choice(["", "", "  # why"]) for pair in pairs)]
        lines += draw.choice([[], [""], ["# ---"]])
    text = draw.choice(["\n", "\n", "\n", "\r\n"]).join([*lines, ""])
    return draw.choice([b"", b"", b"", b"\xef\xbb\xbf"]) + text.encode()


TOKENS = ["&a ", "*a", "!!int ", "!!python/name:os.system ", "!", "\t", ": ", ":", "- ", "[", "]", "{", "}", ",", ">",
          "|", "? ", "---\n", "...\n", "'", '"', "%", "%YAML 1.1\n", "<<: ", "9" * 24, ".nan", ".inf", "${x}", "\r",
          "\x85", "\u2028", "\ufeff", "#", " #", "\\", "\x00", "\x1b", "null", "~", "=", "@", "`", "1e999", "-", "+",
          "0", "0x", "0o7", "_", "e", "E5", "\n", "\n  ", "\n\n", "  ", "train:", "model: ", "name: ", "text", "yes",
          "no", "on", "true", "12:30", "2024-01-01", "漢", "\U0001f600", "\xff\xfe", "1e-3", "x: 1"]  # fmt: skip
FOREIGN = ["n_embd", "hidden_size", "max_iters", "lr", "seed", "name", "x", "''", "[a]", "<<", "_target_", "on"]


def broken(draw: random.Random, data: bytes) -> bytes:
    """Damage a file one to three times: characters, lines, keys, values."""
    text = data.decode("utf-8", "surrogateescape")
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        at, lines = draw.randint(0, len(text)), text.split("\n")
        line = draw.randrange(len(lines))
        before, colon, after = lines[line].partition(":")
        way = draw.randrange(10)
        if way == 0:
            text = text[:at] + text[at + draw.randint(1, 9) :]
        elif way <= 2:
            text = text[:at] + draw.choice(TOKENS) + text[at:]
        elif way == 3:
            text = text[:at] + chr(draw.choice([draw.randrange(32, 127), draw.randrange(256)])) + text[at + 1 :]
        else:
            other = draw.randrange(len(lines))
            if way == 4:
                lines[line], lines[other] = lines[other], lines[line]
            elif way == 5:
                lines.insert(other, lines[line])
            elif way == 6:
                del lines[line]
            elif way == 7 and colon:
                indent = before[: len(before) - len(before.lstrip())]
                lines[line] = indent + draw.choice(FOREIGN) + colon + after
            elif way == 8 and colon:
                lines[line] = f"{before}: {draw.choice(TOKENS)}"
            elif colon:
                lines[line] = f"{before}: {draw.choice(TOKENS)}{after.lstrip()}"
            text = "\n".join(lines)
    return text.encode("utf-8", "surrogateescape")
