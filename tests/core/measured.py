"""Measured heads written by hand: for tests of what is concluded from figures. No model is needed."""

from __future__ import annotations

from mhsa_cli.records.heads import HeadScore, TargetScore
from mhsa_cli.records.labels import TARGETS, Label, Role


def on(
    lift: float,
    uniform: float = 0.2,
    null: float | None = 0.05,
    distance: int | None = None,
    random_null: float | None = None,
    **more: object,
) -> TargetScore:
    """A score of a target by its lift."""
    mass = uniform + lift * (1 - uniform)
    return TargetScore(mass, uniform, lift, distance, null, random_null=random_null, **more)  # type: ignore[arg-type]


def head(layer: int = 1, number: int = 3, **settings: object) -> HeadScore:
    """A head without a pattern that costs half a nat when uniform; scores by target, effects as `uniform=(0.5, 0.02)`.

    An effect of None is not measured.
    """
    scores = {name: settings.pop(name) for name in list(settings) if name in TARGETS}
    figures: dict[str, object] = {"entropy": 0.7, "uniformity": 0.6, "confidence": 0.4, "positionality": 0.95}
    effects: dict[str, object] = {"uniform": (0.5, 0.02), "zero": (0.0, 0.02), "mean": (0.0, 0.02), "shapley": None}
    for way in effects:
        effect = settings.pop(way, effects[way])
        name = "shapley" if way == "shapley" else f"{way}_delta"
        figures[f"{name}_nats"], figures[f"{name}_se"] = effect or (None, None)  # type: ignore[misc]
    return HeadScore(layer, number, {"self": on(0.1), **scores}, **figures | settings)  # type: ignore[arg-type]


def named(kind: str, role: Role = Role.SHOWN, layer: int = 0, number: int = 0, **settings: object) -> HeadScore:
    """A labelled head with that role."""
    distance = settings.pop("distance", None)
    label = Label(kind, role, distance)  # type: ignore[arg-type]
    return head(layer, number, label=label, role=role, **{kind: on(0.9), **settings})
