"""mhsa report: the page of a run, of two and of a sweep, its data by other ways, and runs that lack parts."""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.commands import custom
from tests.commands.shell import SMALL, at_step, codes_without_torch, facts, mhsa, tree, without_hashes

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)
TINY = ("train", "--config", "tiny.yaml")


def data(page: Path) -> dict[str, Any]:
    """The document in a page, which has one block of it and ends no script early."""
    (block,) = DATA.findall(page.read_text(encoding="utf-8"))
    found: dict[str, Any] = json.loads(block)
    return found


def only(*arguments: object) -> dict[str, Any]:
    """The document of one run, which is also what its page holds."""
    document = mhsa("report", *arguments, "--json", "-o", "held.html").json
    assert data(Path("held.html")) == document and document["kind"] == "runs"
    (run,) = document["runs"]
    found: dict[str, Any] = run
    return found


def test_a_page_needs_no_torch_and_says_what_other_commands_say(tiny: Path) -> None:
    before = tree(tiny)
    assert codes_without_torch(["report", "tiny"], ["report", "tiny", "tiny", "-o", "r.html"]) == [0, 0]
    run = data(Path("report-tiny.html"))["runs"][0]
    assert run == only("tiny") == data(Path("r.html"))["runs"][0]  # a run beside itself is one run
    explained, over = mhsa("explain", "tiny", "--json").json, mhsa("timeline", "tiny", "--json").json
    kept = json.loads((tiny / "heads.json").read_text())
    for head, told, history, stored in zip(run["heads"], explained["heads"], over["heads"], kept["heads"], strict=True):
        assert head["why"] == told["text"] and head["why"].startswith(f"{head['name']}: {head['sentence']}")
        assert (head["label"], head["label_id"], head["role"]) == (told["label"], told["label_id"], told["role"])
        assert head["lifts"] == pytest.approx([x or 0 for x in history["lifts"]], abs=5.1e-4)
        assert head["delta"] == pytest.approx(stored["uniform_delta_nats"], rel=1e-4)
        assert head["all_lifts"]["own position"] == pytest.approx(history["scores"]["self"], abs=5.1e-4)
    assert (run["steps"], run["in_context"]) == (over["steps"], pytest.approx(over["in_context"], abs=5.1e-4))
    assert "\n".join(run["sentences"][:2]).startswith(explained["verdict"]["text"].strip().split("\n")[0])
    assert run["shape"] == [2, 3] and run["tokens"] == kept["tokens"] and run["causal"] and run["checks"] is None
    assert run["step"] == 10
    assert run["weights"][1][2] == [pytest.approx(row, abs=5.1e-4) for row in kept["weights"][1][2]]
    curves = {one["role"]: one for one in mhsa("curve", "tiny", "--json").json["runs"][0]["series"]}
    assert [step + 1 for step, _ in run["curve"]["train"]] == curves["train"]["steps"]
    assert [loss for _, loss in run["curve"]["eval"]] == pytest.approx(curves["eval"]["loss"], rel=1e-4)
    assert dict(map(tuple, run["levels"]))["chance"] == pytest.approx(facts(tiny)["chance"]["loss"], rel=1e-4)
    assert ["model.n_heads", "3"] in run["settings"] and ["train.seed", "8"] in run["settings"]
    assert "model.d_head" not in dict(map(tuple, run["settings"]))  # as by default
    assert tree(tiny) == before


def test_frames_are_the_maps_of_the_snapshots(tiny: Path) -> None:
    run = only("tiny")
    lines = [json.loads(line) for line in (tiny / "heads.jsonl").read_text().splitlines()]
    whole = {line["step"]: line["maps"] for line in lines if "maps" in line}
    assert [frame["step"] for frame in run["frames"]] == list(whole) and run["maps_shape"] == [[6, 6]] * 2
    for frame in run["frames"]:
        cells = iter(base64.b64decode(frame["maps"]))
        for layer in whole[frame["step"]]:
            for head in layer:
                assert [[next(cells) for _ in range(6)] for _ in range(6)] == [r + [0] * (6 - len(r)) for r in head]
        assert next(cells, None) is None


