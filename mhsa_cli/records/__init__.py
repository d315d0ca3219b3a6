"""What crosses the walls between rooms: plain frozen data, no torch, no rich."""

from mhsa_cli.records.bench import (
    AttentionSpeed,
    BenchRecord,
    ImportSpeed,
    Machine,
    NotMeasured,
    Spread,
    StackSpeed,
    StepSpeed,
)
from mhsa_cli.records.claims import Claim, Status
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
from mhsa_cli.records.labels import Label, Role
from mhsa_cli.records.sweep import Cause, Difference, GroupStats, PairStats, Quartiles, SweepReport, TrialResult
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
    "Ablation", "AttentionSpeed", "BenchRecord", "Cause", "Circuits", "Claim", "Composition", "Difference",
    "EpochRecord", "EvalRecord", "FailRecord", "GroupStats", "HeadCircuits", "HeadHistory", "HeadMaps", "HeadReport",
    "HeadScore", "HeadSnapshot", "HeadSummary", "ImportSpeed", "Label", "Machine", "Matching", "NotMeasured",
    "PairStats", "Quartiles", "Record", "Role", "SaveRecord", "Series", "SnapshotRecord", "Spread", "StackSpeed",
    "Status", "StepRecord", "StepSpeed", "SweepReport", "TargetScore", "TaskInfo", "Trace", "TraceCache",
    "TraceCheck", "TracePart", "TraceStep", "TrialResult", "Verdict",
]  # fmt: skip

Record = StepRecord | EvalRecord | EpochRecord | SaveRecord | SnapshotRecord
