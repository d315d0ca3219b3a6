"""Errors: code, path, hint, the text relative to a folder, and the same after pickling."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from mhsa_cli.config.problems import ConfigError
from mhsa_cli.errors import IS, DamageError, MhsaError, StorageError, UsageError
from mhsa_cli.records.verify import Check
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.runs.verify import Plan, Rhythm, Verifier
from mhsa_cli.text import Head
from tests.refusals import faults

RUN = Path("some runs/r\n1")


@pytest.mark.parametrize(
    ("error", "message", "seen", "of_it"),
    [
        (MhsaError("what it says"), "what it says", "what it says", "what it says"),
        (DamageError((RUN / "a", IS, "cut")), "some runs/r\\n1/a is cut", "a is cut", "cut"),
        (DamageError((RUN / "a", " was cut")), "some runs/r\\n1/a was cut", "a was cut", "a was cut"),
        (DamageError((Path("a"), IS, "cut")), "a is cut", "a is cut", "cut"),
        (DamageError((RUN / "b", IS, "cut")), "some runs/r\\n1/b is cut", "b is cut", "b is cut"),
        (StorageError(("no ", RUN / "a", ": full")), "no some runs/r\\n1/a: full", "no a: full", "no a: full"),
        (
            UsageError((RUN, IS, "taken")),
            "some runs/r\\n1 is taken",
            "some runs/r\\n1 is taken",
            "some runs/r\\n1 is taken",
        ),
    ],
)
def test_an_error_is_seen_from_a_folder(error: MhsaError, message: str, seen: str, of_it: str) -> None:
    assert (error.message, error.seen_from(RUN), error.seen_from(RUN, "a")) == (message, seen, of_it)


def test_an_error_is_the_same_in_another_process() -> None:
    for error in (MhsaError("x"), DamageError((RUN, IS, "cut"), "a way out", "size"), StorageError("full", None)):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error)
        assert [again.code, again.path, again.hint] == [error.code, error.path, error.hint]
    config = ConfigError(faults("train: {lr: x, keep: y}"))
    assert pickle.loads(pickle.dumps(config)).problems == config.problems and len(config.problems) == 2


def test_verify_shows_paths_relative_to_the_run(tmp_path: Path) -> None:
    with RunDir.create(tmp_path, "r") as run:
        run.append("metrics.jsonl", [{"kind": "eval", "step": 0, "loss": 2.5, "accuracy": 0.25}])
        run.write_heads({"step": 0})
        run.update(status="failed", step=0)
    (run.path / "metrics.jsonl").unlink()
    (run.path / "heads.json").write_text("{")
    plan = Plan(Rhythm(1, 3), [Head(0, 0)], has_text=False)
    found = Verifier(run.path, Check("config.yaml", "ok", ""), plan, lambda _: "").verify()
    told = {check.name: check.found for check in found.damage}
    assert told["metrics.jsonl"] == "missing" and str(tmp_path) not in str(found.checks)
    assert told["heads.json"].startswith("damaged or was edited: ") and "; heads.json:1:2: " in told["heads.json"]
