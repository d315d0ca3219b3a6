"""Export of a run to formats of other programs: one function per format, from a run's data to files by name.

A format of a single file names it "". Only the formats that need the model import torch.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mhsa_cli.errors import RunError

if TYPE_CHECKING:
    from mhsa_cli.config.schema import Config
    from mhsa_cli.core.model.transformer import TransformerLM
    from mhsa_cli.core.tasks import Task

Files = Mapping[str, bytes | Iterable[bytes]]  # a file's content, whole or in chunks

# By format: its module, imported on demand, and function.
EXPORTS = {
    "npz": ("npz", "to_npz"),
    "csv": ("plain", "to_csv"),
    "json": ("plain", "to_json"),
    "transformer-lens": ("transformer_lens", "to_transformer_lens"),
    "tensorboard": ("tensorboard", "to_tensorboard"),
}
SINGLE = {"npz": ".npz", "json": ".json"}  # the formats of a single file and its extension; others are a folder


@dataclass(frozen=True, slots=True)
class Source:
    """The data of one run. `trained` loads the model in eval mode, its task, its config and its step.

    `info` is run.json; `heads` is heads.json, None if not written yet; `metrics` and `head_scores` are the lines of
    metrics.jsonl and heads.jsonl with NaN restored, iterable repeatedly. `checkpoint` holds the newest one's files
    where the model may not be built, since that would run the user's code.
    """

    name: str
    config: Config
    info: Mapping[str, Any]
    heads: Mapping[str, Any] | None
    metrics: Iterable[Mapping[str, Any]]
    head_scores: Iterable[Mapping[str, Any]]
    trained: Callable[[], tuple[TransformerLM, Task, Config, int]]
    checkpoint: Mapping[str, bytes] | None = None


def exported(run: Source, to: str) -> Files:
    """Export a run in one of the formats of EXPORTS."""
    module, function = EXPORTS[to]
    files: Files = getattr(importlib.import_module(f"{__name__}.{module}"), function)(run)
    return files


def heads_of(content: Mapping[str, Any], where: str) -> list[Mapping[str, Any]]:
    """Return a document's list of heads. Raises: RunError if it has none, or a head without layer and head."""
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
