"""mhsa inspect-heads: every head's map from the stored sample or from one's own tokens, and nothing else touched."""

from __future__ import annotations

import json
import math
import re
import shutil
import sys
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from tests.commands.shell import codes_without_torch, facts, mhsa, tree, without_hashes


def looked(*arguments: object) -> dict[str, Any]:
    said = mhsa("inspect-heads", "--json", *arguments)
    assert said.code == 0, said.err
    document: dict[str, Any] = said.json
    return document


def check_maps(document: dict[str, Any], layers: int, heads: int, T: int) -> None:
    """Causal rows that sum to one, in the promised nesting, with one entropy a head."""
    assert {"run", "step", "task", "tokens", "weights", "heads"} <= document.keys()
    assert len(document["tokens"]) == T and all(isinstance(token, str) for token in document["tokens"])
    assert [len(layer) for layer in document["weights"]] == [heads] * layers
    for head in [head for layer in document["weights"] for head in layer]:
        assert [len(row) for row in head] == [T] * T
        for query, row in enumerate(head):
            assert sum(row) == pytest.approx(1.0, abs=1e-6)
            assert all(weight == 0 for weight in row[query + 1 :])
    named = [(head["layer"], head["head"]) for head in document["heads"]]
    assert named == [(layer, head) for layer in range(layers) for head in range(heads)]


def entropy(head: list[list[float]]) -> float:
    """The mean over queries from 1 of each row's entropy, as a share of what an even row has."""
    rows = [-sum(p * math.log(p) for p in row if p > 0) / math.log(q + 1) for q, row in enumerate(head) if q > 0]
    return sum(rows) / len(rows)


def test_json_has_the_promised_shape(tiny: Path) -> None:
    document = looked("tiny")
    assert (document["run"], document["step"], document["task"]) == ("runs/tiny", 10, "shift")
    check_maps(document, layers=2, heads=3, T=6)
    for head in document["heads"]:
        expected = entropy(document["weights"][head["layer"]][head["head"]])
        assert head["entropy"] == pytest.approx(expected, abs=1e-4)
    maps = [str(head) for layer in document["weights"] for head in layer]
    assert len(set(maps)) == 6  # every head has its own map, not an average


def test_layer_and_head_choose(tiny: Path) -> None:
    whole = looked("tiny")
    one = looked("tiny", "--layer", 1, "--head", 2)
    assert one["weights"] == [[whole["weights"][1][2]]]
    assert [(head["layer"], head["head"]) for head in one["heads"]] == [(1, 2)]
    assert looked("tiny", "--head", 0)["weights"] == [[layer[0]] for layer in whole["weights"]]
    assert looked("tiny", "--layer", 0)["weights"] == [whole["weights"][0]]
    shown = mhsa("inspect-heads", "tiny", "--layer", 1, "--head", 2).out
    assert "L1.H2" in shown and "L0.H2" not in shown and "L1.H1" not in shown


@pytest.mark.parametrize("json_too", [[], ["--json"]])
@pytest.mark.parametrize(
    "choice",
    [
        ("--layer", 2), ("--layer", -1), ("--layer", "L2"), ("--layer", "L0.H1"), ("--layer", ""), ("--head", 3),
        ("--head", -3), ("--head", "x"), ("--head", "L0.H9"), ("--head", "L9"), ("--head", "L0.H1,L9.H0"),
        ("--heads", "L0.H3"), ("--layer", "L0", "--head", "L1.H0"),
    ],
)  # fmt: skip
def test_a_layer_or_head_that_is_not_there_is_refused_with_what_is(
    choice: tuple[Any, ...], json_too: list[str], tiny: Path
) -> None:
    said = mhsa("inspect-heads", "tiny", *choice, *json_too)
    assert (said.code, said.out) == (2, "")
    assert str(choice[-1]).split(",")[-1] in said.err and (len(choice) > 2 or "L1" in said.err)


