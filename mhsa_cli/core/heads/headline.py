"""The headline of a report: by which heads a task is solved, and whether one of several suffices. Plain Python."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from mhsa_cli.core.heads.labels import attends_answer
from mhsa_cli.records.claims import Claim, Status
from mhsa_cli.records.heads import HeadScore, OneWriter, Path, PathEffect, Together
from mhsa_cli.records.labels import Role
from mhsa_cli.text import Head

ACCOUNTED = 0.8  # the least part of what attention is worth that the labels of a headline keep
SUFFICES = 0.05  # one head of a group suffices if the rest of the group costs less than this part of the joint effect
NEEDED = 0.5  # of the joint effect: if all named heads uniform cost less, other heads do their work too
MOST_PATHS = 12

Suffice = Callable[[Sequence[Head]], float]  # the loss added by making these heads uniform, over the joint effect
Kept = Callable[[Sequence[Head]], float | None]  # the part of the joint effect that ideal heads keep, others uniform


def named(heads: Sequence[HeadScore]) -> list[HeadScore]:
    """Return the heads whose label names what they do to the loss."""
    labels = [(head, head.label) for head in heads if head.label is not None]
    return [head for head, label in labels if label.role in (Role.SHOWN, Role.REDUNDANT) and label.extent is None]


def paths_to_test(heads: Sequence[HeadScore]) -> list[Path]:
    """Return the paths from previous-token heads to the keys of the induction heads of each later layer.

    The heads of a layer are patched together, for one alone may have backup heads.
    """
    previous = [h.address for h in named(heads) if h.label is not None and h.label.kind == "previous"]
    readers = [h.address for h in named(heads) if h.label is not None and h.label.kind == "induction"]
    paths = []
    for layer in sorted({reader.layer for reader in readers}):
        writers: tuple[OneWriter, ...] = tuple(head for head in previous if head.layer < layer)
        together = tuple(reader for reader in readers if reader.layer == layer)
        if writers:
            writer = writers[0] if len(writers) == 1 else Together(writers)
            paths.append(Path(writer, together[0] if len(together) == 1 else Together(together), "k"))
    return paths[:MOST_PATHS]


def headline(
    heads: Sequence[HeadScore],
    accounted: Kept,
    accuracy: float,
    goal: float,
    paths: Sequence[PathEffect],
    rest: Suffice,
) -> Claim | None:
    """State which heads do the work, if their labels alone account for it; None if they do not.

    The task is solved where the accuracy reaches its goal. An induction circuit is named where patching the path from a
    previous-token head to the keys of an induction head had an effect above its null, without the heads outside of it
    if it accounts for the work.
    """
    confirmed = [path for path in paths if path.above_null]
    circuit = {str(head) for path in confirmed for head in (*path.path.writers, *path.path.readers)}
    for only in (circuit, set()) if circuit else (set(),):
        groups = _groups(heads, only, rest)
        kept = accounted([head for group in groups.values() for head in group]) if groups else None
        if kept is not None and kept >= ACCOUNTED:
            break
    else:
        return None
    on_answer = {head.address for head in heads if attends_answer(head) and head.label and head.label.kind != "answer"}
    evidence = {
        "accuracy": accuracy,
        "needed": rest([head for group in groups.values() for head in group]) >= NEEDED,
        "circuit": "induction" if only else "",
        "groups": {label: [str(head) for head in group] for label, group in groups.items()},
        "answers": [label for label, group in groups.items() if all(head in on_answer for head in group)],
        "suffice": {label: suffice(group, rest) for label, group in groups.items() if len(group) > 1},
    }
    return Claim("model", "solved by" if accuracy >= goal else "works by", kept, evidence=evidence)


def _groups(heads: Sequence[HeadScore], only: Collection[str], rest: Suffice) -> dict[str, list[Head]]:
    """Group heads by their label, `only` these if any, and keep the groups whose work would be missed."""
    groups: dict[str, list[Head]] = {}
    for head in named(heads):
        if head.label is not None and (not only or head.name in only):
            groups.setdefault(head.label.plain.id, []).append(head.address)
    return {label: group for label, group in groups.items() if rest(group) >= SUFFICES}


def suffice(group: Sequence[Head], rest: Suffice) -> str:
    """Say whether "any", "some" or "none" of a group suffices alone, the others of the group made uniform."""
    enough = [rest([other for other in group if other != head]) < SUFFICES for head in group]
    return "any" if all(enough) else "some" if any(enough) else "none"


def path_claim(path: PathEffect) -> Claim:
    """State what patching a path costs, against random writers."""
    status = Status.SHOWN if path.above_null else Status.NOT_SHOWN
    names = {"path": str(path.path), "pairs": path.n_pairs}
    return Claim("model", "path", path.delta_nats, path.delta_se, path.null, status, names)
