"""mhsa verify: every file of a run against its hash and against the others; and one training against its own resume."""

from __future__ import annotations

import json
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.core.training import checkpoint
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.records.formats import FORMAT
from mhsa_cli.runs.run_dir import RunDir
from tests.commands.shell import at_step, codes_without_torch, facts, mhsa, tree, without_hashes
from tests.commands.test_resume_command import kill

NEWEST, OLDER = "checkpoints/step-00000010", "checkpoints/step-00000005"
PARTS = ["run.json", "config.yaml", "metrics.jsonl", "heads.json", "heads.jsonl", OLDER, NEWEST]


def states(*arguments: object) -> dict[str, str]:
    return {check["name"]: check["state"] for check in mhsa("verify", *arguments, "--json").json["checks"]}


def flip(path: Path, place: int) -> None:
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


def test_a_whole_run_is_whole_and_untouched(tiny: Path) -> None:
    before = tree(tiny)
    said = mhsa("verify", "tiny")
    assert (said.code, said.err) == (0, "") and "WRONG" not in said.out
    lines = said.out.splitlines()
    assert (lines[0], lines[-1]) == ("runs/tiny", "next: mhsa inspect-heads tiny") and len(lines) == len(PARTS) + 5
    assert states("tiny") == dict.fromkeys(PARTS, "ok") == states()
    document = mhsa("verify", tiny, "--json").json
    assert document["ok"] is True and document["usable"] == [] and document["checkpoint"] == 10
    found = {check["name"]: check["found"] for check in document["checks"]}
    assert found["metrics.jsonl"] == "10 steps to 10, 2 epochs, its hash"
    assert found["heads.json"] == "6 heads at step 10, its hash"
    assert tree(tiny) == before


def test_torch_is_not_loaded(tiny: Path) -> None:
    flip(tiny / OLDER / "model.safetensors", 900)
    text = ["task.name=text", "task.path=tiny.yaml", "seq_len=6"]
    assert mhsa("train", *text, "epochs=1", "steps_per_epoch=2", "eval_sequences=4", "--name", "text").code == 0
    assert codes_without_torch(["verify", "tiny"], ["verify", "text", "--json"], ["verify", "none"]) == [4, 0, 4]


@pytest.mark.parametrize(
    ("name", "readers"),
    [
        ("run.json", ["curve", "inspect-heads", "explain", "timeline", "generate"]),
        ("config.yaml", ["generate"]),
        ("metrics.jsonl", ["curve", "timeline"]),
        ("heads.json", ["inspect-heads", "explain"]),
        ("heads.jsonl", ["timeline"]),
    ],
)
def test_a_flipped_bit_is_refused_by_every_reader(name: str, readers: list[str], tiny: Path) -> None:
    data = (tiny / name).read_bytes()
    digit = next(i for i, byte in enumerate(data) if i > len(data) // 3 and chr(byte) in "2468")
    flip(tiny / name, digit)
    before = tree(tiny)
    for reader in readers:
        said = mhsa(reader, "tiny", *(["--prompt", "1"] if reader == "generate" else []))
        assert (said.code, said.out) == (4, "") and name in said.err, said
    for other in (["export", "tiny", "--to", "json"], ["train", "--resume", "tiny", "train.epochs=3"]):
        said = mhsa(*other)
        assert said.code == 4 or name == "heads.json" and other[0] == "train", said
        if name == "heads.json":
            break
    said = mhsa("verify", "tiny")
    assert said.code == 4 and f"tiny is damaged: {name}" in said.err and "usable" in said.out
    assert {**tree(tiny), ".lock": None} == {**before, ".lock": None}
    listed = mhsa("runs", "--json").json[0]["status"]
    assert listed.startswith("damaged") == (name == "run.json")


def test_damage_that_parses_is_placed_by_what_the_curve_tells_twice(tiny: Path) -> None:
    lines = (tiny / "metrics.jsonl").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if '"step": 7' in line)
    record = json.loads(lines[at])
    lines[at] = json.dumps({**record, "loss": record["loss"] + 0.5})
    (tiny / "metrics.jsonl").write_text("\n".join(lines) + "\n")
    document = mhsa("verify", "--json").json
    found = next(check["found"] for check in document["checks"] if check["name"] == "metrics.jsonl")
    assert "its hash differs" in found and "epoch 2: its loss is not the mean of its steps" in found
    epoch = next(i for i, line in enumerate(lines, 1) if '"epoch": 1' in line)
    assert f"the curve up to line {epoch}, step 5: metrics.jsonl" in document["usable"]
    without_hashes(tiny)  # and without any hash
    assert states()["metrics.jsonl"] == "wrong"


