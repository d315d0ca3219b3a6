"""What an export is made from: a run's plain data, and its model for the formats that ask for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mhsa_cli.errors import RunError

if TYPE_CHECKING:
    from mhsa_cli.config.schema import Config
    from mhsa_cli.core.model.transformer import TransformerLM
    from mhsa_cli.core.tasks import Task

Files = Mapping[str, bytes | Iterable[bytes]]  # whole, or in pieces


@dataclass(frozen=True, slots=True)
class Source:
    """One run. `heads` is None where heads.json is not written yet; `trained` loads the model in eval mode, its task,
    its config and the step that it was saved at.

    `checkpoint` are the files of the newest one where the model may not be built: it is somebody's own code.
    `info` is run.json, `metrics` and `head_scores` are the lines of metrics.jsonl and heads.jsonl, NaN restored, which
    may be gone through again.
    """

    name: str
    config: Config
    info: Mapping[str, Any]
    heads: Mapping[str, Any] | None
    metrics: Iterable[Mapping[str, Any]]
    head_scores: Iterable[Mapping[str, Any]]
    trained: Callable[[], tuple[TransformerLM, Task, Config, int]]
    checkpoint: Mapping[str, bytes] | None = None


def heads_of(content: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    """List what a document holds of each head, however much that is. Raises: RunError if it is no list of heads."""
    heads = content.get("heads")
    if not isinstance(heads, list) or not all(
        isinstance(head, dict) and type(head.get("layer")) is int and type(head.get("head")) is int for head in heads
    ):
        raise RunError(f"{where} is damaged: wanted a list of heads, each with its layer and head")
    return heads


def flat(value: Any, name: str = "") -> dict[str, Any]:
    """Flatten nested data to dotted names: {"a": {"b": 1}, "c": [2]} to {"a.b": 1, "c.0": 2}."""
    if isinstance(value, Mapping):
        pairs = [(str(key), item) for key, item in value.items()]
    elif isinstance(value, list | tuple):
        pairs = [(str(place), item) for place, item in enumerate(value)]
    else:
        return {name: value}
    found: dict[str, Any] = {}
    for key, item in pairs:
        found |= flat(item, f"{name}.{key}" if name else key)
    return found
