"""Keys of format 1 under the names that they have today."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

TRIAL = {"steps_to_target": "steps_to_goal"}
PLAN = {"target": "goal"}
HEAD = {"source_weight": "answer_weight", "source_chance": "answer_uniform", "chance": "uniform"}
SCORE = {"chance": "uniform"}


def rename_run(content: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keys of a run.json."""
    return _inside(content, "sweep", TRIAL)


def rename_plan(content: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keys of a sweep.json's plan."""
    return {PLAN.get(key, key): value for key, value in content.items()}


def rename_heads(content: Mapping[str, Any]) -> dict[str, Any]:
    """Rename the keys of a heads.json; what is not of the kind it should be stays for whoever checks it."""
    heads = content.get("heads")
    return {**content, "heads": [_head(head) for head in heads]} if isinstance(heads, list) else dict(content)


def _head(head: Any) -> Any:
    if not isinstance(head, Mapping):
        return head
    scores = head.get("scores")
    new = _renamed(head, HEAD)
    if isinstance(scores, Mapping):
        new["scores"] = {name: _renamed(score, SCORE) for name, score in scores.items()}
    return new


def _inside(content: Mapping[str, Any], key: str, names: Mapping[str, str]) -> dict[str, Any]:
    return {**content, key: _renamed(content[key], names)} if key in content else dict(content)


def _renamed(content: Any, names: Mapping[str, str]) -> Any:
    return {names.get(key, key): value for key, value in content.items()} if isinstance(content, Mapping) else content
