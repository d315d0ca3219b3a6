"""The files of a finished run are listed in run.json with their hashes, and compared when read."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from mhsa_cli.errors import MhsaError
from mhsa_cli.runs import hashes
from mhsa_cli.runs.disk import OpenFile
from mhsa_cli.runs.listing import load_info
from mhsa_cli.runs.run_dir import RunDir
from tests.refusals import fact

METRICS = [{"kind": "eval", "step": step, "loss": 2.5, "accuracy": 0.25} for step in (0, 2)]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    """A run that ended at step 3, open for reading."""
    with RunDir.create(tmp_path / "runs", "r", command=["mhsa"]) as run:
        run.write_config("seed: 7\n")
        run.append("metrics.jsonl", METRICS)
        run.append("heads.jsonl", [{"kind": "heads", "step": 0}])
        run.commit_checkpoint(3, {"a": b"x"})
        run.write_heads({"step": 3})
        run.update(status="finished", step=3, final={"eval_loss": float("nan")})
    return RunDir.open(tmp_path / "runs", "r")


def readings(run: RunDir) -> list[object]:
    run = RunDir(run.path)  # one that remembers nothing
    return [
        run.read_config_text(),
        list(run.records("metrics.jsonl")),
        list(run.records("heads.jsonl")),
        run.read_heads(),
        run.read_run_json(),
    ]


def test_the_list_by_hand(run: RunDir) -> None:
    lines = (run.path / "run.json").read_bytes().split(b"\n")
    own = lines[-3]
    body = b"\n".join(lines[:-3]).removesuffix(b",")
    assert own == b' "sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"'
    info = json.loads((run.path / "run.json").read_bytes())
    names = ["config.yaml", "metrics.jsonl", "heads.json", "heads.jsonl"]
    assert list(info["files"]) == names
    for name in names:
        data = (run.path / name).read_bytes()
        assert info["files"][name] == {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}
    assert "files" not in run.read_run_json() and "sha256" not in run.read_run_json()


def test_every_flipped_bit_of_every_file_is_noticed(run: RunDir) -> None:
    readings(run)
    for name in ("run.json", *hashes.listed_in(load_info(run.path))):
        path = run.path / name
        data = path.read_bytes()
        for bit in range(len(data) * 8):
            wrong = bytearray(data)
            wrong[bit // 8] ^= 1 << bit % 8
            path.write_bytes(wrong)
            with pytest.raises(MhsaError):
                readings(run)
        for wrong in (data[:-1], b"", data + b"\n"):
            path.write_bytes(wrong)
            assert fact(lambda: readings(run))[1] == name
        path.unlink()
        assert fact(lambda: readings(run)) == ("missing", name)
        path.write_bytes(data)
    readings(run)


def test_a_file_of_another_run_is_noticed(run: RunDir, tmp_path: Path) -> None:
    with RunDir.create(tmp_path / "runs", "other") as other:
        other.append("metrics.jsonl", [{**METRICS[0], "loss": 2.25}])
        other.update(status="finished")
    for name in ("metrics.jsonl", "run.json"):
        own = (run.path / name).read_bytes()
        (run.path / name).write_bytes((other.path / name).read_bytes())
        assert fact(lambda: list(RunDir(run.path).records("metrics.jsonl"))) == ("changed", "metrics.jsonl")
        (run.path / name).write_bytes(own)


def test_another_file_named_run_json_is_refused(run: RunDir) -> None:
    (run.path / "heads.json").replace(run.path / "run.json")  # it has a right format number, and no hash
    anew = RunDir(run.path)
    curve = anew.records("metrics.jsonl")
    for read in (anew.read_run_json, lambda: list(curve), lambda: RunDir.open(run.path.parent, "r")):
        assert fact(read) == ("no-status", "run.json")


@pytest.mark.parametrize("change", ["curve", "scores", "truncate", "write_heads", "write_config"])
def test_the_list_is_removed_before_the_first_file_changes(
    change: str, run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, seen = os.write, list[tuple[bool, bool]]()

    def write(fd: int, data: bytes) -> int:
        seen.append((b'"status": "running"' in bytes(data), bool(hashes.listed_in(load_info(run.path)))))
        return real(fd, data)

    with RunDir.open(run.path.parent, "r", write=True) as mine:
        act = {
            "curve": lambda: mine.append("metrics.jsonl", METRICS),
            "scores": lambda: mine.append("heads.jsonl", METRICS),
            "truncate": lambda: mine.truncate_after(1),
            "write_heads": lambda: mine.write_heads({"step": 4}),
            "write_config": lambda: mine.write_config("seed: 8\n"),
        }[change]
        monkeypatch.setattr(os, "write", write)
        act()
        monkeypatch.undo()
        assert seen[0] == (True, True) and len(seen) > 1
        assert set(seen[1:]) == {(False, False)}
        assert mine.read_run_json()["status"] == "running"
    assert RunDir(run.path).read_run_json()["status"] == "interrupted"
    readings(run)  # nothing is compared now: the run broke off


def test_reading_keeps_the_list_and_ending_again_renews_it(run: RunDir) -> None:
    before = (run.path / "run.json").read_bytes()
    with RunDir.open(run.path.parent, "r", write=True) as mine:
        readings(mine)
        assert (run.path / "run.json").read_bytes() == before
        mine.append("metrics.jsonl", METRICS)
        assert not hashes.listed_in(load_info(run.path))
        mine.update(status="stopped")
    assert len(list(run.records("metrics.jsonl"))) == 4


def test_damage_is_found_before_a_run_is_resumed(run: RunDir) -> None:
    before = (run.path / "run.json").read_bytes()
    for name in ("metrics.jsonl", "heads.jsonl"):
        data = (run.path / name).read_bytes()
        (run.path / name).write_bytes(data.replace(b"0", b"1", 1))
        with RunDir.open(run.path.parent, "r", write=True) as mine:
            assert fact(lambda: mine.truncate_after(3)) == ("changed", name)  # noqa: B023
        (run.path / name).write_bytes(data)
    assert (run.path / "run.json").read_bytes() == before


def test_a_reader_of_a_resumed_run_reads_the_new_files(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    real, mine = hashes.OpenFile, RunDir.open(run.path.parent, "r", write=True)
    size_before = (run.path / "metrics.jsonl").stat().st_size

    def slow(path: Path, limit: int) -> OpenFile:
        if path.name == "metrics.jsonl" and path.stat().st_size == size_before:
            mine.append("metrics.jsonl", METRICS)
        return real(path, limit)

    monkeypatch.setattr(hashes, "OpenFile", slow)
    assert len(list(run.records("metrics.jsonl"))) == 4
    mine.close()


def test_a_run_of_an_older_version_is_read_as_before(run: RunDir) -> None:
    info = run.read_run_json()
    (run.path / "run.json").write_text(json.dumps({**info, "final": None}))
    (run.path / "metrics.jsonl").write_text("")
    assert list(run.records("metrics.jsonl")) == [] and run.read_run_json()["status"] == "finished"


def test_a_missing_last_checkpoint_is_reported(run: RunDir) -> None:
    with RunDir.open(run.path.parent, "r", write=True) as mine:
        mine.commit_checkpoint(5, {"a": b"y"})
        mine.update(status="stopped", step=5)
    run = RunDir(run.path)
    assert run.load_checkpoint() == (5, {"a": b"y"}, ())
    (run.path / "checkpoints" / "step-00000005").rename(run.path / "elsewhere")
    assert run.load_checkpoint() == (3, {"a": b"x"}, ("the checkpoint of step 5, the run's last, is missing",))
    assert run.load_checkpoint(3).notes == ()
