"""The table of faults, in the order in which it is printed. A new kind is a file in rows/ and a line here."""

from __future__ import annotations

from tests.faults.row import Row
from tests.faults.rows import (
    attention,
    bad_configs,
    control,
    damage,
    edge_models,
    failpoints,
    good_configs,
    kill,
    newer,
    limits,
    nonfinite,
    observers,
    owners,
    parts,
    payloads,
    renders,
    resume,
    signals,
    small_disk,
    streams,
    sweep,
    users,
)

ROWS: dict[str, Row] = {
    "resume": resume.ROW,
    "kill": kill.ROW,
    "failpoints": failpoints.ROW,
    "damage": damage.ROW,
    "newer": newer.ROW,
    "small-disk": small_disk.ROW,
    "parts": parts.ROW,
    "limits": limits.ROW,
    "owners": owners.ROW,
    "users": users.ROW,
    "signals": signals.ROW,
    "streams": streams.ROW,
    "sweep": sweep.ROW,
    "bad-configs": bad_configs.ROW,
    "good-configs": good_configs.ROW,
    "payloads": payloads.ROW,
    "nonfinite": nonfinite.ROW,
    "observers": observers.ROW,
    "control": control.ROW,
    "attention": attention.ROW,
    "edge-models": edge_models.ROW,
    "renders": renders.ROW,
}