def test_the_losses_of_all_ablations_are_kept(tiny: Path) -> None:
    run, every = only("tiny"), 2**6 - 1
    losses, clean = run["ablation"]["coalitions"], run["ablation"]["clean"]
    assert len(losses) == every + 1 and losses[every] == pytest.approx(clean, abs=1e-4)
    for bit, (delta, _) in enumerate(run["ablation"]["singles"]):
        assert losses[every ^ 1 << bit] == pytest.approx(clean + delta, abs=2e-4)
    two = {
        row["way"]: row
        for row in mhsa("inspect-heads", "tiny", "--ablate", "L0.H1,L1.H2", "--json").json["ablation"]["ways"]
    }
    assert losses[every ^ 1 << 1 ^ 1 << 5] == pytest.approx(two["uniform"]["loss"], abs=2e-4)
    without_hashes(tiny)
    older = json.loads((tiny / "heads.json").read_text())
    del older["coalitions"]
    (tiny / "heads.json").write_text(json.dumps(older))
    found = only("tiny")["ablation"]
    assert found["coalitions"] is None and found["singles"] == run["ablation"]["singles"]


def test_files_are_replaced_only_where_they_are_named(tiny: Path) -> None:
    said = mhsa("report")
    assert said.code == 0 and re.match(r"wrote report-tiny\.html  \d+ kB\n", said.out)
    assert said.out.endswith("next: python -m webbrowser report-tiny.html\n") and said.err == ""
    first = Path("report-tiny.html").read_bytes()
    Path("report-tiny.html").write_bytes(b"mine")
    said = mhsa("report", "tiny")
    assert said.code == 2 and "mhsa report tiny -o report-tiny.html" in said.err
    assert Path("report-tiny.html").read_bytes() == b"mine"
    assert mhsa("report", "tiny", "-o", "report-tiny.html").code == 0
    assert Path("report-tiny.html").read_bytes() == first
    said = mhsa("report", "-o", "page.svg")
    assert said.code == 2 and "page.html" in said.err and not Path("page.svg").exists()
    before = sorted(Path().rglob("*"))
    assert mhsa("report", "tiny", "--json").code == 0 and sorted(Path().rglob("*")) == before


def test_two_runs_stand_side_by_side(tiny: Path) -> None:
    assert mhsa(*TINY, "n_heads=4", "--name", "four").code == 0
    assert mhsa("report", "tiny", "four").code == 0
    document = data(Path("report-tiny-four.html"))
    assert [run["shape"] for run in document["runs"]] == [[2, 3], [2, 4]]
    assert document["runs"] == [only("tiny"), only("four")]
    said = mhsa("report", "tiny", "four", "tiny/")
    assert said.code == 2 and "3" in said.err and said.out == ""


NAMES = ["a</script><script>alert(1)</script>", "two\nlines & <b>", "\u2028\u202e\U0001f600\udc80"]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_is_text(name: str, tiny: Path) -> None:
    folder = tiny.rename(tiny.parent / name.replace("/", "\\"))
    assert mhsa("report", folder, "-o", "r.html").code == 0
    page = Path("r.html").read_text(encoding="utf-8")
    assert page.count("</script>") == 3 and "alert(1)</" not in page and "<b>" not in page
    assert data(Path("r.html"))["runs"][0]["name"].isprintable()
    if "\n" not in name:
        assert mhsa("report", folder).code == 0 and len(list(Path().glob("report-*.html"))) == 1


def unfinished(run: Path) -> None:
    (run / "heads.json").unlink()


def without_checkpoints(run: Path) -> None:
    unfinished(run)
    shutil.rmtree(run / "checkpoints")


def without_snapshots(run: Path) -> None:
    without_checkpoints(run)
    (run / "heads.jsonl").unlink()


def stale(run: Path) -> None:
    content = json.loads((run / "heads.json").read_text())
    (run / "heads.json").write_text(json.dumps({**content, "step": 3, "weights_sha256": "0" * 64}))


