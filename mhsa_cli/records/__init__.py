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
from mhsa_cli.records.sweep import Difference, GroupStats, PairStats, Quartiles, SweepReport, TrialResult
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
    "Difference",
    "EpochRecord",
    "EvalRecord",
    "FailRecord",
    "GroupStats",
    "HeadCircuits",
    "HeadHistory",
    "HeadMaps",
    "HeadReport",
    "HeadScore",
    "HeadSnapshot",
    "HeadSummary",
    "Matching",
    "PairStats",
    "Quartiles",
    "Record",
    "SaveRecord",
    "Series",
    "SnapshotRecord",
    "StepRecord",
    "SweepReport",
    "TargetScore",
    "TaskInfo",
    "Trace",
    "TraceCache",
    "TraceCheck",
    "TracePart",
    "TraceStep",
    "TrialResult",
    "Verdict",
]

Record = StepRecord | EvalRecord | EpochRecord | SaveRecord | SnapshotRecord