def test_the_ways_out_lead_out(tiny: Path) -> None:
    flip(tiny / "heads.json", 500)
    assert "delete heads.json" in mhsa("inspect-heads").err
    (tiny / "heads.json").unlink()
    assert mhsa("inspect-heads").code == 0
    flip(tiny / "metrics.jsonl", 70)
    assert "delete metrics.jsonl" in mhsa("verify").out
    (tiny / "metrics.jsonl").unlink()
    assert mhsa("train", "--resume", "tiny", "train.epochs=3").code == 0
    assert states()["metrics.jsonl"] == "ok"  # as it was written: it begins late


def test_an_edited_config_shows_the_settings_that_differ(tiny: Path) -> None:
    file = tiny / "config.yaml"
    text = file.read_text()
    for old, new, says in [
        ("seed: 8", "seed: 9", "train.seed: 8 -> 9"),
        ("n_heads: 3", "n_heads: 4", "model.n_heads: 3 -> 4"),
        ("epochs: 2", "epochs: 3", "train.epochs: 2 -> 3"),
        ("threads: 1", "threads: 2", "train.threads: 1 -> 2"),
    ]:
        assert old in text
        file.write_text(text.replace(old, new))
        for command in (["generate", "--prompt", "1"], ["verify"], ["train", "--resume", "tiny"]):
            said = mhsa(*command)
            assert said.code == 4 and says in " ".join((said.out + said.err).split()), said
    file.write_text(f"# mine\n{text}")
    assert mhsa("generate", "--prompt", "1").code == 0 and states()["config.yaml"] == "note"
    shutil.rmtree(tiny / "checkpoints")
    assert mhsa("train", "--resume", "tiny").code == 4  # nothing left to compare it with


def test_checkpoints(tiny: Path) -> None:
    flip(tiny / NEWEST / "model.safetensors", 900)
    (tiny / "checkpoints/.tmp-step-00000010-1-0123abcd").mkdir()
    (tiny / "evil.pt").write_text("x")
    document = mhsa("verify", "--json").json
    found = {check["name"]: check["state"] for check in document["checks"]}
    assert (found[NEWEST], found[OLDER], found["evil.pt"]) == ("wrong", "ok", "note")
    assert found["checkpoints/.tmp-step-00000010-1-0123abcd"] == "note" and document["checkpoint"] == 5
    assert document["usable"][0].startswith("the checkpoint of step 5")
    shutil.rmtree(tiny / NEWEST)
    said = mhsa("verify")
    assert said.code == 4 and "the checkpoint of step 10, the run's last, is missing" in " ".join(said.out.split())
    assert "step 10, the run's last, is missing" in mhsa("generate", "--prompt", "1").err
    (tiny / OLDER).rename(tiny / "checkpoints/step-00000007")
    document = mhsa("verify", "--json").json
    assert document["checkpoint"] is None and "was renamed" in json.dumps(document)


def test_what_a_save_writes_at_this_moment_is_no_leftover(tiny: Path) -> None:
    with RunDir.open(Path("runs"), "tiny", write=True) as run:
        run.update(status="running")
        (tiny / "checkpoints/.tmp-step-00000011-1-0123abcd").mkdir()
        assert "note" not in states("tiny").values()
    assert "note" in states("tiny").values()


