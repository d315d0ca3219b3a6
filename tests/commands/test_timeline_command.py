"""mhsa timeline: heads over training from heads.jsonl, without torch; replayed on a terminal alone."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.commands.shell import codes_without_torch, environment, metrics, mhsa, without_hashes

STEPS = [0, 1, 2, 4, 6, 8, 10]
T = 6
RISE = [0.0, 0.1, 0.3, 0.6, 0.8, 0.9, 0.95]


def line(step: int, lift: float) -> dict[str, Any]:
    """One snapshot of the tiny run (L=2 H=3 T=6): L0.H0 comes to look back, the others never do."""
    places = [(layer, head) for layer in range(2) for head in range(3)]
    heads = [
        {
            "layer": layer,
            "head": head,
            "lifts": {"previous": lift if (layer, head) == (0, 0) else 0.1, "self": 0.2, "induction": None},
            "distance": None,
            "entropy": 0.25,
            "uniformity": 0.5,
            "confidence": 0.75,
            "positionality": None,
        }
        for layer, head in places
    ]
    maps = [[[[100 // (q + 1)] * (q + 1) for q in range(T)]] * 3] * 2
    return {"kind": "heads", "step": step, "heads": heads, "maps": maps, "pool": 1}


@pytest.fixture
def told(tiny: Path) -> Path:
    """The tiny run with snapshots made by hand, and L0.H0 named."""
    without_hashes(tiny)
    lines = [line(step, lift) for step, lift in zip(STEPS, RISE, strict=True)]
    (tiny / "heads.jsonl").write_text("".join(json.dumps(one) + "\n" for one in lines))
    name(tiny, target="previous", label_id="previous:named")
    return tiny


def name(run: Path, **keys: Any) -> None:
    stored = json.loads((run / "heads.json").read_text())
    for head in stored["heads"]:
        head.update({"target": None, "label": None, "label_id": None})
    stored["heads"][0].update(keys)
    (run / "heads.json").write_text(json.dumps(stored))


def test_the_strips_of_all_heads_under_the_curve(told: Path) -> None:
    said = mhsa("timeline", "tiny")
    assert (said.code, said.err) == (0, "")
    for text in ("loss (nats), log steps", "chance 2.40", "7 snapshots", "next: mhsa inspect-heads tiny"):
        assert text in said.out, text
    rows = {row.split()[0]: row for row in said.out.splitlines() if "│" in row and row.startswith("L")}
    assert list(rows) == [f"L{layer}.H{head}" for layer in range(2) for head in range(3)]
    assert "previous" in rows["L0.H0"] and "2–4" in rows["L0.H0"].split() and "previous token" in said.out
    assert "self" in rows["L1.H2"] and rows["L1.H2"].count("–") >= 2


def test_the_document_by_hand(told: Path) -> None:
    said = mhsa("timeline", "--json")
    document = said.json
    assert said.err == "" and document["run"] == "runs/tiny" and document["steps"] == STEPS
    first, last = document["heads"][0], document["heads"][-1]
    assert (first["name"], first["target"], first["label"]) == ("L0.H0", "previous", "previous token")
    assert first["lifts"] == RISE and first["final"] == pytest.approx((0.8 + 0.9 + 0.95) / 3)
    assert (first["onset"], first["rise"]) == ({"low": 2, "high": 4}, {"low": 1, "high": 6})
    assert first["width"] == 4  # 20% of 0.883 at 1.38, 80% at 5.07
    drop = document["largest_drop"]
    assert first["lead"] == {"low": drop["low"] - first["rise"]["high"], "high": drop["high"] - first["rise"]["low"]}
    assert [claim["id"] for claim in first["claims"]] == ["onset", "lead"] and first["claims"][0]["subject"] == "L0.H0"
    assert document["order"] == [] and len(document["in_context"]) == 7
    assert first["scores"]["previous"] == RISE and first["scores"]["induction"] == [None] * 7
    assert first["scores"]["entropy"] == [0.25] * 7 and first["scores"]["positionality"] == [None] * 7
    assert (last["name"], last["target"], last["label"], last["onset"]) == ("L1.H2", "self", None, None)


def test_a_loss_stands_at_the_updates_before_it(told: Path) -> None:
    """The loss of training step 6 was measured after 5 updates: that is where it fell, as the snapshots count."""
    kept = [record for record in metrics(told) if record["kind"] != "step"]
    steps = [
        {"kind": "step", "step": s, "loss": 2.0 if s < 6 else 1.0, "accuracy": 0.5, "lr": 0.1} for s in range(1, 11)
    ]
    (told / "metrics.jsonl").write_text("".join(json.dumps(record) + "\n" for record in [*steps, *kept]))
    document = mhsa("timeline", "--json").json
    assert document["largest_drop"] == {"step": 5, "nats": 1.0, "low": 4, "high": 5}


def test_one_score_for_all_heads(told: Path) -> None:
    asked = mhsa("timeline", "--target", "self", "--json").json
    assert {head["target"] for head in asked["heads"]} == {"self"}
    assert all(head["lifts"] == [0.2] * 7 and head["label"] is None for head in asked["heads"])
    assert "lift on self" in mhsa("timeline", "--target", "self").out
    wrong = mhsa("timeline", "--target", "selfish")
    assert (wrong.code, wrong.out) == (2, "") and "wanted previous, self or induction" in wrong.err


def test_labels_are_left_out_where_they_are_stale_or_damaged(told: Path) -> None:
    def label() -> Any:
        return mhsa("timeline", "--json").json["heads"][0]["label"]

    assert label() == "previous token"
    for keys in ({"target": None}, {"target": "self"}, {"label_id": "nobody"}, {"label_id": 7}, {"label_id": None}):
        name(told, **{"target": "previous", "label_id": "previous:named", **keys})
        assert label() is None
    name(told, target="previous", label_id="previous:named")
    stored = json.loads((told / "heads.json").read_text())
    (told / "heads.json").write_text(json.dumps({**stored, "step": 9}))  # training went on after it
    assert label() is None
    (told / "heads.json").write_text("{")
    said = mhsa("timeline", "--json")
    assert said.json["heads"][0]["label"] is None and "heads.json" in said.err
    (told / "heads.json").unlink()
    assert label() is None and mhsa("timeline", "--json").err == ""


def test_a_run_without_snapshots_says_so(told: Path) -> None:
    (told / "heads.jsonl").write_text("")
    for _ in range(2):
        said = mhsa("timeline", "tiny")
        assert (said.code, said.out) == (4, "") and "heads.jsonl" in said.err and "train it again" in said.err
        (told / "heads.jsonl").unlink(missing_ok=True)


def test_damage_is_said_with_its_step(told: Path) -> None:
    lines = (told / "heads.jsonl").read_text().splitlines()
    (told / "heads.jsonl").write_text("\n".join([*lines[:3], lines[3].replace('"lifts"', '"left"', 1), *lines[4:], ""]))
    said = mhsa("timeline")
    assert said.code == 4 and "heads.jsonl" in said.err and "heads[0].lifts" in said.err
    (told / "heads.jsonl").write_text("\n".join([*lines[:3], lines[3][:50]]))  # cut short by a crash
    assert mhsa("timeline", "--json").json["steps"] == STEPS[:3]


def test_a_picture_in_a_file_beside_the_document(told: Path) -> None:
    said = mhsa("timeline", "--json", "-o", "a.svg")
    assert said.json and "wrote a.svg" in said.err
    text = "".join(xml.etree.ElementTree.parse("a.svg").getroot().itertext())
    assert "heads of tiny over training" in text and "L1.H2" in text
    assert mhsa("timeline", "-o", "a.doc").code == 2


def test_what_the_task_says_stands_below(told: Path) -> None:
    stored = json.loads((told / "heads.json").read_text())
    verdict = {**stored["verdict"], "pattern_matters": False, "claims": ["The pattern does not matter on shift."]}
    (told / "heads.json").write_text(json.dumps({**stored, "note": "A note.", "verdict": verdict}))
    shown = mhsa("timeline").out
    assert "A note." in shown and "does not matter" in shown
    (told / "heads.json").write_text(json.dumps({**stored, "verdict": {**verdict, "pattern_matters": True}}))
    assert "does not matter" not in mhsa("timeline").out


def test_it_loads_no_torch(told: Path) -> None:
    assert codes_without_torch(["timeline", "--json"], ["timeline"]) == [0, 0]
    assert mhsa("timeline", "--json").json["steps"] == STEPS


def test_a_replay_is_refused_where_nothing_moves(told: Path) -> None:
    said = mhsa("timeline", "tiny", "--replay")
    assert (said.code, said.out) == (2, "") and "needs a terminal" in said.err
    assert "mhsa inspect-heads tiny -o maps.svg" in said.err
    said = mhsa("timeline", "--replay", "--json")
    assert (said.code, said.out) == (2, "") and "--replay" in said.err


def test_a_replay_in_a_file_has_a_frame_for_each_snapshot_and_needs_no_terminal(told: Path) -> None:
    said = mhsa("timeline", "tiny", "--replay", "-o", "a.gif")
    assert said.code == 0 and "wrote a.gif" in said.err
    with Image.open("a.gif") as film:
        assert film.n_frames == len(STEPS) and film.info["loop"] == 0
        seconds, frames = [], []
        for number in range(film.n_frames):
            film.seek(number)
            seconds.append(film.info["duration"] / 1000)
            frames.append(film.convert("RGB").tobytes())
    assert len(set(frames)) == len(STEPS) and seconds[-1] > max(seconds[:-1]) > 0
    assert mhsa("timeline", "tiny", "--replay", "-o", "b.gif").code == 0
    assert Path("a.gif").read_bytes() == Path("b.gif").read_bytes()
    assert mhsa("timeline", "tiny", "--replay", "--heads", "L1.H1", "-o", "b.gif").code == 0
    assert Image.open("b.gif").size < Image.open("a.gif").size


def test_a_film_is_of_a_replay_alone_and_needs_pillow(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for arguments in (["timeline", "-o", "a.gif"], ["timeline", "--replay", "--json", "-o", "a.gif"]):
        said = mhsa(*arguments)
        assert (said.code, said.out) == (2, "") and "a.gif" in said.err
    assert mhsa("timeline", "--replay", "--theme", "dark", "-o", "a.gif").code == 2
    assert mhsa("timeline", "--replay", "--heads", "L7.H0", "-o", "a.gif").code == 2
    assert mhsa("curve", "-o", "a.gif").code == 2
    records = [json.loads(line) for line in (told / "heads.jsonl").read_text().splitlines()]
    for record in records:
        del record["maps"]
    (told / "heads.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    assert mhsa("timeline", "--replay", "-o", "a.gif").code == 2 and not Path("a.gif").exists()
    for module in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, module, None)
    said = mhsa("timeline", "--replay", "-o", "a.gif")
    assert said.code == 2 and "pip install 'mhsa-cli[png]'\n" in said.err and "GIF" in said.err


def on_terminal(*arguments: str, interrupt_at: bytes | None = None) -> tuple[int, str]:
    """Run mhsa on a terminal of its own; SIGINT, as Ctrl-C sends it, once some text has come."""
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "mhsa_cli", *arguments]
    told = environment(TERM="xterm-256color", COLUMNS="90", LINES="60")
    child = subprocess.Popen(command, stdin=slave, stdout=slave, stderr=slave, env=told, start_new_session=True)
    os.close(slave)
    read, end = b"", time.monotonic() + 60
    try:
        while time.monotonic() < end:
            if select.select([master], [], [], 0.05)[0]:
                try:
                    chunk = os.read(master, 65536)
                except OSError:  # the child has closed its side
                    break
                if not chunk:
                    break
                read += chunk
            elif child.poll() is not None:
                break
            if interrupt_at is not None and interrupt_at in read:
                os.kill(child.pid, signal.SIGINT)
                interrupt_at = None
        return child.wait(timeout=30), read.decode()
    finally:
        child.kill()
        os.close(master)


def test_a_replay_shows_every_snapshot_and_leaves_the_last(told: Path) -> None:
    code, shown = on_terminal("timeline", "tiny", "--replay")
    assert code == 0 and "Traceback" not in shown
    places = [shown.find(f"step {step}\x1b") for step in STEPS]
    assert -1 not in places and places == sorted(places)
    end = shown[shown.rindex("step 10\x1b") :]
    assert "L1.H2" in end and "next: mhsa inspect-heads tiny" in end and "\x1b[?25h" in end  # the cursor is back


def test_ctrl_c_ends_a_replay_quietly(told: Path) -> None:
    code, shown = on_terminal("timeline", "tiny", "--replay", interrupt_at=b"step 2\x1b")
    assert code == 130 and "step 10" not in shown
    assert "Traceback" not in shown and "Abort" not in shown and "next:" not in shown
    assert shown.rstrip().endswith("\x1b[?25h") and "L1.H2" in shown[shown.rindex("step ") :]


def test_a_trained_run_has_a_timeline_from_the_start(tiny: Path) -> None:
    document = mhsa("timeline", "--json").json
    assert document["steps"][:3] == [0, 1, 2] and document["steps"][-1] == 10
    assert len(document["heads"]) == 6 and mhsa("timeline").code == 0
