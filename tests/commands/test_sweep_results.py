"""What a trial of a sweep leaves in its folder: the same as `mhsa train`, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mhsa_cli.runs.run_dir import RunDir
from tests.commands.shell import facts, mhsa

SMALL = ["vocab_size=12", "d_model=16", "epochs=2", "steps_per_epoch=12", "batch_size=5", "eval_sequences=9"]
FORMS = {
    "bare": ["task.name=copy", "task.seq_len=6", "n_heads=2"],
    "deep": ["task.name=induction", "task.seq_len=10", "n_layers=2", "residual=true", "norm=layernorm", "n_heads=4"],
}


def heads(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "heads.json").read_text())
    assert found.pop("run") == run.name
    return found


@pytest.mark.parametrize("form", FORMS)
def test_heads_are_measured_alike_in_a_sweep_and_alone(form: str) -> None:
    settings = [*SMALL, *FORMS[form]]
    assert mhsa("sweep", *settings, "--seeds", 3, "--name", "s").code == 0
    for seed in (42, 44):
        assert mhsa("train", *settings, f"seed={seed}", "--name", f"alone-{seed}").code == 0
        alone, swept = Path(f"runs/alone-{seed}"), Path(f"runs/s/seed={seed}")
        found = heads(swept)
        assert found == heads(alone)
        own = ("final", "eval_rows_seen", "chance", "weights_sha256", "step", "status")
        assert [facts(alone)[key] for key in own] == [facts(swept)[key] for key in own]
    assert heads(Path("runs/s/seed=42")) != heads(Path("runs/s/seed=43"))


def test_a_trial_is_marked_done_last_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Killed in the middle of writing, it has no result, however much of it is there."""
    kept: list[tuple[str | None, list[str]]] = []
    update = RunDir.update

    def watched(run: RunDir, **info: Any) -> None:
        kept.append((info.get("status"), sorted(path.name for path in run.path.iterdir())))
        update(run, **info)

    monkeypatch.setattr(RunDir, "update", watched)
    assert mhsa("sweep", *SMALL, *FORMS["bare"], "--seeds", 2, "--name", "s").code == 0
    done = [files for status, files in kept if status == "finished"]
    assert len(done) == 2 and sum(status is not None for status, _ in kept) == 2
    files = ("checkpoints", "config.yaml", "heads.json", "heads.jsonl", "metrics.jsonl", "run.json")
    assert all(set(files) <= set(found) for found in done)
    assert facts(Path("runs/s/seed=42"))["sweep"]["labels"] is not None


@pytest.mark.parametrize(
    "least",
    [
        ["epochs=0"],
        ["epochs=1", "steps_per_epoch=1", "batch_size=1", "eval_sequences=1", "d_model=1", "n_heads=1"],
        ["task.name=shift", "seq_len=1", "vocab_size=2", "window=1"],
    ],
    ids=["no steps", "ones", "one token"],
)
def test_the_least_that_is_allowed_is_swept_as_it_is_trained(least: list[str]) -> None:
    given = [text.partition("=")[0] for text in least]
    settings = [*least, *(text for text in SMALL if text.partition("=")[0] not in given)]
    said = mhsa("sweep", *settings, "--seeds", 1, "--name", "s", "--json")
    assert said.code == 0 and said.json["runs"][0]["status"] == "finished"
    assert mhsa("train", *settings, "--name", "alone").code == 0
    own = ("step", "final", "weights_sha256")
    assert [facts(Path("runs/alone"))[key] for key in own] == [facts(Path("runs/s/seed=42"))[key] for key in own]
