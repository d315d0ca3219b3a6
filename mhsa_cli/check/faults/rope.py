"""Faults of rotary positions. Source of the right form: Su et al. 2021."""

from __future__ import annotations

from mhsa_cli.check.faults.base import Fault

_ROPE = ("interleaved", "half")

ROPE: dict[str, Fault] = {
    "rope_on_value": Fault(
        "RoPE on the values",
        "the values are rotated as well: only queries and keys carry positions",
        "rotate q and k, and leave v as it is",
        "rope_values",
        tuple({"rope": f"{layout}:on_value"} for layout in _ROPE),
    ),
    "rope_ignored": Fault(
        "RoPE ignored",
        "positions have no effect: queries and keys are not rotated, or every token of a head by one angle, because "
        "the rotation runs over another axis",
        "rotate q and k of shape (B, H, T, d_head) along T by their positions, 0, 1, 2, ... where none are given; "
        "positions of shape (B, T) need an axis for the heads",
        "positions",
        ({"rope": "none:ignored"},),
    ),
    "rope_exponent": Fault(
        "RoPE rates off",
        "the rates of the rotation are off: pair i should turn by theta ** (-2i / d_head), from i = 0",
        "rates = theta ** (-torch.arange(0, d_head, 2) / d_head)",
        "rates",
        tuple(
            {"rope": f"{layout}:exponent_{kind}"}
            for layout in _ROPE
            for kind in ("next", "half", "single", "d_model", "before")
        ),
    ),  # fmt: skip
    "rope_only_query": Fault(
        "RoPE on the queries only",
        "only the queries are rotated: scores then depend on the absolute position of the query, not on the distance",
        "rotate q and k alike",
        "rope",
        tuple({"rope": f"{layout}:only_query"} for layout in _ROPE),
    ),
    "rope_only_key": Fault(
        "RoPE on the keys only",
        "only the keys are rotated: scores then depend on the absolute position of the key, not on the distance",
        "rotate q and k alike",
        "rope",
        tuple({"rope": f"{layout}:only_key"} for layout in _ROPE),
    ),
    "rope_key_shifted": Fault(
        "RoPE of the keys one position off",
        "queries and keys are rotated by positions that are one apart: a token is not at distance 0 from itself",
        "rotate q and k by the same rows of cosines and sines",
        "rope_keys",
        tuple({"rope": f"{layout}:key_{how}"} for layout in _ROPE for how in ("after", "before", "rolled")),
    ),
    "rope_pairs_differ": Fault(
        "RoPE in other pairs for queries and keys",
        "queries and keys are rotated in other pairs, neighbours in one and halves in the other: scores do not depend "
        "on the distance",
        "rotate q and k by the same function",
        "rope_keys",
        tuple({"rope": f"{layout}:pairs_differ"} for layout in _ROPE),
    ),
    "rope_angles_mixed": Fault(
        "RoPE angles laid out for other pairs",
        "the angles are laid out for other pairs than are turned: two features that turn together get two angles",
        "with halves cat((angle, angle), -1), with neighbours repeat_interleave(angle, 2, -1)",
        "angles",
        tuple({"rope": f"{layout}:angles_mixed"} for layout in _ROPE),
    ),
    "rope_backwards": Fault(
        "RoPE backwards",
        "the rotation runs backwards: the sign of the sine is turned",
        "(a, b) becomes (a cos - b sin, a sin + b cos)",
        "sense",
        tuple({"rope": f"{layout}:backwards"} for layout in _ROPE),
    ),
}
