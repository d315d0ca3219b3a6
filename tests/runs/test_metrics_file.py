"""metrics.jsonl: strict JSON, whole lines after any failure, records that round-trip."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mhsa_cli.records.training import EpochRecord, EvalRecord, StepRecord
from mhsa_cli.runs.disk import refused_with
from mhsa_cli.runs.json_file import dump_json, restore_nonfinite
from mhsa_cli.runs.metrics import MetricRecord, MetricsFile, Records, record_from_dict, record_to_dict, records_of
from tests.refusals import fact, refusal

RECORDS = [
    StepRecord(1, 4.1, 0.015625, 5e-3),
    StepRecord(2, math.inf, 0.0, 5e-3),
    EvalRecord(2, -math.inf, 0.25),
    EpochRecord(1, 2, 4.0, 3.5, 0.25),
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = MetricsFile(tmp_path / "metrics.jsonl")
    file.append([record_to_dict(record) for record in RECORDS])
    file.close()
    return file.path


def lines_of(path: Path) -> list[dict]:
    return list(MetricsFile(path).records())


def read(path: Path) -> list[MetricRecord]:
    return list(records_of(MetricsFile(path).records()))


def strict(line: str) -> dict:
    return json.loads(line, parse_constant=pytest.fail)


def test_records_round_trip(path: Path) -> None:
    assert read(path) == RECORDS
    lines = path.read_text().split("\n")
    assert lines.pop() == ""
    assert strict(lines[0]) == {"kind": "step", "step": 1, "loss": 4.1, "accuracy": 0.015625, "lr": 0.005}
    assert strict(lines[1])["loss"] is None
    assert strict(lines[1])["nonfinite"] == {"loss": "inf"}
    assert list(strict(lines[3])) == ["kind", "epoch", "step", "loss", "eval_loss", "eval_accuracy"]
    nan = record_from_dict(restore_nonfinite(strict(dump_json(record_to_dict(StepRecord(3, math.nan, 0.0, 1e-3))))))
    assert math.isnan(nan.loss)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("a/~.0é\udce9", max_size=3), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=60)
@given(st.dictionaries(st.text(max_size=4).filter(lambda key: key != "nonfinite"), values, max_size=4))
def test_any_object_round_trips_as_strict_json(content: dict) -> None:
    text = dump_json(content)
    assert "\n" not in text
    assert text.isascii()
    assert repr(restore_nonfinite(strict(text))) == repr(content)


@pytest.mark.parametrize("found", [5, [], {"": "nan"}, {"loss": "nan"}, {"a/b/c": "nan"}, {"x/9": "inf"}, {"x/0": 3}])
def test_a_strange_nonfinite_does_no_harm(found: object) -> None:
    assert restore_nonfinite({"loss": 1.0, "x": [2], "nonfinite": found}) == {"loss": 1.0, "x": [2]}


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"kind": "stp"}, "not a metrics record: kind is 'stp', expected step, eval, epoch"),
        ({"kind": None}, "not a metrics record: kind is None, expected step, eval, epoch"),
        ({"loss": "1"}, "not a step record: loss is '1', expected a number"),
        ({"loss": None}, "not a step record: loss is None, expected a number"),
        ({"step": 1.0}, "not a step record: step is 1.0, expected a whole number from 0 to 2^63 - 1"),
        ({"step": True}, "not a step record: step is True, expected a whole number from 0 to 2^63 - 1"),
    ],
)
def test_a_malformed_record_is_named(change: dict, said: str) -> None:
    error = refusal(lambda: record_from_dict({**record_to_dict(RECORDS[0]), **change}))
    assert (error.code, str(error)) == ("record", said)
    whole = record_to_dict(RECORDS[0])
    for key in whole:
        assert fact(lambda: record_from_dict({k: v for k, v in whole.items() if k != key})) == ("record", "")  # noqa: B023


def test_other_kinds_and_keys_are_left_out() -> None:
    lines = [{"kind": "weather", "step": 1}, {**record_to_dict(RECORDS[0]), "more": 1}]
    records = Records(Path("m"), lambda: [json.dumps(line).encode() + b"\n" for line in lines])
    assert list(records_of(records)) == RECORDS[:1]
    assert record_from_dict({**record_to_dict(RECORDS[0]), "loss": 4}).loss == 4.0


def test_every_torn_end_is_left_out_and_repaired(path: Path) -> None:
    whole = path.read_bytes()
    ends = [at + 1 for at, byte in enumerate(whole) if byte == 10]
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        complete = sum(end - 1 <= length for end in ends)  # a line that only lacks its newline is complete
        assert read(path) == RECORDS[:complete]
        file = MetricsFile(path)
        file.append([{"kind": "eval", "step": 9, "loss": 1.0, "accuracy": 0.0}])
        file.close()
        assert read(path) == [*RECORDS[:complete], EvalRecord(9, 1.0, 0.0)]


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\xff", b"{", b"[1]", b"5", b"\n\n"])
def test_a_garbled_end_is_left_out(path: Path, tail: bytes) -> None:
    whole = path.read_bytes()
    path.write_bytes(whole + tail)
    assert read(path) == RECORDS
    MetricsFile(path).truncate_after(99)
    assert path.read_bytes() == whole


def test_damage_in_the_middle_names_its_line(path: Path) -> None:
    lines = path.read_bytes().split(b"\n")
    for bad in (lines[1][:-3], b"\xff", b"[]", b'{"loss": NaN}'):
        path.write_bytes(b"\n".join([lines[0], bad, *lines[2:]]))
        for act in (lambda: lines_of(path), lambda: MetricsFile(path).truncate_after(1)):
            error = refusal(act)
            assert error.code == "json" and error.message.startswith(f"{path}:2:") and error.hint is not None


def test_truncating_drops_later_steps_only(path: Path) -> None:
    file = MetricsFile(path)
    file.append([{"kind": "note"}, record_to_dict(StepRecord(3, 1.0, 0.0, 1e-3))])
    before = path.stat().st_ino
    file.truncate_after(3)
    assert path.stat().st_ino == before  # nothing to drop: not written again
    file.truncate_after(1)
    assert [line["kind"] for line in lines_of(path)] == ["step", "note"]
    file.append([record_to_dict(StepRecord(2, 1.0, 0.0, 1e-3))])
    file.close()
    assert [line.get("step") for line in lines_of(path)] == [1, None, 2]
    MetricsFile(path.with_name("none")).truncate_after(1)
    assert not path.with_name("none").exists()


def test_a_full_disk_leaves_no_half_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole, real = path.read_bytes(), os.write
    file = MetricsFile(path)
    calls = []

    def fill(fd: int, data: bytes) -> int:
        calls.append(fd)
        if len(calls) > 1:
            raise OSError(28, "full")
        return real(fd, data[:20])

    monkeypatch.setattr(os, "write", fill)
    assert refused_with(refusal(lambda: file.append([record_to_dict(RECORDS[0])]))) == 28
    assert path.read_bytes() == whole
    monkeypatch.undo()
    file.append([record_to_dict(RECORDS[0])])
    file.sync()
    file.close()
    assert read(path) == [*RECORDS, RECORDS[0]]


def test_a_deleted_file_is_noticed(path: Path) -> None:
    file = MetricsFile(path)
    file.append([{"step": 1}])
    path.unlink()
    assert fact(lambda: file.append([{"step": 2}])) == ("deleted", "metrics.jsonl")
    file.close()
    os.mkfifo(path)
    assert fact(lambda: file.append([{"step": 3}])) == ("no-file", "metrics.jsonl")