def test_weights_of_another_run_of_the_same_shape_are_noticed(tiny: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "--name", "other", "train.lr=1e-3").code == 0
    shutil.rmtree(tiny / NEWEST)
    shutil.copytree(Path("runs/other") / NEWEST, tiny / NEWEST)
    assert states("tiny")[NEWEST] == "wrong"
    said = mhsa("generate", "tiny", "--prompt", "1")
    assert said.code == 4 and "config.yaml" in said.err and "train.lr: 0.001" in said.err
    # What verify calls of use must be so: first with the step that stops every command, then without it.
    first, *_ = mhsa("verify", "tiny", "--json").json["usable"]
    assert first.startswith(f"the checkpoint of step 5: once {NEWEST} is deleted, mhsa generate")
    shutil.rmtree(tiny / NEWEST)
    assert mhsa("generate", "tiny", "--prompt", "1").code == 0
    assert mhsa("verify", "tiny", "--json").json["usable"][0].startswith("the checkpoint of step 5: mhsa generate")


def test_numbers_in_run_json_are_those_of_the_weights(tiny: Path) -> None:
    digest = facts(tiny)["weights_sha256"]
    (tiny / "run.json").write_text(json.dumps({**facts(tiny), "weights_sha256": "0" * 64}))
    document = mhsa("verify", "--json").json
    found = next(check for check in document["checks"] if check["name"] == NEWEST)
    assert found["state"] == "wrong" and digest in found["found"]


def test_what_has_no_hashes_is_said(tiny: Path) -> None:
    without_hashes(tiny)
    said = mhsa("verify", "tiny")
    assert said.code == 0 and "kept no hashes" in " ".join(said.out.split()) and "no hash to compare" in said.out
    (tiny / "run.json").write_text(json.dumps({**facts(tiny), "format": FORMAT + 1}))
    said = mhsa("verify", "tiny")
    assert said.code == 4 and "newer mhsa" in said.out


@pytest.mark.parametrize("what", ["torn", "gone"])
def test_a_run_json_that_cannot_be_read_leaves_the_weights(what: str, tiny: Path) -> None:
    path = tiny / "run.json"
    path.write_text("{") if what == "torn" else path.unlink()
    said = mhsa("verify", "tiny")
    assert said.code == 4 and f"the weights of step 10: {NEWEST}/model.safetensors" in said.out
    assert "mhsa train --config runs/tiny/config.yaml" in said.out
    assert mhsa("verify", "none").code == 4


def test_runs_that_were_stopped_killed_or_resumed_with_changes_are_whole(here: Path) -> None:
    with at_step(7, kill(signal.SIGTERM)):
        assert mhsa("train", "--config", "tiny.yaml", "--name", "r", "train.log_every=3").code == 143
    assert mhsa("verify").code == 0
    assert mhsa("train", "--resume", "r", "train.log_every=1", "train.epochs=3").code == 0
    assert facts(Path("runs/r"))["changes"] == [{"step": 7, "settings": ["train.log_every=1", "train.epochs=3"]}]
    assert mhsa("verify").code == 0 and states()["metrics.jsonl"] == "ok"
    info = {key: value for key, value in facts(Path("runs/r")).items() if key != "final"}
    Path("runs/r/run.json").write_text(json.dumps({**info, "status": "running"}))
    Path("runs/r/heads.json").unlink()
    assert mhsa("verify").code == 0 and states()["heads.json"] == "note"


def test_a_text_run_is_compared_with_its_text(here: Path) -> None:
    (here / "a.txt").write_text("the cat sat on the mat. " * 30)
    small = ["epochs=1", "steps_per_epoch=3", "task.seq_len=7", "eval_sequences=5"]
    assert mhsa("train", "task.name=text", "task.path=a.txt", *small, "--name", "t").code == 0
    run = Path("runs/t")
    assert mhsa("verify").code == 0 and states()["text.txt"] == "ok"
    config = (run / "config.yaml").read_text()
    (run / "config.yaml").write_text(config.replace("a.txt", "b.txt"))
    assert mhsa("verify").code == 4 and "task.path: a.txt -> b.txt" in mhsa("generate", "t", "--prompt", "the").err
    (run / "config.yaml").write_text(config)
    text = (run / "text.txt").read_bytes()
    (run / "text.txt").write_bytes(text.replace(b"c", b"k", 1))
    assert mhsa("verify").code == 4 and states()["text.txt"] == "wrong"
    (run / "text.txt").unlink()  # the original is still there, and is compared
    assert mhsa("generate", "t", "--prompt", "the").code == 0
    (here / "a.txt").write_bytes(text.replace(b"c", b"k"))
    said = mhsa("generate", "t", "--prompt", "the")
    assert said.code == 4 and "a.txt" in said.err


