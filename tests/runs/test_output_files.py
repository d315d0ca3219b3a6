"""Output files outside runs: under any free name, all or nothing, never over another file."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mhsa_cli.errors import StorageError
from mhsa_cli.runs.archive import unpack_runs
from mhsa_cli.runs.atomic import temporary_name, write_file_atomic
from mhsa_cli.runs.commit import commit_directory, sweep_orphans
from mhsa_cli.runs.output_files import check_new, write_new

LONGEST = "n" * 255  # bytes, what common file systems take
WRITERS: dict[str, Callable[[Path], object]] = {
    "a file": lambda path: write_new(path, {"": b"1"}),
    "a file in place of another": lambda path: write_file_atomic(path, b"1"),
    "a folder": lambda path: write_new(path, {"a": b"1", "b": b"22"}),
    "a checkpoint": lambda path: commit_directory(path.parent, path.name[:240], {"a": b"1"}),  # `.replaced` has room
    "a run": lambda path: unpack_runs(path.parent, {path.name: {"run.json": b"1"}}),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_any_name_that_the_file_system_takes_can_be_written(writer: str, tmp_path: Path) -> None:
    WRITERS[writer](tmp_path / LONGEST)
    WRITERS[writer](tmp_path / "n")
    left = [path.name for path in tmp_path.iterdir()]
    assert sorted(map(len, left)) == [1, 240 if writer == "a checkpoint" else 255]


def test_a_name_that_is_too_long_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    for files in ({"": b"1"}, {"a": b"1"}):
        check_new(tmp_path / (LONGEST + "n"))
        with pytest.raises(StorageError):
            write_new(tmp_path / (LONGEST + "n"), files)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("links", [True, False])
def test_a_file_made_meanwhile_is_not_written_over(
    links: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_links(*_: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    if not links:
        monkeypatch.setattr(os, "link", no_links)
    write_new(tmp_path / "free", {"": b"theirs"})
    with pytest.raises(StorageError):
        write_new(tmp_path / "free", {"": b"ours"})
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {"free": b"theirs"}


def test_a_loop_of_links_is_not_a_run_folder(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    check_new(tmp_path / "loop" / "x")
    with pytest.raises(StorageError):
        write_new(tmp_path / "loop" / "x", {"": b"1"})


def test_leftovers_of_this_version_and_of_older_ones_are_swept(tmp_path: Path) -> None:
    for name in (temporary_name(), f".tmp-run.json-{os.getpid()}-0123abcd", ".tmp-12-0123abcd"):
        (tmp_path / name).touch()
    (tmp_path / ".tmp-0123abcd").touch()
    sweep_orphans(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [".tmp-0123abcd"]
