"""The run folder: names, finding, listing, round trips, and damage without a crash."""

from __future__ import annotations

import errno
import json
import os
import shlex
import shutil
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mhsa_cli.errors import MhsaError, RunError, UsageError
from mhsa_cli.runs.disk import refused_with
from mhsa_cli.runs.listing import list_runs
from mhsa_cli.runs.names import RESERVED, check_name, prepare_root, runs_root
from mhsa_cli.runs.new_folder import check_disk_space
from mhsa_cli.runs.run_dir import RunDir
from mhsa_cli.text import byte_size, escape, quoted
from tests.refusals import fact, refusal


@pytest.fixture
def run(tmp_path: Path):
    with RunDir.create(tmp_path / "runs", "mine", command=["mhsa", "train"]) as run:
        yield run


# -- names and places -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["", ".", "..", ".hidden", "-rf", "a/b", "a\\b", "/abs", "a\nb", "a\x1bb", "a\0b", "a\x7f", "x" * 101, "é" * 51]
    + ["con", "NUL.txt", "Lpt1", "a:b", "a*", "what?", "a<b", 'a"b', "a|b", "end.", "end ", " start"],
)
def test_bad_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError) as caught:
        RunDir.create(tmp_path / "runs", name)
    assert caught.value.exit_code == 2
    assert str(caught.value).isprintable() or "\n" in str(caught.value)
    assert "\x1b" not in str(caught.value)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("name", ["x" * 100, "é" * 50, "[red]x", "[bold]", "caf\udce9", "a b", "x.1", "#1", "$X", "~"])
def test_odd_names_work_and_can_be_printed(tmp_path: Path, name: str) -> None:
    with RunDir.create(tmp_path, name) as run:
        run.commit_checkpoint(7, {"a": b"x"})
        run.append("metrics.jsonl", [{"kind": "eval", "step": 7}])
        run.update(name=name)
    found = RunDir.open(tmp_path, name)
    assert found.read_run_json()["name"] == name == found.name
    assert found.load_checkpoint().step == 7
    assert [item.name for item in list_runs(tmp_path)] == [name]
    with pytest.raises(MhsaError) as caught:
        RunDir.create(tmp_path, name)
    assert str(caught.value).encode("utf-8")
    assert ("\\xe9" in str(caught.value)) == ("\udce9" in name)


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])))
def test_quoted_text_is_one_word_of_the_shell_on_one_line(text: str) -> None:
    assert quoted(text).isprintable() and shlex.split(quoted(text)) == [escape(text)]


def test_paths_are_shown_with_escapes() -> None:
    assert escape("[red]x é") == "[red]x é"
    assert escape("caf\udce9\n\x1b[2J\u202e") == "caf\\xe9\\n\\x1b[2J\\u202e"


def test_the_root_is_given_or_the_environment_or_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MHSA_RUNS", raising=False)
    assert runs_root() == Path("runs")
    monkeypatch.setenv("MHSA_RUNS", "")
    assert runs_root() == Path("runs")
    monkeypatch.setenv("MHSA_RUNS", "elsewhere")
    assert runs_root() == Path("elsewhere")
    assert runs_root(Path("given")) == Path("given")


def test_a_root_that_cannot_be_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    cases = {"file": "no-folder", "file/runs": "storage", "a/b": "no-folder", "dangling": "no-folder"}
    for root, code in cases.items():
        error = refusal(lambda: RunDir.create(tmp_path / root, "x"))  # noqa: B023
        assert (error.code, error.exit_code) == (code, 5)
    assert not (tmp_path / "nowhere").exists()
    assert refused_with(refusal(lambda: list_runs(tmp_path / "file"))) == errno.ENOTDIR