@pytest.mark.parametrize(
    ("choice", "heads"),
    [
        (["--head", "L1.H2"], [(1, 2)]),
        (["--heads", "l0.h1,L1.H0"], [(0, 1), (1, 0)]),
        (["--head", "L1"], [(1, 0), (1, 1), (1, 2)]),
        (["--head", "2"], [(0, 2), (1, 2)]),
        (["--layer", "L1", "--head", "0,2"], [(1, 0), (1, 2)]),
        (["--layer", "1", "--head", "L1.H1"], [(1, 1)]),
    ],
)
def test_a_head_is_named_the_same_everywhere(choice: list[str], heads: list[tuple[int, int]], tiny: Path) -> None:
    def found(document: Any) -> list[tuple[int, int]]:
        return [(head["layer"], head["head"]) for head in document["heads"]]

    whole, one = looked("tiny"), looked("tiny", *choice)
    assert found(one) == heads == found(looked("tiny", "--scores", *choice))
    assert [m for layer in one["weights"] for m in layer] == [whole["weights"][i][j] for i, j in heads]
    drawn, of_model = mhsa("inspect-heads", "tiny", *choice).out, json.dumps(whole["verdict"])
    named, elsewhere = (set(re.findall(r"L\d\.H\d", text)) for text in (drawn, of_model))
    assert {f"L{i}.H{j}" for i, j in heads} <= named <= {f"L{i}.H{j}" for i, j in heads} | elsewhere
    if "--layer" not in choice:
        assert found(mhsa("explain", "tiny", *choice, "--json").json) == heads
        names = [f"L{i}.H{j}" for i, j in heads]
        assert mhsa("inspect-heads", "tiny", "--ablate", choice[1], "--json").json["ablation"]["heads"] == names


def test_tokens_of_ones_own(tiny: Path) -> None:
    document = looked("tiny", "--tokens", "3 1 4 10")
    assert document["tokens"] == ["3", "1", "4", "10"] and document["step"] == 10
    check_maps(document, layers=2, heads=3, T=4)
    # The stored sample's own tokens give the stored maps: it was taken from this very model.
    stored = looked("tiny")
    again = looked("tiny", "--tokens", " ".join(stored["tokens"]))
    for ours, theirs in zip(again["weights"][1], stored["weights"][1], strict=True):
        assert ours == [pytest.approx(row, abs=2e-6) for row in theirs]
    # A causal map's first rows do not know what follows.
    first = looked("tiny", "--tokens", "3,1,4")["weights"][1][2]
    assert first == [pytest.approx(row[:3], abs=2e-6) for row in document["weights"][1][2][:3]]


@pytest.mark.parametrize("tokens", ["", " ", "11", "-1", "x", "1 2 3 4 5 6 7", "1.5", "9" * 5000])
def test_tokens_that_are_none(tokens: str, tiny: Path) -> None:
    said = mhsa("inspect-heads", "tiny", "--tokens", tokens)
    assert (said.code, said.out) == (2, "") and "--tokens" in said.err


def test_dropout_is_off_when_looking(here: Path) -> None:
    assert mhsa("train", "--config", "tiny.yaml", "model.dropout=0.5", "--name", "wet").code == 0
    check_maps(looked("wet"), layers=2, heads=3, T=6)
    check_maps(looked("wet", "--tokens", "1 2 3"), layers=2, heads=3, T=3)
    assert looked("wet", "--tokens", "1 2 3") == looked("wet", "--tokens", "1 2 3")


def test_one_token_and_one_head() -> None:
    assert mhsa("train", "task.seq_len=1", "n_heads=1", "epochs=1", "steps_per_epoch=2", "--name", "dot").code == 0
    document = looked("dot")
    check_maps(document, layers=1, heads=1, T=1)
    assert document["heads"][0]["entropy"] is None
    for choice in ([], ["--head", 0], ["--tokens", "3"]):
        said = mhsa("inspect-heads", "dot", *choice)
        assert said.code == 0 and "L0.H0" in said.out


