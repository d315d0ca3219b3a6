"""A committed folder is read back completely, or refused with the file and the reason."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mhsa_cli.runs.atomic import in_flight, write_file_atomic
from mhsa_cli.runs.commit import (
    MANIFEST,
    _render,
    commit_directory,
    read_directory,
    sweep_orphans,
)
from tests.refusals import fact, refusal

FILES = {"model.safetensors": bytes(range(96)), "state.json": b'{"step": 7}\n', "empty": b""}


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    return commit_directory(tmp_path, "step-00000007", FILES)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / MANIFEST).read_text())


def forge(folder: Path, **changes: object) -> None:
    """Write a manifest whose own hash is right, as an attacker or another version would."""
    content = {**manifest_of(folder), **changes}
    content.pop("sha256")
    (folder / MANIFEST).write_bytes(_render(content))


def test_round_trip_and_layout(saved: Path) -> None:
    assert read_directory(saved) == FILES
    assert names(saved) == sorted([*FILES, MANIFEST])
    assert names(saved.parent) == ["step-00000007"]
    content = manifest_of(saved)
    assert content["format"] == 2
    assert content["files"]["model.safetensors"]["size"] == 96
    assert (saved / MANIFEST).read_bytes().endswith(b"}\n")


@settings(max_examples=40)
@given(st.dictionaries(st.text("abc[]. é\udce9", min_size=1, max_size=9), st.binary(max_size=60), max_size=4))
def test_any_files_round_trip(tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]) -> None:
    files = {name: data for name, data in files.items() if name not in (".", "..")}
    folder = tmp_path_factory.mktemp("any")
    commit_directory(folder, "one", files)
    assert read_directory(folder / "one", "one") == files


def test_an_existing_folder_is_replaced_completely(saved: Path) -> None:
    commit_directory(saved.parent, saved.name, {"other": b"new"})
    assert read_directory(saved) == {"other": b"new"}
    assert names(saved.parent) == [saved.name]


@pytest.mark.parametrize("file", sorted([*FILES, MANIFEST]))
def test_every_truncation_is_found(saved: Path, file: str) -> None:
    whole = (saved / file).read_bytes()
    for length in range(len(whole)):
        (saved / file).write_bytes(whole[:length])
        assert fact(lambda: read_directory(saved)) in ((code, file) for code in ("size", "json", "hash"))
    (saved / file).write_bytes(whole)
    assert read_directory(saved) == FILES


@pytest.mark.parametrize("file", ["weights", MANIFEST])
def test_every_flipped_bit_is_found(tmp_path: Path, file: str) -> None:
    saved = commit_directory(tmp_path, "s", {"weights": bytes(range(96))})
    whole = (saved / file).read_bytes()
    for at in range(len(whole)):
        for bit in range(8):
            changed = bytearray(whole)
            changed[at] ^= 1 << bit
            (saved / file).write_bytes(changed)
            error = refusal(lambda: read_directory(saved))
            assert error.exit_code == 4 and error.path in (saved / file, saved / MANIFEST)


def test_an_appended_byte_is_found(saved: Path) -> None:
    for file in [*FILES, MANIFEST]:
        whole = (saved / file).read_bytes()
        (saved / file).write_bytes(whole + b"\n")
        assert fact(lambda: read_directory(saved)) == ("hash" if file == MANIFEST else "size", file)
        (saved / file).write_bytes(whole)


def test_missing_swapped_and_renamed_files_are_found(saved: Path) -> None:
    (saved / "a").write_bytes(b"")
    (saved / "model.safetensors").rename(saved / "elsewhere")
    assert fact(lambda: read_directory(saved)) == ("missing", "model.safetensors")
    shutil.copy(saved / "state.json", saved / "model.safetensors")
    assert fact(lambda: read_directory(saved)) == ("size", "model.safetensors")
    (saved / "model.safetensors").write_bytes(bytes(reversed(range(96))))
    assert fact(lambda: read_directory(saved)) == ("hash", "model.safetensors")
    (saved / MANIFEST).unlink()
    assert fact(lambda: read_directory(saved)) == ("missing", MANIFEST)


def test_messages_name_the_damage(saved: Path) -> None:
    said = []
    for file, data in (("empty", b"x"), ("state.json", b"{}"), ("model.safetensors", bytes(96))):
        whole = (saved / file).read_bytes()
        (saved / file).write_bytes(data)
        said.append(str(refusal(lambda: read_directory(saved))).removeprefix(f"{saved}/"))
        (saved / file).write_bytes(whole)
    (saved / "empty").unlink()
    said.append(str(refusal(lambda: read_directory(saved))).removeprefix(f"{saved}/"))
    forge(saved, format=3)
    said.append(str(refusal(lambda: read_directory(saved))).removeprefix(f"{saved}/"))
    assert said == [
        "empty is too long: 1 bytes instead of 0",
        "state.json is truncated: 2 of 12 bytes",
        "model.safetensors is damaged: its hash differs from the one in MANIFEST.json",
        "empty is missing",
        "MANIFEST.json was made by a newer mhsa (format 3, this one reads up to 2)\n  update mhsa-cli to read it",
    ]


def test_a_renamed_folder_is_found_where_its_name_matters(saved: Path) -> None:
    moved = saved.rename(saved.with_name("step-00000009"))
    assert read_directory(moved) == FILES
    assert fact(lambda: read_directory(moved, "step-00000009")) == ("renamed", "step-00000009")


def test_files_outside_the_manifest_are_never_opened(saved: Path) -> None:
    (saved / "evil.pt").write_bytes(b"\x80\x04")
    os.mkfifo(saved / "pipe")
    assert read_directory(saved) == FILES


@pytest.mark.parametrize(
    ("number", "code"),
    [(3, "newer-format"), (10**30, "newer-format"), *((other, "format") for other in (0, -1, "x", True, 1.0, None))],
)
def test_newer_and_unknown_formats_differ(saved: Path, number: object, code: str) -> None:
    forge(saved, format=number)
    assert fact(lambda: read_directory(saved)) == (code, MANIFEST)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "..", "a/b", "a\\b", "", "C:x", "a\0b", MANIFEST])
def test_names_that_lead_elsewhere_are_refused(saved: Path, name: str) -> None:
    (saved.parent / "secret").write_bytes(b"x")
    entry = manifest_of(saved)["files"]["state.json"]
    forge(saved, files={name: entry})
    assert fact(lambda: read_directory(saved)) == ("manifest", MANIFEST)
    with pytest.raises(ValueError, match="not a plain file name"):
        commit_directory(saved.parent, "other", {name: b"x"})


@pytest.mark.parametrize(
    "entries",
    [None, [], "x", {"a": None}, {"a": {}}, {"a": {"size": -1, "sha256": "0" * 64}}, {"a": {"size": 1, "sha256": 5}}]
    + [{"a": {"size": True, "sha256": "0" * 64}}, {"a": {"size": 1, "sha256": "0" * 63}}],
)
def test_a_manifest_of_another_structure_is_refused(saved: Path, entries: object) -> None:
    forge(saved, files=entries)
    assert fact(lambda: read_directory(saved)) == ("manifest", MANIFEST)


@pytest.mark.parametrize("raw", [b"", b"\0" * 300, b"[]", b"1", b"{", b"[" * 100_000, b"\xff", b'{"format": NaN}'])
def test_a_manifest_that_is_not_a_json_object_is_refused(saved: Path, raw: bytes) -> None:
    (saved / MANIFEST).write_bytes(raw)
    assert fact(lambda: read_directory(saved)) == ("json", MANIFEST)


def test_huge_files_are_refused_before_they_are_read(saved: Path) -> None:
    for file in ("model.safetensors", MANIFEST):
        os.truncate(saved / file, 1 << 42)  # sparse: reading it would take hours
        assert fact(lambda: read_directory(saved)) == ("size", file)


@pytest.mark.parametrize("file", ["model.safetensors", MANIFEST])
@pytest.mark.parametrize("kind", ["link", "folder", "pipe", "socket"])
def test_only_regular_files_are_read(saved: Path, file: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved / file
    twin = path.rename(saved.parent / "twin")  # same bytes: only the link itself is the fault
    monkeypatch.chdir(saved)
    if kind == "link":
        path.symlink_to(twin)
    elif kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        with socket.socket(socket.AF_UNIX) as door:
            door.bind(file)
    assert fact(lambda: read_directory(saved)) == ("no-file", file)


@pytest.mark.parametrize("kind", ["link", "folder", "pipe"])
def test_a_target_that_is_not_a_file_is_not_replaced(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "run.json"
    if kind == "link":
        path.symlink_to(tmp_path / "far")
    elif kind == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    before = path.lstat()
    assert fact(lambda: write_file_atomic(path, b"x")) == ("no-file", "run.json")
    assert path.lstat().st_ino == before.st_ino
    assert names(tmp_path) == ["run.json"]


def test_a_reader_of_the_older_file_is_not_disturbed(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    write_file_atomic(path, b"old")
    with path.open("rb") as reader:
        write_file_atomic(path, b"new content")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new content"
    assert names(tmp_path) == ["run.json"]


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_modes_follow_the_umask(tmp_path: Path, umask, mask: int) -> None:
    umask(mask)
    folder = commit_directory(tmp_path, "one", FILES)
    write_file_atomic(tmp_path / "run.json", b"{}")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o777 & ~mask
    for path in [tmp_path / "run.json", *folder.iterdir()]:
        assert stat.S_IMODE(path.stat().st_mode) == 0o666 & ~mask, path


def test_only_leftovers_of_dead_writers_are_deleted(tmp_path: Path) -> None:
    zombie = subprocess.Popen([sys.executable, "-S", "-c", ""], stdout=subprocess.PIPE)
    assert zombie.stdout is not None and zombie.stdout.read() == b""  # ended, and not asked for: its id is still taken
    dead = [f".tmp-step-00000009-{pid}-0123abcd" for pid in (zombie.pid, os.getpid(), os.getppid(), 4194399)]
    kept = {f".tmp-x-{os.getpid()}", ".tmp-mine", "step-00000009", f"tmp-x-{zombie.pid}-0123abcd"}
    flying = f".tmp-x-{os.getpid()}-4567cdef"
    for name in [*dead, *kept, flying]:
        (tmp_path / name).mkdir()
        (tmp_path / name / "weights").write_bytes(b"x")
    (tmp_path / f".tmp-run.json-{zombie.pid}-0123abcd").write_bytes(b"x")
    (tmp_path / f".tmp-link-{zombie.pid}-0123abcd").symlink_to(tmp_path / ".tmp-mine")
    in_flight.add(flying)
    sweep_orphans(tmp_path)
    in_flight.discard(flying)
    assert set(names(tmp_path)) == {*kept, flying}
    assert (tmp_path / ".tmp-mine" / "weights").exists()
    sweep_orphans(tmp_path / "nowhere")
    zombie.wait()
