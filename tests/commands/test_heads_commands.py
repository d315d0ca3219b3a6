"""What was measured of heads, at the command line: JSON as promised, tables, sentences, and wrong questions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.commands.shell import facts, mhsa, tree, without_hashes


def document(*arguments: object) -> dict[str, Any]:
    said = mhsa(*arguments, "--json")
    assert said.code == 0, said.err
    found: dict[str, Any] = said.json
    return found


@pytest.fixture(scope="module")
def copying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that learned to copy, so that its heads are named."""
    root = tmp_path_factory.mktemp("copying")
    said = mhsa("train", "task.name=copy", "vocab_size=20", "seq_len=10", "d_model=24", "n_heads=3", "lr=1e-2", "--runs", root, "--name", "c")  # fmt: skip # noqa: E501
    assert said.code == 0, said.err
    return root / "c"


def test_json_of_inspect_heads_keeps_its_promise(copying: Path) -> None:
    found = document("inspect-heads", copying)
    assert {"pattern_matters", "joint_delta_nats"} <= found["verdict"].keys()
    assert found["verdict"]["pattern_matters"] is True and found["verdict"]["joint_delta_nats"] > 0.05
    for head in found["heads"]:
        wanted = {"label", "lift", "uniform", "entropy", "scores", "uniform_delta_nats", "shapley_nats", "evidence"}
        assert wanted <= head.keys()
        assert head["label"] == "offset 5" and head["lift"] == head["scores"]["offset"]["lift"] >= 0.5
        assert head["scores"]["offset"]["distance"] == 5 and max(head["unseen_gaps"].values()) < 0.5
    shares = sum(head["shapley_nats"] for head in found["heads"])
    assert shares == pytest.approx(found["verdict"]["joint_delta_nats"], abs=1e-6)


def test_tables_and_sentences_of_a_run_with_named_heads(copying: Path) -> None:
    maps = mhsa("inspect-heads", copying).out
    assert "offset 5" in maps
    scores = mhsa("inspect-heads", copying, "--scores").out
    assert "induction at" in scores and "random" in scores
    lines = [line for line in mhsa("explain", copying).out.splitlines() if line.startswith("L0.H")]
    assert sorted(line[:5] for line in lines if line[5:7] == "  ") == ["L0.H0", "L0.H1", "L0.H2"]
    one = mhsa("explain", copying, "--heads", "L0.H1", "--why").out
    assert sorted({line[:5] for line in one.splitlines() if line[5:6] == ":"}) == ["L0.H1"]


def test_the_verdict_is_claims_as_data(copying: Path) -> None:
    claims = {claim["id"]: claim for claim in document("explain", copying)["verdict"]["claims"]}
    assert claims["pattern matters"]["status"] == "shown" and claims["pattern matters"]["se"] > 0
    assert claims["labels account"]["estimate"] == pytest.approx(1.0, abs=0.05)
    (label,) = claims["solved by"]["evidence"]["groups"]
    assert label == "offset:5:shown" and claims["solved by"]["evidence"]["accuracy"] >= 0.99
    assert all(claim["text"] for claim in claims.values())


def test_what_takes_long_is_measured_on_demand_and_kept(copying: Path) -> None:
    first, status = document("explain", copying), facts(copying)["status"]
    more = document("explain", copying, "--more")
    assert more == document("explain", copying) != first and facts(copying)["status"] == status
    paths = [claim["evidence"]["path"] for claim in more["verdict"]["claims"] if claim["id"] == "path"]
    assert paths and all(path.endswith(":logits") for path in paths)
    assert mhsa("verify", copying).code == 0


def test_ablation_tells_what_is_lost(copying: Path) -> None:
    found = document("inspect-heads", copying, "--ablate", "L0")["ablation"]
    assert found["heads"] == ["L0.H0", "L0.H1", "L0.H2"]
    ways = {one["way"]: one for one in found["ways"]}
    assert list(ways) == ["none", "uniform", "zero", "mean", "resample"]
    verdict = document("explain", copying)["verdict"]
    assert ways["none"]["delta_nats"] == 0 and ways["none"]["loss"] == pytest.approx(verdict["loss_nats"])
    assert ways["uniform"]["delta_nats"] == pytest.approx(verdict["joint_delta_nats"], abs=1e-6)
    assert ways["uniform"]["accuracy"] < ways["none"]["accuracy"] <= 1
    alone = document("inspect-heads", copying, "--ablate", "l0.h1")["ablation"]["ways"][1]["delta_nats"]
    heads = document("explain", copying)["heads"]
    assert alone == pytest.approx(heads[1]["uniform_delta_nats"], abs=1e-6)