def test_looking_changes_nothing_wherever_the_run_is(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tree(tiny)
    expected = looked("tiny")
    for arguments in ([], ["--tokens", "3 1"], ["--json"], ["--head", 1], ["-o", "a.svg"]):
        assert mhsa("inspect-heads", "tiny", *arguments).code == 0
    assert mhsa("curve").code == mhsa("runs").code == 0
    assert tree(tiny) == before
    moved = Path("far/re named").absolute()
    moved.parent.mkdir()
    shutil.move(tiny, moved)
    for place in (moved, "far/re named", "./far/../far/re named/"):
        assert looked(place)["weights"] == expected["weights"]
        assert looked(place, "--tokens", "3 1")["step"] == 10
    assert "next: mhsa explain 'far/re named'" in mhsa("inspect-heads", "far/re named").out
    monkeypatch.setenv("MHSA_RUNS", "far")
    assert looked()["run"] == looked("re named")["run"] == "far/re named"
    assert "next: mhsa explain 're named'" in mhsa("inspect-heads").out
    monkeypatch.chdir(moved)
    assert looked(".")["weights"] == expected["weights"]
    assert {**tree(moved)} == before


def test_maps_that_are_missing_old_or_damaged(tiny: Path) -> None:
    without_hashes(tiny)
    stored, heads = looked("tiny"), tiny / "heads.json"
    text = heads.read_text()
    heads.unlink()
    assert looked("tiny")["weights"] == stored["weights"]
    assert not heads.exists()
    heads.write_text(json.dumps({**json.loads(text), "step": 5}))  # as left by a run that went on and was killed
    assert looked("tiny")["step"] == 10
    for damage in ("", text[:-30], '{"format": 1}', text.replace('"tokens": [', '"tokens": ["7", '), "[]"):
        heads.write_text(damage)
        said = mhsa("inspect-heads", "tiny")
        assert (said.code, said.out) == (4, "") and "heads.json" in said.err
    heads.write_text(text)
    shutil.rmtree(tiny / "checkpoints")
    assert looked("tiny")["weights"] == stored["weights"]
    said = mhsa("inspect-heads", "tiny", "--tokens", "1")
    assert said.code == 4 and "no checkpoint" in said.err


def test_a_picture_in_a_file(tiny: Path) -> None:
    for number, arguments in enumerate(([], ["--json"], ["--head", 1], ["--tokens", "3 1"])):
        file = Path(f"[x] {number}.SVG")
        said = mhsa("inspect-heads", "tiny", "-o", file, *arguments)
        assert said.code == 0 and f"wrote {file}" in said.err
        root = xml.etree.ElementTree.fromstring(file.read_text(encoding="utf-8"))
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and "tiny" in "".join(root.itertext())
    said = mhsa("inspect-heads", "tiny", "-o", "a.gif")
    assert (said.code, said.out) == (2, "") and "a.svg" in said.err
    assert mhsa("inspect-heads", "tiny", "-o", "none/a.svg").code == 5


def test_a_picture_in_every_format(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("PIL")
    begins = {"svg": b"<svg ", "html": b"<!DOCTYPE html>", "png": b"\x89PNG\r\n", "txt": b"attention maps of tiny\n"}
    for command, title in (("inspect-heads", "attention maps of tiny"), ("curve", "loss of tiny")):
        for ending, start in begins.items():
            assert mhsa(command, "tiny", "-o", f"a.{ending}", "--as", "terminal").code == 0
            data = Path(f"a.{ending}").read_bytes()
            assert title.encode() in data and data.startswith(start.replace(b"attention maps of tiny", title.encode()))
    monkeypatch.setitem(sys.modules, "PIL", None)
    said = mhsa("inspect-heads", "tiny", "-o", "b.PNG", "--as", "terminal")
    assert (said.code, said.out) == (2, "") and "pip install 'mhsa-cli[png]'; or write .svg" in said.err


def test_the_stored_sample_needs_no_torch(tiny: Path) -> None:
    commands = (["inspect-heads", "tiny", "--json"], ["inspect-heads", "-o", "a.txt"], ["curve"], ["runs"])
    assert codes_without_torch(*commands) == [0, 0, 0, 0]
    assert facts(tiny)["status"] == "finished"
