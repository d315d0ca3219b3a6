"""Documents of `mhsa report`, made by hand: every size differs, and every text is one to look for."""

from __future__ import annotations

import math
from base64 import b64encode
from itertools import product
from typing import Any

TOKENS = ["7", "3", "9", "7", "3"]
STEPS = [0, 4, 10, 30, 60, 100]
FRAMES = [0, 10, 60, 100]
LAYERS, HEADS = 2, 3
CLEAN = 0.25


def weight(layer: int, head: int, query: int, key: int, part: float) -> float:
    """A head attends (head + layer) tokens back, more in the course of training: part is 0 at first, 1 at the end."""
    if key > query:
        return 0.0
    target = max(0, query - head - layer)
    rest = (1 - part) / (query + 1)
    return rest + part * (key == target)


def maps(part: float, size: int = len(TOKENS)) -> list[list[list[list[float]]]]:
    cells = range(size)
    return [
        [[[round(weight(layer, head, q, k, part), 3) for k in cells] for q in cells] for head in range(HEADS)]
        for layer in range(LAYERS)
    ]


def packed(part: float) -> str:
    flat = [round(100 * w) for layer in maps(part) for head in layer for row in head for w in row]
    return b64encode(bytes(flat)).decode()


def loss_at(step: int) -> float:
    return round(4 * math.exp(-step / 20) + CLEAN, 4)


def coalition(bits: int) -> float:
    """The loss when the heads of these bits keep their patterns: each head that does not costs another amount."""
    off = [h for h in range(LAYERS * HEADS) if not bits >> h & 1]
    return round(CLEAN + sum(2.0**-h for h in off) + 0.5 * (len(off) > 1), 6)


def head(layer: int, number: int) -> dict[str, Any]:
    index, name = layer * HEADS + number, f"L{layer}.H{number}"
    lifts = [round((index + 1) / 10 * step / 100, 3) for step in STEPS]
    all_lifts = {"offset": lifts, "answer": [0.5] * len(STEPS)}
    return {
        "name": name, "layer": layer, "head": number, "label": f"offset {index}", "label_id": f"offset:{index}:shown",
        "role": "shown", "sentence": f"sentence of {name}", "why": f"the long story of {name}",
        "target": f"offset {index}", "followed": f"offset {index}", "lifts": lifts, "all_lifts": all_lifts,
        "entropy": 0.3, "mass": 0.8, "uniform": 0.2, "lift": lifts[-1], "share": 0.1, "share_se": 0.01,
        "delta": 2.0**-index, "delta_se": 0.02, "onset": [10, 30] if number else None,
        "scores": [[f"offset {index}", 0.8, 0.2, 0.75, 0.02, 0.1], ["answer", 0.1, 0.2, -0.1, None, None]],
    }  # fmt: skip


def run(name: str = "run-a", **changes: Any) -> dict[str, Any]:
    heads = [head(layer, number) for layer, number in product(range(LAYERS), range(HEADS))]
    content = {
        "name": name, "task": "copy", "origin": None, "step": STEPS[-1], "pool": 1,
        "facts": [["parameters", "8,384"], ["accuracy", "99%"]], "settings": [["train.lr", "0.005"]],
        "sentences": ["Solved by attention.", "These labels account for all of it."],
        "tokens": TOKENS, "parts": None, "causal": True, "heads": heads, "shape": [LAYERS, HEADS], "weights": maps(1.0),
        "curve": {name: [[s, loss_at(s)] for s in range(0, 101, by)] for name, by in (("train", 5), ("eval", 50))},
        "levels": [["chance", 3.5]], "steps": STEPS, "in_context": [None, -0.1, -0.2, -0.3, -0.4, -0.5],
        "frames": [{"step": s, "pool": 1, "maps": packed(s / 100)} for s in FRAMES],
        "maps_shape": [[len(TOKENS), len(TOKENS)]] * LAYERS,
        "ablation": {
            "clean": CLEAN, "coalitions": [coalition(bits) for bits in range(2 ** len(heads))],
            "singles": [[one["delta"], one["delta_se"]] for one in heads], "rows": "64 rows of copy, 5 tokens each",
        },
        "arrows": [
            {"from": ["L0.H1"], "to": ["L1.H0", "L1.H2"], "part": "k", "delta": 1.25, "se": 0.1, "null": 0.4}
            | {"status": "shown"},
            {"from": ["L0.H2"], "to": None, "part": None, "delta": 0.02, "se": 0.1, "null": 0.3, "status": "not shown"},
        ],
        "checks": None,
    }  # fmt: skip
    return content | changes


def runs(*shown: dict[str, Any]) -> dict[str, Any]:
    return {"format": 1, "kind": "runs", "runs": list(shown) or [run()]}


def setting(name: str, k: int, n: int = 4) -> dict[str, Any]:
    median = [loss_at(step + 5 * k) for step in STEPS]
    low, high = ([factor * loss for loss in median] for factor in (0.8, 1.2))
    return {
        "name": name, "trials": n, "finished": n, "solved": [k, n], "median_loss": median[-1], "accuracy": k / n,
        "curve": {"steps": STEPS, "median": median, "low": low, "high": high},
        "onsets": [["previous token", 40 + k, 30, 60 if k else None, k, n]],
        "labels": [["previous token", k, n, 0.1, 0.9]], "circuits": [["induction", k, n, 0.1, 0.9]],
    }  # fmt: skip


def sweep(**changes: Any) -> dict[str, Any]:
    chosen = [
        (0, "lr=0.001", 1, "median", ""),
        (1, "lr=0.01", 2, "worst", ""),
        (None, "lr=0.01", 3, "failed", "not finite"),
    ]
    shown = [
        {"run": at, "setting": name, "seed": seed, "why": why, "error": error}
        | {"status": "failed" if error else "finished"}
        for at, name, seed, why, error in chosen
    ]
    content = {
        "name": "rates", "facts": [["trials", "8"]], "axes": ["train.lr"], "claims": ["lr=0.01 is faster."],
        "settings": [setting("lr=0.001", 1), setting("lr=0.01", 3)], "shown": shown,
    }  # fmt: skip
    return {"format": 1, "kind": "sweep", "sweep": content | changes, "runs": [run("trial-1"), run("trial-2")]}