@pytest.mark.parametrize(
    ("damage", "heads", "measured"),
    [(unfinished, 6, True), (without_checkpoints, 6, False), (without_snapshots, 0, False), (stale, 6, True)],
)
def test_what_a_run_lacks_is_measured_or_left_out(
    damage: Callable[[Path], None], heads: int, measured: bool, tiny: Path
) -> None:
    whole = only("tiny")
    without_hashes(tiny)
    damage(tiny)
    run = only("tiny")
    assert len(run["heads"]) == heads and all((head["why"] != "") is measured for head in run["heads"])
    assert (run["ablation"] == whole["ablation"]) is measured
    assert run["curve"] == whole["curve"] and run["settings"] == whole["settings"]
    if measured:
        assert (run["weights"], run["tokens"], run["checks"]) == (whole["weights"], whole["tokens"], None)
    elif heads:
        last = run["frames"][-1]
        assert run["tokens"] == list("012345") and "step 10" in run["checks"]
        cells = base64.b64decode(last["maps"])
        assert [round(100 * weight) for row in run["weights"][0][0] for weight in row] == list(cells[:36])


def test_a_run_that_was_stopped_is_measured_at_its_checkpoint(here: Path) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with at_step(4, lambda: signal.raise_signal(signal.SIGINT)):
        assert mhsa(*TINY, "--name", "part").code == 130
    signal.signal(signal.SIGINT, before)
    run = only("part")
    assert "stopped" in run["checks"] and ["steps", "4 of 10"] in run["facts"] and len(run["heads"]) == 6
    assert all(head["why"] for head in run["heads"])


def test_runs_of_every_kind_have_a_page(here: Path) -> None:
    custom.write(here)
    kinds = {
        "untrained": ["epochs=0"],
        "one": ["n_layers=1", "n_heads=1", "d_model=4"],
        "all": ["model.causal=false"],
        "custom": ["model.attention=mine.py:Mine"],
        "quiet": ["model.attention=mine.py:Quiet"],
    }
    found = {}
    for name, settings in kinds.items():
        assert mhsa(*TINY, *settings, "--name", name).code == 0
        found[name] = only(name)
    assert found["untrained"]["curve"]["train"] == [] and len(found["untrained"]["frames"]) == 1
    assert found["one"]["shape"] == [1, 1] and len(found["one"]["ablation"]["coalitions"]) == 2
    assert not found["all"]["causal"] and found["all"]["maps_shape"] == [[6, 6]] * 2
    assert found["custom"]["ablation"] is None and all(head["why"] for head in found["custom"]["heads"])
    quiet = found["quiet"]
    assert (quiet["heads"], quiet["weights"], quiet["tokens"], quiet["shape"]) == ([], [], [], [0, 0])
    assert len(quiet["sentences"]) == 1 and len(quiet["curve"]["train"]) == 10
    (here / "runs/custom/heads.json").unlink()
    without_hashes(here / "runs/custom")
    said = mhsa("report", "custom")
    assert said.code == 2 and "--attention" in said.err and not Path("report-custom.html").exists()
    assert mhsa("report", "custom", "--attention", "mine.py:Mine").code == 0


