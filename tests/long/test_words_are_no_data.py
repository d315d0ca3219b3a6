"""No logic reads a sentence: with other words for all claims about heads, everything but the words is unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.records import claim_words, labels
from mhsa_cli.renderers.pictures import sweep_words
from tests.commands.shell import facts, mhsa

SIZES = ["task.name=copy", "vocab_size=7", "seq_len=8", "d_model=4", "lr=0.05", "epochs=1", "eval_sequences=5"]
SIZES += ["steps_per_epoch=70", "batch_size=32"]
# What the program would find in its own words, if it looked for facts there.
MISLEADING = "not labelled, looks like spread, but idle; sharp, unnamed, with stand-ins: lift"
SAID = {"label", "labels", "evidence_parts", "text", "words", "verdict_text"}
CHANGING = {"seconds", "sha256", "started", "order"}


def without_words(value: Any) -> Any:
    """A document without its sentences and without what differs between runs."""
    if isinstance(value, dict):
        said = SAID | CHANGING | {key for key in ("evidence",) if isinstance(value.get(key), str)}
        plain = {key: item for key, item in value.items() if key not in said}
        return {key: without_words(item) for key, item in plain.items()}
    return [without_words(item) for item in value] if isinstance(value, list) else value


def outcome(root: str) -> tuple[list[int], list[Any], str]:
    """Train, run the commands about heads, and return exit codes, documents and output."""
    here = ["--runs", root]
    said = [
        mhsa("train", *SIZES, "n_heads=2", "--name", "run", "--json", *here),
        mhsa("explain", "run", "--json", *here),
        mhsa("inspect-heads", "run", "--json", *here),
        mhsa("sweep", *SIZES, "n_heads=1,2", "--seeds", 1, "--name", "sweep", "--json", *here),
        mhsa("verify", "run", "--json", *here),
    ]
    documents = [one.json for one in said]
    documents[0].pop("run")
    sets = [group["labels"] for group in documents[3]["groups"]]
    documents[3] = {**documents[3], "sets": [[(one["label_ids"], one["models"]) for one in found] for found in sets]}
    for group in documents[3]["groups"]:
        group.pop("labels")
    documents += [json.loads(Path(root, "run/heads.json").read_text()), facts(Path(root, "sweep/n_heads=2_seed=42"))]
    spoken = [mhsa("explain", "run", *here), mhsa("inspect-heads", "run", *here)]
    codes = [one.code for one in (*said, *spoken)]
    text = json.dumps(without_words(documents)).replace(f"{root}/", "runs/")
    return codes, json.loads(text), "".join(one.out for one in spoken)


def test_other_words_change_nothing_but_the_words(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = outcome("plain")
    assert "offset:4:shown" in json.dumps(before[1])
    tables: list[Any] = [labels.TARGETS, labels.SHAPES, labels.ROLES, labels.EXTENTS, labels.ATTENDS_TO]
    tables += [claim_words.NOT_SHOWN, claim_words.OPPOSITE]
    for number, table in enumerate(tables):
        for key in table:
            monkeypatch.setitem(table, key, f"{MISLEADING} {number}.{key}")
    for predicate in claim_words.WORDS.keys() - {"stored"}:  # a file's own words
        monkeypatch.setitem(claim_words.WORDS, predicate, f"{MISLEADING} {predicate}")
    for written in ("_not_shown", "_amount", "_shares", "formed_words"):
        monkeypatch.setattr(sweep_words, written, lambda *_: MISLEADING)
    after = outcome("other")
    assert after[:2] == before[:2]
    assert before[2] != after[2] and MISLEADING.split()[-1] in after[2]
