"""What crosses the walls between rooms: plain frozen data, no torch, no rich."""

from mhsa_cli.records.heads import (
    Ablation,
    Circuits,
    Composition,
    HeadCircuits,
    HeadHistory,
    HeadMaps,
    HeadReport,
    HeadScore,
    HeadSnapshot,
    HeadSummary,
    Matching,
    SnapshotRecord,
    TargetScore,
    Verdict,
)
from mhsa_cli.records.trace import Trace, TraceCache, TraceCheck, TracePart, TraceStep
from mhsa_cli.records.training import (
    EpochRecord,
    EvalRecord,
    FailRecord,
    SaveRecord,
    Series,
    StepRecord,
    TaskInfo,
)

__all__ = [
    "Ablation",
    "Circuits",
    "Composition",
    "EpochRecord",
    "EvalRecord",
    "FailRecord",
    "HeadCircuits",
    "HeadHistory",
    "HeadMaps",
    "HeadReport",
    "HeadScore",
    "HeadSnapshot",
    "HeadSummary",
    "Matching",
    "Record",
    "SaveRecord",
    "Series",
    "SnapshotRecord",
    "StepRecord",
    "TargetScore",
    "TaskInfo",
    "Trace",
    "TraceCache",
    "TraceCheck",
    "TracePart",
    "TraceStep",
    "Verdict",
]

Record = StepRecord | EvalRecord | EpochRecord | SaveRecord | SnapshotRecord