def test_models_of_two_parts_and_models_made_elsewhere_have_a_page(here: Path) -> None:
    assert mhsa("train", *SMALL, "model.encoder_layers=1", "--name", "parts").code == 0
    run = only("parts")
    assert [part["role"] for part in run["parts"]] == ["encoder", "decoder", "cross"]
    kept, lines = json.loads(Path("runs/parts/heads.json").read_text()), Path("runs/parts/heads.jsonl").read_text()
    last = json.loads(lines.splitlines()[-1])["maps"]
    sizes, cells = [], iter(base64.b64decode(run["frames"][-1]["maps"]))
    for part, layer, whole, frame in zip(run["parts"], run["weights"], kept["weights"], last, strict=True):
        (top, bottom), (left, right) = part["queries"], part["keys"]
        sizes.append([bottom - top, right - left])
        for head, own, percents in zip(layer, whole, frame, strict=True):
            assert head == [pytest.approx(row[left:right], abs=5.1e-4) for row in own[top:bottom]]
            filled = [row + [0] * (len(own) - len(row)) for row in percents]
            assert [next(cells) for _ in range(math.prod(sizes[-1]))] == sum(
                (r[left:right] for r in filled[top:bottom]), []
            )
    assert run["maps_shape"] == sizes and next(cells, None) is None
    assert mhsa("train", *SMALL, "--name", "source").code == 0
    weights = max(Path("runs/source").glob("checkpoints/*/model.safetensors"))
    assert mhsa("train", *SMALL[:4], "epochs=0", f"train.init={weights}", "--name", "made").code == 0
    made = only("made")
    assert made["origin"] == str(weights) and made["frames"] == made["steps"] == made["curve"]["train"] == []
    assert made["step"] is None
    assert all(head["lifts"] == [] and head["why"] for head in made["heads"])


def test_a_sweep_shows_the_median_the_extremes_and_the_failures(here: Path) -> None:
    grid = ["lr=5e-3,1e4", "n_layers=2", "residual=true"]
    assert mhsa("sweep", *SMALL, *grid, "--seeds", 4, "--name", "s").code in (0, 3)
    said = mhsa("report", "s")
    assert said.code == 0, said.err
    document, table = data(Path("report-s.html")), mhsa("sweep", "show", "s", "--json").json
    sweep, runs = document["sweep"], document["runs"]
    good, bad = sweep["settings"]
    assert (good["finished"], bad["finished"], bad["solved"]) == (4, 0, [0, 4])
    assert good["median_loss"] == pytest.approx(table["groups"][0]["final_loss"]["estimate"], rel=1e-4)
    assert sweep["axes"] == ["lr"] and len(good["curve"]["steps"]) == len(good["curve"]["low"]) > 0
    shares = mhsa("explain", "s", "--json").json["groups"][0]["labels"]
    assert [row[:3] for row in good["labels"]] == [
        [one["label"] or "no labels", one["models"], one["of"]] for one in shares
    ]
    losses = {row["seed"]: row["final_loss"] for row in table["runs"] if row["status"] == "finished"}
    ordered = sorted(losses, key=lambda seed: losses[seed])
    chosen = {one["why"]: one["seed"] for one in sweep["shown"] if one["setting"] == good["name"]}
    assert chosen == {"median": ordered[1], "best": ordered[0], "worst": ordered[3]}
    failed = [one for one in sweep["shown"] if one["setting"] == bad["name"]]
    assert [one["why"] for one in failed] == ["failed"] * 4 and all(one["error"] for one in failed)
    for one in sweep["shown"]:
        assert f"seed={one['seed']}" in runs[one["run"]]["name"]
    assert len(runs) == 7 and runs[0] == only(f"s/lr=5e-3_seed={ordered[1]}")
    for given, named in ((["s", "s/lr=1e4_seed=42"], "s/lr"), (["s", "--attention", "mine.py:Mine"], "--attention")):
        said = mhsa("report", *given, "-o", "no.html")
        assert said.code == 2 and named in said.err and not Path("no.html").exists()


def test_a_sweep_without_a_finished_trial_is_refused(here: Path) -> None:
    grid = ["lr=1e4", "n_layers=2", "residual=true", "--seeds", "1"]
    assert mhsa("sweep", *SMALL, *grid, "--name", "s").code == 3
    said = mhsa("report", "s")
    assert said.code == 4 and "mhsa sweep show s" in said.err and not list(Path().glob("*.html"))


def test_the_example_for_a_name_is_one_that_works(tiny: Path) -> None:
    for given, example in (("-", "report.html"), (".", "report.html"), ("a.pdf", "a.html")):
        said = mhsa("report", str(tiny), "-o", given)
        assert (said.code, said.out) == (2, "") and said.err.split()[-1] == example