def test_circuits_and_parts_together(copying: Path) -> None:
    found = document("inspect-heads", copying, "--circuits", "--scores", "--head", 2)
    assert [head["head"] for head in found["heads"]] == [head["head"] for head in found["circuits"]["heads"]] == [2]
    shares = found["circuits"]["heads"][0]["qk_shares"]
    assert sum(shares.values()) == pytest.approx(1.0, abs=1e-6) and shares["pos-pos"] > 0.5
    assert found["circuits"]["residual_error"] < 1e-4 and found["circuits"]["heads"][0]["direct_se"] > 0
    assert 0 < found["circuits"]["null_top1"] < found["circuits"]["heads"][0]["ov_top1"]
    shown = mhsa("inspect-heads", copying, "--circuits").out.splitlines()
    columns = next(line.split() for line in shown if line.startswith("head "))
    assert {"positionality", "position", "copies", "direct"} <= {*columns}  # stored scores beside the weights' circuits


def test_patched_paths_and_heads(copying: Path) -> None:
    """A layer between embedding and logits: a head patched whole is its path to the logits."""
    asked = "l0.h1:LOGITS L0.H1, embed:L0.H0, L0.H0+L0.H1+L0.H2:logits,L0.H1:logits"
    found = document("inspect-heads", copying, "--patch", asked)
    paths = {one["path"]: one for one in found["path_patching"]["paths"]}
    assert list(paths) == ["L0.H1:logits", *(f"embedding:L0.H0.{part}" for part in "qkv"), "L0.H0+L0.H1+L0.H2:logits"]
    one, (head,) = paths["L0.H1:logits"], found["activation_patching"]["heads"]
    assert (one["writer"], one["reader"], one["part"], one["n_pairs"]) == ("L0.H1", "logits", None, 64)
    assert (head["layer"], head["head"]) == (0, 1)
    assert head["delta_nats"] == pytest.approx(one["delta_nats"], abs=1e-5) and one["delta_se"] > 0
    together = paths["L0.H0+L0.H1+L0.H2:logits"]
    assert together["delta_nats"] > max(5.0, together["null"], one["delta_nats"])  # answers of another row
    keys = paths["embedding:L0.H0.k"]
    assert (keys["writer"], keys["reader"], keys["part"]) == ("embedding", "L0.H0", "k")
    drawn = mhsa("inspect-heads", copying, "--patch", asked).out
    assert "L0.H0+L0.H1+L0.H2" in drawn and f"{together['delta_nats']:+.4f}" in drawn


def test_the_lens_and_direct_logits(copying: Path) -> None:
    found = document("inspect-heads", copying, "--lens", "--direct", "--circuits", "--head", "1,2")
    steps = found["logit_lens"]["steps"]
    assert [step["layer"] for step in steps] == [None, 0]
    loss = document("explain", copying)["verdict"]["loss_nats"]
    assert steps[1]["loss"] == pytest.approx(loss, abs=1e-6) and steps[0]["loss"] > 2
    direct = found["direct_logits"]
    assert direct["counts"] == [0] * 5 + [64] * 5 and [head["head"] for head in direct["heads"]] == [1, 2]
    for head, circuit in zip(direct["heads"], found["circuits"]["heads"], strict=True):
        figures = [figure for figure in head["by_position"] if figure is not None]
        assert len(figures) == 5 and sum(figures) / 5 == pytest.approx(circuit["direct_logits"], abs=1e-4)


def test_where_no_effect_is_shown_nothing_is_labelled(tmp_path: Path) -> None:
    assert mhsa("train", "epochs=1", "steps_per_epoch=60", "--runs", tmp_path, "--name", "r").code == 0
    for found in (document("inspect-heads", tmp_path / "r"), document("explain", tmp_path / "r")):
        assert found["verdict"]["pattern_matters"] is False
        assert {claim["id"]: claim["status"] for claim in found["verdict"]["claims"]}["no effect shown"] == "not shown"
        for head in found["heads"]:
            assert head["label"] is None and head["claims"][0]["id"] == "not labelled"
    assert "weight  " not in mhsa("inspect-heads", tmp_path / "r").out