def test_a_root_that_the_system_will_not_make_is_not_blamed_on_the_folder_above(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:  # as /proc does
        raise FileNotFoundError(errno.ENOENT, "", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    error = refusal(lambda: prepare_root(tmp_path / "runs"))
    assert (error.code, error.path, refused_with(error)) == ("storage", tmp_path / "runs", errno.ENOENT)
    assert "--runs DIR" in str(error.hint)


def test_a_number_of_bytes_has_its_unit() -> None:
    sizes = {0: "0 bytes", 1023: "1,023 bytes", 1024: "1.0 KiB", 3 << 19: "1.5 MiB", 16 << 30: "16.0 GiB"}
    assert {count: byte_size(count) for count in sizes} == sizes


def test_too_little_space_is_reported_with_both_sizes(run: RunDir) -> None:
    check_disk_space(run.path, 1)
    error = refusal(lambda: check_disk_space(run.path, 10**18))
    assert error.code == "no-space" and ": 909,494.7 TiB are needed, " in error.message
    assert fact(lambda: check_disk_space(run.path / "nowhere", 1)) == ("storage", "nowhere")


@pytest.mark.parametrize("word", RESERVED)
def test_a_word_of_the_command_line_is_not_a_name_for_a_run(word: str) -> None:
    assert fact(lambda: check_name(word)) == ("bad-name", "")
    assert check_name(f"{word}-2") == f"{word}-2"


# -- finding ----------------------------------------------------------------------------------------------------------


def test_a_run_is_found_by_name_and_by_path_and_may_move(run: RunDir, tmp_path: Path, monkeypatch) -> None:
    run.commit_checkpoint(3, {"a": b"x"})
    root = run.path.parent
    moved = tmp_path / "moved [here]"
    shutil.copytree(run.path, moved)
    (tmp_path / "linked").symlink_to(run.path)
    monkeypatch.chdir(tmp_path)
    for name in ("mine", "runs/mine", "runs/mine/", str(run.path), moved, "moved [here]", "linked", "./linked"):
        assert RunDir.open(root, name).load_checkpoint() == (3, {"a": b"x"}, ())
    monkeypatch.chdir(run.path)
    assert RunDir.open(Path("nowhere"), ".").name == "mine"


def test_the_reason_why_a_path_is_not_a_run_is_named(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = run.path.parent
    monkeypatch.chdir(tmp_path)
    (root / "foreign").mkdir()
    (root / "file").write_text("x")
    cases = {
        "mien": "did you mean: mine",
        "x" * 5000: "there is no run",
        "a/b": "there is no run folder a/b",
        "foreign": "it has no run.json",
        "file": "it is not a folder",
        "runs/file/x": "there is no run folder",
        "/": "it has no run.json",
    }
    for name, says in cases.items():
        with pytest.raises(RunError) as caught:
            RunDir.open(root, name)
        assert says in str(caught.value)
        assert caught.value.exit_code == 4
    for name in ("", "a\0b"):
        with pytest.raises(UsageError):
            RunDir.open(root, name)


def test_the_newest_is_the_one_started_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for root in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(RunError) as caught:
            RunDir.open(root, "newest")
        assert "train one: mhsa train task.name=copy" in str(caught.value)
    for name in ("z", "a", "m"):
        RunDir.create(tmp_path, name).close()
    monkeypatch.setattr(time, "time_ns", lambda: 10**15)  # the clock is set back
    RunDir.create(tmp_path, "b").close()
    RunDir.create(tmp_path, "c").close()
    os.utime(tmp_path / "z")
    (tmp_path / "z" / "heads.json").write_text("{}")
    shutil.copytree(tmp_path / "a", tmp_path / "zz-copy")
    assert [item.name for item in list_runs(tmp_path)] == ["c", "b", "m", "zz-copy", "a", "z"]
    assert RunDir.open(tmp_path, "newest").name == "c"
    (tmp_path / "c" / "run.json").write_text("{")
    assert RunDir.open(tmp_path, "newest").name == "b"


def test_listing_survives_whatever_lies_there(run: RunDir, tmp_path: Path) -> None:
    root = run.path.parent
    (root / "README.md").write_text("x")
    (root / ".git").mkdir()
    (root / "foreign").mkdir()
    good = json.loads((run.path / "run.json").read_text())
    broken = {
        "newer": json.dumps({**good, "format": 3}),
        "none": json.dumps({key: value for key, value in good.items() if key != "format"}),
        "text": json.dumps({**good, "format": "1"}),
        "cut": json.dumps(good)[:40],
        "list": "[]",
        "deep": "[" * 100_000,
        "digits": '{"format": ' + "9" * 10_000 + "}",
        "nulls": "\0" * 100,
        "types": json.dumps({**good, "status": 3, "order": "x"}),
        "bytes": "\udcff",
    }
    for name, text in broken.items():
        (root / name).mkdir()
        (root / name / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
    (root / "linked").mkdir()
    (root / "linked" / "run.json").symlink_to(run.path / "run.json")
    rows = list_runs(root)
    assert "run.json:1:41" in next(item.status for item in rows if item.name == "cut")
    found = {item.name: item.problem for item in rows}
    assert found.pop("mine") is None and found.pop("newer") == "newer"
    assert set(found) == {*broken, "foreign", "linked"} - {"newer"} and set(found.values()) == {"damaged"}
    for name in sorted(set(broken) - {"types"}):
        with pytest.raises(RunError) as caught:
            RunDir.open(root, name)
        assert f"{name}/run.json" in caught.value.message
    assert RunDir.open(root, "newest").name == "mine"


# -- text and JSON ----------------------------------------------------------------------------------------------------


def test_run_json_keeps_its_keys_when_it_grows(run: RunDir) -> None:
    first = run.read_run_json()
    assert first["format"] == 2
    assert first["status"] == "running"
    assert first["command"] == ["mhsa", "train"]
    assert first["started"].endswith("+00:00")
    run.update(seed=42, device="cpu")
    run.update(status="stopped", final={"loss": float("nan"), "accuracy": 0.5})
    found = run.read_run_json()
    assert {**first, "status": "stopped", "seed": 42, "device": "cpu"}.items() <= found.items()
    assert found["final"]["loss"] != found["final"]["loss"]
    text = (run.path / "run.json").read_text()
    assert json.loads(text, parse_constant=pytest.fail)["nonfinite"] == {"final/loss": "nan"}
    assert text.endswith("}\n")
    run.update(final={"loss": 0.5})
    assert "nonfinite" not in (run.path / "run.json").read_text()


def test_config_and_heads_round_trip(run: RunDir) -> None:
    text = "# π ≈ 3\nseed: 42\r\n"
    run.write_config(text)
    assert run.read_config_text() == text
    assert fact(run.read_heads) == ("missing", "heads.json")
    inf = float("inf")
    run.write_heads({"weights": [[0.1, inf], [-inf, 1e-300]], "L0.H3": {"a/b~c": inf}, "entropy": None})
    assert run.read_heads() == {
        "format": 2,
        "weights": [[0.1, inf], [-inf, 1e-300]],
        "L0.H3": {"a/b~c": inf},
        "entropy": None,
    }
    json.loads((run.path / "heads.json").read_text(), parse_constant=pytest.fail)
    (run.path / "config.yaml").write_bytes(b"a: \xff")
    assert fact(run.read_config_text) == ("not-utf8", "config.yaml")


def test_entries_that_lead_out_of_the_folder_are_refused(run: RunDir, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text('{"format": 1}\n')
    for name, read, write in (
        ("config.yaml", run.read_config_text, lambda: run.write_config("x")),
        ("heads.json", run.read_heads, lambda: run.write_heads({})),
        (
            "metrics.jsonl",
            lambda: list(run.records("metrics.jsonl")),
            lambda: run.append("metrics.jsonl", [{"step": 1}]),
        ),
        ("run.json", run.read_run_json, lambda: run.update(seed=1)),
    ):
        path = run.path / name
        path.unlink(missing_ok=True)
        path.symlink_to(secret)
        for act in (read, write):
            assert fact(act) == ("no-file", name)
    assert secret.read_text() == '{"format": 1}\n'