def test_resume_check_says_equal(here: Path) -> None:
    said = mhsa("verify", "--resume-check", "tiny.yaml")
    assert said.code == 0 and said.out.startswith("equal, bit for bit") and "10 steps against 5 + 5" in said.out
    document = mhsa("verify", "--resume-check", "tiny.yaml", "train.epochs=3", "--json").json
    assert (document["equal"], document["steps"], document["stopped_at"]) == (True, 15, 7)
    assert not list(here.rglob("run.json"))


@pytest.mark.parametrize("part", ["moment2", "weights", "metrics"])
def test_resume_check_says_where_bits_differ(part: str, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = checkpoint.restore

    def broken(stack: Stack, slot: int, files: Any) -> float:
        found = real(stack, slot, files)
        if part == "metrics":
            return found + 0.5
        getattr(stack, part)[0] += 0.25
        return found

    monkeypatch.setattr("mhsa_cli.core.training.lockstep.restore", broken)
    # Stopped within an epoch that is not the last, for the sum of its losses to count and then to be forgotten.
    said = mhsa("verify", "--resume-check", "tiny.yaml", "train.epochs=3", "train.steps_per_epoch=4")
    where = "metrics.jsonl, line " if part == "metrics" else "model.safetensors: "
    assert said.code == 7 and said.out.startswith("not equal: ") and where in said.out


def test_wrong_calls(tiny: Path) -> None:
    assert mhsa("verify", "tiny", "tiny").code == 2
    said = mhsa("verify", "--resume-check", "tiny.yaml", "train.epochs=0")
    assert said.code == 2 and "found 0 steps" in said.err
    assert mhsa("verify", "--resume-check", "none.yaml").code == 2
    said = mhsa("verify", "--resume-check", "d_model=8", "n_heads=2")
    assert said.code == 2 and "mhsa verify --resume-check CONFIG d_model=8 n_heads=2" in said.err


def test_a_place_for_runs_that_is_none_is_the_disks_refusal(here: Path) -> None:
    for command in (["verify", "x"], ["explain", "x"], ["runs"]):
        said = mhsa(*command, "--runs", "/dev/null/x")
        assert said.code == 5 and "/dev/null/x" in said.err, said
    said = mhsa("verify", "a", "b")
    assert said.code == 2 and "found 2 runs" in said.err
    assert "verify [OPTIONS] [RUN] [KEY=VALUE]...\n" in "\n".join(
        line.strip() for line in mhsa("verify", "--help").out.splitlines()
    )


@pytest.mark.usefixtures("screen")
def test_a_narrow_terminal_shows_every_step(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tiny / "config.yaml"
    config.write_text(config.read_text().replace("residual: true", "residual: oull"))
    document = {check["name"]: check["found"] for check in mhsa("verify", "--json").json["checks"]}
    assert "residual" in document["config.yaml"] and "^" not in document["config.yaml"]
    assert document["config.yaml"].count("oull") == 1
    monkeypatch.setenv("COLUMNS", "40")
    out = mhsa("verify").out
    assert {"step-00000005", "step-00000010"} <= set(out.split()) and "^" not in out
    assert all(len(line) <= 40 or " " not in line.strip() for line in out.partition("\nstill")[0].splitlines())
    monkeypatch.setenv("COLUMNS", "80")
    assert f"\n{NEWEST}  " in mhsa("verify").out
