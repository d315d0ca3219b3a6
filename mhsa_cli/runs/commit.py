"""Folders committed by one atomic rename, with a manifest of sizes and SHA-256 digests.

Atomic files alone are not enough: a crash between two of them would leave weights and state of different steps.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
from collections.abc import Collection, Mapping
from pathlib import Path

from mhsa_cli.errors import IS, DamageError
from mhsa_cli.records.formats import FORMAT
from mhsa_cli.runs.atomic import in_flight, remove, sync_folder, temporary_beside, temporary_name, write_new_folder
from mhsa_cli.runs.codec import is_count
from mhsa_cli.runs.disk import OpenFile, digest, read_file, retried, storage_errors
from mhsa_cli.runs.json_file import parse_document
from mhsa_cli.runs.line_ends import check_line_ends
from mhsa_cli.text import escape

MANIFEST = "MANIFEST.json"
REPLACED = ".replaced"  # the older folder of the same name, between two renames

_MANIFEST_LIMIT = 1 << 20
_ORPHAN = re.compile(r"\.tmp-(.+-)?[0-9]{1,18}-[0-9a-f]{8}", re.DOTALL)  # older versions put the target's name first
_SHA256 = re.compile(r"[0-9a-f]{64}")
STILL_VALID = "nothing was replaced: the older checkpoint is still valid"


def commit_directory(parent: Path, name: str, files: Mapping[str, bytes], kept: str = STILL_VALID) -> Path:
    """Write `files` and their manifest as the folder `parent/name`, all or nothing; return its path.

    An existing folder is replaced; between the two renames it is found under `name.replaced`. Raises: StorageError if
    the disk refuses: nothing was replaced and nothing is left over. `kept` is its hint: what is still valid.
    """
    for file in (name, *files):
        if not _is_plain(file):
            raise ValueError(f"not a plain file name: {file!r}")
    target = parent / name
    with storage_errors("save", target, kept), temporary_beside(target) as temporary:
        write_new_folder(temporary, {**files, MANIFEST: _manifest(name, files)})
        _swap_in(temporary, target)
        sync_folder(parent)
    return target


def _swap_in(temporary: Path, target: Path) -> None:
    """Rename the finished folder to its name; an existing one is set aside, and restored on failure."""
    aside = target.with_name(target.name + REPLACED)
    if os.path.lexists(target):
        if os.path.lexists(aside):
            discard(aside)
        retried(os.rename, target, aside)
    try:
        retried(os.rename, temporary, target)
    except BaseException:
        if os.path.lexists(aside) and not os.path.lexists(target):  # it exists if a signal came just after the rename
            retried(os.rename, aside, target)
        raise
    if os.path.lexists(aside):  # or left by a writer that died between its renames
        discard(aside)


def discard(path: Path) -> None:
    """Delete a folder after renaming it, so that a crash leaves no half of it. Failures are ignored."""
    trash = path.with_name(temporary_name())
    with contextlib.suppress(OSError):
        retried(os.rename, path, trash)
        remove(trash)


def read_directory(path: Path, name: str | None = None, without: Collection[str] = ()) -> dict[str, bytes]:
    """Read a committed folder and verify every byte; files that the manifest does not list are never opened.

    `name`, if given, must be the name it was committed under; files in `without` are skipped. Raises: DamageError for
    the first wrong file, NewerFormatError, StorageError.
    """
    manifest = path / MANIFEST
    raw = read_file(manifest, _MANIFEST_LIMIT)
    content = parse_document(raw, manifest)
    entries = content.get("files")
    if not isinstance(entries, dict):
        raise _no_manifest(manifest, "no list of files")
    for file, entry in entries.items():
        if not _is_plain(file):
            raise _no_manifest(manifest, f"{escape(repr(file))} is not a plain file name")
        hashed = isinstance(entry, dict) and _SHA256.fullmatch(str(entry.get("sha256")))
        if not hashed or not is_count(entry.get("size")):
            raise _no_manifest(manifest, f"no size and sha256 of {file}")
    rendered = _render({key: value for key, value in content.items() if key != "sha256"})
    if raw != rendered:
        check_line_ends(manifest, lambda: io.BytesIO(raw), lambda pieces: b"".join(pieces) == rendered)
        raise DamageError((manifest, IS, "damaged: its own hash differs"), code="hash")
    if name is not None and content.get("name") != name:
        raise DamageError((path, f" was renamed: it was saved as {escape(str(content.get('name')))}"), code="renamed")
    return {
        file: _read_listed(path / file, entry["size"], entry["sha256"])
        for file, entry in entries.items()
        if file not in without
    }


def _no_manifest(path: Path, why: str) -> DamageError:
    return DamageError((path, IS, f"not a manifest: {why}"), code="manifest")


def _read_listed(path: Path, size: int, sha256: str) -> bytes:
    """Read a file of this size and hash. Raises: DamageError, StorageError."""
    expected = {"size": size, "sha256": sha256}
    with OpenFile(path) as file:
        if file.size == size and digest([data := file.read()]) == expected:
            return data
        if file.size <= 2 * size:  # changed line ends at most double the size
            check_line_ends(path, file.lines, lambda pieces: digest(pieces) == expected)
    if file.size < size:
        raise DamageError((path, IS, f"truncated: {file.size} of {size} bytes"), code="size")
    if file.size > size:
        raise DamageError((path, IS, f"too long: {file.size} bytes instead of {size}"), code="size")
    raise DamageError((path, IS, f"damaged: its hash differs from the one in {MANIFEST}"), code="hash")


def _manifest(name: str, files: Mapping[str, bytes]) -> bytes:
    entries = {file: digest([data]) for file, data in files.items()}
    return _render({"format": FORMAT, "name": name, "files": entries})


def _render(content: Mapping[str, object]) -> bytes:
    """Write a manifest in its one form, so that comparing bytes finds every changed bit."""
    sha256 = digest([json.dumps(content, sort_keys=True).encode("ascii")])["sha256"]
    return (json.dumps({**content, "sha256": sha256}, sort_keys=True, indent=1) + "\n").encode("ascii")


def _is_plain(file: str) -> bool:
    bad = not file or file in (".", "..", MANIFEST) or file.startswith(".tmp-")
    return not bad and not any(char in '/\\:"' or ord(char) < 32 for char in file)


def sweep_orphans(parent: Path) -> None:
    """Delete temporary files left by dead writers in `parent`, which the caller owns by a run's lock.

    So every one that this process is not writing itself is left over. The process id in the name proves less: ids are
    reused, mean nothing on another host, and a killed process keeps its id until its parent waits for it.
    """
    try:
        names = [entry.name for entry in parent.iterdir()]
    except OSError:
        return  # no folder yet; any other error shows at the next save
    for name in names:
        if _ORPHAN.fullmatch(name) and name not in in_flight:
            remove(parent / name)


def check_real_folder(path: Path) -> bool:
    """Return whether `path` is a folder. Raises: DamageError for a link or a file, StorageError."""
    with storage_errors("read", path):
        if path.is_symlink():
            raise DamageError((path, IS, "a symbolic link: it is not followed out of the run folder"), code="no-folder")
        if path.exists() and not path.is_dir():
            raise DamageError((path, IS, "not a folder"), code="no-folder")
        return path.is_dir()
