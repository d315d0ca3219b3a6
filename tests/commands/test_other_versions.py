"""A run or sweep of another version: what is whole by its hash and cannot be read is refused by name, and no damage."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mhsa_cli.errors import OtherVersionError, RunError
from mhsa_cli.runs import commit, disk
from mhsa_cli.runs.json_file import dump_sealed
from mhsa_cli.runs.listing import load_sealed
from tests.commands.shell import facts, mhsa
from tests.commands.test_verify_command import NEWEST, states

# What another version may have written: a task, a key, a section, a value, a wider range.
NEWER = [
    ("name: shift", "name: of-9.0", "of-9.0"),
    ("seq_len: 6", "seq_len: 6\n  jitter: 3", "jitter"),
    ("train:", "data: {shards: 2}\ntrain:", "data"),
    ("norm: layernorm", "norm: groupnorm", "groupnorm"),
    ("keep: 2", "keep: all", "all"),
    ("seed: 8", "seed: -8", "-8"),
]


def rewrite(run: Path, old: str, new: str, version: str = "9.0") -> None:
    """Let another version have written the config: run.json lists the hash of what it wrote."""
    text = (run / "config.yaml").read_text().replace(old, new)
    assert new in text
    (run / "config.yaml").write_text(text)
    info = load_sealed(run / "run.json")
    info["files"]["config.yaml"] = disk.digest([text.encode()])
    (run / "run.json").write_bytes(dump_sealed({**info, "mhsa": version}))


@pytest.mark.parametrize(("old", "new", "named"), NEWER)
def test_settings_that_this_version_lacks_are_named_and_no_damage(old: str, new: str, named: str, tiny: Path) -> None:
    rewrite(tiny, old, new)
    found = states("tiny")
    assert found["config.yaml"] == "other version" and "wrong" not in found.values()
    assert mhsa("verify", "tiny").code == 4
    readers = (["generate", "tiny", "--prompt", "3"], ["train", "--resume", "tiny"], ["export", "tiny", "--to", "csv"])
    for command in readers:
        said = mhsa(*command)
        assert (said.code, said.out) == (4, "") and named in said.err and "9.0" in said.err
    assert mhsa("explain", "tiny").code == 0  # which reads no config
    (tiny / "config.yaml").write_text((tiny / "config.yaml").read_text() + "#")
    assert states("tiny")["config.yaml"] == "wrong" and mhsa("verify", "tiny").code == 4


def test_a_run_without_hashes_may_be_damaged_as_well(tiny: Path) -> None:
    rewrite(tiny, "name: shift", "name: of-9.0")
    (tiny / "run.json").write_text(json.dumps(facts(tiny)))
    assert states("tiny")["config.yaml"] == "wrong"


def test_a_checkpoint_with_settings_of_another_version_is_no_damage(tiny: Path) -> None:
    files = commit.read_directory(tiny / NEWEST)
    state = json.loads(files["state.json"])
    state["config"]["task"]["name"] = "of-9.0"
    commit.commit_directory(tiny / "checkpoints", "step-00000010", {**files, "state.json": json.dumps(state).encode()})
    assert states("tiny")[NEWEST] == "other version" and mhsa("verify", "tiny").code == 4
    said = mhsa("generate", "tiny", "--prompt", "3")
    assert said.code == OtherVersionError.exit_code == RunError.exit_code and "`of-9.0`" in said.err


def test_a_plan_of_another_version_is_refused_by_name(here: Path) -> None:
    small = ["seq_len=3", "d_model=4", "n_heads=1", "epochs=0", "eval_sequences=1"]
    assert mhsa("sweep", *small, "--seeds", 1, "--name", "s").code == 0
    plan = load_sealed(Path("runs/s/sweep.json"))
    plan["cells"][0]["config"]["model"] |= {"norm": "groupnorm", "gate": 2}
    Path("runs/s/sweep.json").write_bytes(dump_sealed(plan))
    said = mhsa("sweep", "--resume", "s")
    assert said.code == 4 and "`groupnorm`" in said.err and "`gate`" in said.err
    assert states("s")["sweep.json"] == "other version" and mhsa("verify", "s").code == 4
