"""Head maps as the plain data of heads.json, and back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from mhsa_cli.errors import RunError
from mhsa_cli.records import HeadMaps, HeadSummary


def maps_to_dict(maps: HeadMaps) -> dict[str, Any]:
    """Turn maps into JSON data: step, task, tokens, weights[layer][head][query][key], heads."""
    return {
        "step": maps.step,
        "task": maps.task,
        "note": maps.note,
        "tokens": list(maps.tokens),
        "weights": maps.weights,
        "heads": [asdict(head) for head in maps.heads],
    }


def maps_from_dict(content: Mapping[str, Any]) -> HeadMaps:
    """Read maps back. Raises: RunError if a part is missing or of another shape."""
    try:
        heads = [
            HeadSummary(h["layer"], h["head"], h["entropy"], h.get("source_weight"), h.get("source_chance"))
            for h in content["heads"]
        ]
        weights, tokens = content["weights"], content["tokens"]
        T = len(tokens)
        shapes = {(len(head), *{len(row) for row in head}) for layer in weights for head in layer}
        if shapes - {(T, T)} or sum(len(layer) for layer in weights) != len(heads):
            raise ValueError("maps, tokens and heads do not fit together")
        return HeadMaps(content["step"], content["task"], tokens, weights, heads, content.get("note", ""))
    except (KeyError, TypeError, ValueError) as error:
        raise RunError(f"heads.json is damaged: {error}", "mhsa inspect-heads RUN --tokens computes it anew") from error