def test_looking_leaves_the_run_as_it_is(tiny: Path) -> None:
    before, sha = tree(tiny), facts(tiny)["weights_sha256"]
    for arguments in (
        ["--scores"],
        ["--circuits"],
        ["--ablate", "L1.H0"],
        ["--scores", "-o", "scores.svg", "--as", "terminal"],
    ):
        assert mhsa("inspect-heads", "tiny", *arguments).code == 0
    assert mhsa("explain", "tiny").code == 0
    assert tree(tiny) == before and facts(tiny)["weights_sha256"] == sha
    assert Path("scores.svg").read_text().startswith("<svg")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["inspect-heads", "tiny", "--ablate", "L2.H0"], "--ablate: found `L2.H0`"),
        (["inspect-heads", "tiny", "--ablate", "L0.H0,head 3"], "--ablate: found `head`"),
        (["inspect-heads", "tiny", "--ablate", ""], "--ablate"),
        (["inspect-heads", "tiny", "--ablate", ","], "--ablate"),
        (["explain", "tiny", "--heads", "H1"], "--heads: found `H1`"),
        (["inspect-heads", "tiny", "--scores", "--tokens", "1 2"], "--tokens"),
        (["inspect-heads", "tiny", "--definition", "olsson2022"], "--scores"),
        (["inspect-heads", "tiny", "--scores", "--definition", "mine"], "--definition: found `mine`"),
        (["inspect-heads", "tiny", "--scores", "--definition", "olsson2022"], "needs rows of 101 tokens"),
        (["inspect-heads", "tiny", "--lens", "--tokens", "1 2"], "--tokens"),
        *(
            (["inspect-heads", "tiny", "--patch", text], f"--patch: found `{text}`")
            for text in (
                "L0.H9:L1.H0.k",
                "L0.H0:L1.H9.q",
                "L0.H0:L1.H0.x",
                "L0.H0:L1.H0k",
                "L0.H0:",
                "L0.H0:L1",
                ":logits",
                "L0:L1.H0.v",
                "x:logits",
                "L0.H0+:logits",
                "L9.H0",
                "L0.H0:L1.H0.k:v",
                "L0.H0+L9.H0:logits",
            )
        ),
        (["inspect-heads", "tiny", "--patch", "L1.H0:L0.H0.k"], "--patch: L1.H0:L0.H0.k"),
        (["inspect-heads", "tiny", "--patch", "L0.H0,L1.MLP:L1.H2.v"], "--patch: L1.MLP:L1.H2.v"),
        (["inspect-heads", "tiny", "--patch", "L2.mlp:logits"], "--patch: L2.MLP:logits"),
        (["inspect-heads", "tiny", "--patch", ","], "--patch"),
    ],
)
def test_wrong_questions(arguments: list[str], words: str, tiny: Path) -> None:
    said = mhsa(*arguments)
    assert (said.code, said.out) == (2, "") and words in said.err


def test_a_run_of_an_older_version_is_measured_anew(tiny: Path) -> None:
    without_hashes(tiny)
    expected = document("explain", "tiny")
    heads = json.loads((tiny / "heads.json").read_text())
    del heads["verdict"]
    heads["heads"] = [{key: head[key] for key in ("layer", "head", "entropy")} for head in heads["heads"]]
    (tiny / "heads.json").write_text(json.dumps(heads))
    found = document("explain", "tiny")
    assert found["verdict"]["joint_delta_nats"] == pytest.approx(expected["verdict"]["joint_delta_nats"], abs=1e-6)
    assert len(found["heads"]) == 6


@pytest.mark.parametrize(
    ("part", "value"),
    [
        ("verdict", 3),
        ("verdict", {"text": 1}),
        ("label_id", 7),
        ("label_id", "nose"),
        ("claims", 7),
        ("claims", [{"id": "effect", "text": 3}]),
        ("claims", [{"id": "effect", "text": "x", "subject": "L0.H0", "status": "seen", "evidence": {}}]),
        ("role", "nose"),
        ("scores", {"previous": 1}),
        ("scores", None),
        ("shapley_nats", "x"),
        ("target", "nose"),
    ],  # fmt: skip # noqa: E501
)
def test_damaged_measurements_are_refused_in_words(part: str, value: object, tiny: Path) -> None:
    without_hashes(tiny)
    heads = json.loads((tiny / "heads.json").read_text())
    (heads if part == "verdict" else heads["heads"][1])[part] = value
    (tiny / "heads.json").write_text(json.dumps(heads))
    for command in ("explain", "inspect-heads"):
        said = mhsa(command, "tiny")
        assert (said.code, said.out) == (4, "") and "heads.json is damaged" in said.err


@pytest.mark.parametrize("path", ["scores/previous/lift", "scores/previous/mass", "unseen_gaps/2", "trained_gaps/2"])
def test_a_missing_figure_is_damage_and_no_crash(path: str, tiny: Path) -> None:
    without_hashes(tiny)
    heads = json.loads((tiny / "heads.json").read_text())
    place = heads["heads"][0]
    *parts, last = path.split("/")
    for part in parts:
        place = place[part]
    place[last] = None
    (tiny / "heads.json").write_text(json.dumps(heads))
    said = mhsa("inspect-heads", "tiny", "--scores")
    assert (said.code, said.out) == (4, "") and "heads.json is damaged" in said.err


def test_a_run_that_did_not_end_as_planned_is_introduced_as_such(tiny: Path) -> None:
    assert "tiny, step 10\n" in mhsa("explain", "tiny").out
    (tiny / "run.json").write_text(json.dumps({**facts(tiny), "status": "stopped", "total_steps": 99}))
    for command in (["explain"], ["inspect-heads"], ["inspect-heads", "--scores"]):
        assert "tiny, step 10 of 99: the run is stopped\n" in mhsa(*command, "tiny").out


def test_one_head_shares_its_work_with_nobody() -> None:
    said = mhsa("train", "task.name=copy", "vocab_size=9", "seq_len=4", "d_model=12", "n_heads=1", "epochs=1")
    assert said.code == 0 and "one another" not in said.out and "of 1 heads" not in said.out
