"""Format 1 brought to format 2: keys, the ids of labels, and what its files held as text alone."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from mhsa_cli.records.labels import Label

PLAN = {"target": "goal"}
TRIAL = {"steps_to_target": "steps_to_goal"}
HEAD = {"source_weight": "answer_weight", "source_chance": "answer_uniform", "chance": "uniform"}
SCORE = {"chance": "uniform"}
LABEL_PARTS = {
    "spread": "near-uniform",
    "sharp": "focused",
    "undecided": "unclear",
    "named": "shown",
    "looks": "pattern",
    "idle": "no-effect",
    "stand-ins": "redundant",
}
# Labels had words before they had ids; # stands for the distance of an offset.
_TARGETS = {
    "previous": "previous token",
    "self": "itself",
    "first": "first token",
    "offset:#": "offset #",
    "duplicate": "duplicate token",
    "induction": "induction",
}
_ROLES = {
    "shown": "{}",
    "pattern": "looks like {}",
    "no-effect": "looks like {}, but idle",
    "redundant": "looks like {}, with stand-ins",
}
_IDS_BY_WORDS = {
    "spread": "near-uniform",
    "sharp, unnamed": "focused",
    "undecided": "unclear",
    **{words.format(text): f"{target}:{role}" for target, text in _TARGETS.items() for role, words in _ROLES.items()},
}
_DISTANCE = re.compile(r"[0-9]{1,9}")


def rename_run(content: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a run.json to format 2."""
    trial = content.get("sweep")
    return {**content, "sweep": _labelled(_renamed(trial, TRIAL))} if isinstance(trial, Mapping) else dict(content)


def _labelled(trial: dict[str, Any]) -> dict[str, Any]:
    ids, words = trial.get("label_ids"), trial.get("labels")
    if isinstance(ids, list):
        return {**trial, "label_ids": [_label_id(text) for text in ids]}
    return {**trial, "label_ids": [_id_of_words(text) for text in words]} if isinstance(words, list) else trial


def rename_plan(content: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a sweep.json to format 2."""
    return {PLAN.get(key, key): value for key, value in content.items()}


def rename_heads(content: Mapping[str, Any]) -> dict[str, Any]:
    """Bring a heads.json to format 2. Values of the wrong kind stay as they are: the reader reports them."""
    heads = content.get("heads")
    return {**content, "heads": [_head(head) for head in heads]} if isinstance(heads, list) else dict(content)


def _head(head: Any) -> Any:
    if not isinstance(head, Mapping):
        return head
    new = _renamed(head, HEAD)
    if isinstance(scores := new.get("scores"), Mapping):
        new["scores"] = {name: _renamed(score, SCORE) for name, score in scores.items()}
    if "label" in new:
        new["label_id"] = _label_id(new["label_id"]) if "label_id" in new else _id_of_words(new["label"])
        label = Label.from_id(new["label_id"])
        new["label"] = new["label"] if label is None else label.text
    if isinstance(text := new.get("evidence"), str):
        new.setdefault("evidence_parts", text.split("; "))
    return new


def _renamed(content: Any, names: Mapping[str, str]) -> Any:
    return {names.get(key, key): value for key, value in content.items()} if isinstance(content, Mapping) else content


def _label_id(text: Any) -> Any:
    return ":".join(LABEL_PARTS.get(part, part) for part in text.split(":")) if isinstance(text, str) else text


def _id_of_words(words: Any) -> Any:
    """Find the id of a label's words; unknown words stay, and no label has them as its id."""
    if not isinstance(words, str):
        return words
    distance = _DISTANCE.search(words)
    pattern = words if distance is None else words.replace(distance[0], "#", 1)
    label = _IDS_BY_WORDS.get(pattern)
    return words if label is None else label.replace("#", distance[0] if distance else "#")
