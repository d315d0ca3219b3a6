"""Run folders and configs of a stranger: whatever lies in them, no code of it runs and nothing is written elsewhere."""

from __future__ import annotations

import json
import os
import pickle
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.faults.client import ForkServer
from tests.faults.row import Place, Row
from tests.faults.rows.source_scan import dangers

MEGABYTES, SECONDS = 500, 2  # more than that, of memory beyond the start and of computing, ends a command
TRAIN = [
    "epochs=2",
    "steps_per_epoch=5",
    "n_heads=2",
    "seq_len=6",
    "vocab_size=11",
    "d_model=12",
    "eval_sequences=9",
    "keep=1",
]
CHECKPOINT = "checkpoints/step-00000010"
GENERATE = ["generate", "r", "--prompt", "1 2"]
RESUME = ["train", "--resume", "r", "train.epochs=3"]

# Each file of a run folder, and the commands that read it.
READERS: dict[str, list[list[str]]] = {
    "config.yaml": [GENERATE, RESUME],
    "run.json": [["curve", "r"], GENERATE, RESUME],
    "metrics.jsonl": [["curve", "r"], RESUME],
    "heads.json": [["inspect-heads", "r"], ["explain", "r"]],
    "heads.jsonl": [["timeline", "r"], RESUME],
    f"{CHECKPOINT}/state.json": [GENERATE, RESUME],
    f"{CHECKPOINT}/model.safetensors": [GENERATE, ["export", "r", "--to", "npz"], RESUME],
    f"{CHECKPOINT}/optimizer.safetensors": [RESUME],
    f"{CHECKPOINT}/MANIFEST.json": [GENERATE, RESUME],
}
TAGS = [
    "!!python/object/apply:os.system ['touch {marker}']",
    "!!python/object/new:subprocess.Popen [['touch', '{marker}']]",
    "!!python/object/apply:builtins.exec [\"open('{marker}', 'w')\"]",
    "!!python/name:os.system",
    "{{_target_: os.system, command: 'touch {marker}'}}",
]
WHOLE, FAR = 2**63 - 1, 1 << 50


def header(text: str, length: int | None = None, body: int = 64) -> bytes:
    """Make a safetensors file of a header that lies."""
    raw = text.encode()
    return (len(raw) if length is None else length).to_bytes(8, "little") + raw + bytes(body)


def tensors(*spans: tuple[int, int], shape: str = "[2, 4]", dtype: str = "F32") -> str:
    """Write a header whose tensors lie at these places."""
    parts = (
        f'"t{i}": {{"dtype": "{dtype}", "shape": {shape}, "data_offsets": [{a}, {b}]}}'
        for i, (a, b) in enumerate(spans)
    )
    return "{" + ", ".join(parts) + "}"


SAFETENSORS = {
    "a header of 2**63 - 1 bytes": header("{}", WHOLE),
    "a header of 100 MB in a small file": header(tensors((0, 32)), 100_000_000),
    "a header of a hundred thousand brackets": header("[" * 100_000),
    "overlapping tensors": header(tensors((0, 32), (16, 48))),
    "a negative offset": header(tensors((-32, 0))),
    "an offset beyond the end": header(tensors((FAR, FAR + 32))),
    "a shape of 2**80 numbers": header(tensors((0, 64), shape=f"[{2**40}, {2**40}]")),
    "a kind of number that is none": header(tensors((0, 32), dtype="__import__('os')")),
}
NAMES = ["../../../evil", "/tmp/evil", "a/../b", "evil\x1b[31m\n"]
LINKS = [*READERS, ".lock", "checkpoints", CHECKPOINT]
ESCAPES = ["../x", "/tmp/x", "a/../../x", "..", "a\nb", "\x1b[31mx", "~/x\0", "con"]


class Case(NamedTuple):
    """A kind of payload, and which one."""

    kind: str
    which: str


CASES = [
    *(Case("pickle", name) for name in READERS),
    Case("beside", "code and pickles that nobody asked for"),
    *(Case("tag", tag) for tag in TAGS),
    *(Case("safetensors", name) for name in SAFETENSORS),
    *(Case("manifest", name) for name in NAMES),
    *(Case("link", name) for name in LINKS[:9]),
    Case("links", " ".join(LINKS[9:])),
    Case("names", " ".join(ESCAPES)),
    Case("source", "what our own code calls"),
]


def cases(count: int, seed: int) -> Iterator[Case]:
    """All of them: there are no others to draw."""
    yield from CASES[:count]


def unpickles(patch: pytest.MonkeyPatch) -> None:
    """The mutant: weights that look like those of an older tool are unpickled."""
    from mhsa_cli.core.training import checkpoint

    real = checkpoint.load
    patch.setattr(checkpoint, "load", lambda data: pickle.loads(data) if data[:1] == b"\x80" else real(data))


def confine(patch: pytest.MonkeyPatch) -> None:
    """Let a command have so much memory and time and no more."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MEGABYTES * 2**20,) * 2)
    spent = int(sum(resource.getrusage(resource.RUSAGE_SELF)[:2]))
    resource.setrlimit(resource.RLIMIT_CPU, (spent + SECONDS,) * 2)


@cache
def trained(server: ForkServer) -> dict[str, bytes]:
    """A run that is all right, file by file."""
    with tempfile.TemporaryDirectory() as folder:
        done = server.run(["train", *TRAIN, "--name", "r"], Path(folder))
        assert done.code == 0, done.err
        run = Path(folder) / "runs/r"
        return {str(path.relative_to(run)): path.read_bytes() for path in run.rglob("*") if path.is_file()}


class Evil:
    """A pickle that runs a command when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[[str], int], tuple[str]]:
        return os.system, (f"touch {self.marker}",)


def forge(run: Path) -> None:
    """Make every hash right again, as whoever prepared the folder would."""
    from mhsa_cli.runs import commit, hashes, json_file

    step = run / CHECKPOINT
    files = {path.name: path.read_bytes() for path in step.iterdir() if path.name != "MANIFEST.json"}
    (step / "MANIFEST.json").write_bytes(commit._manifest(step.name, files))
    info = json.loads((run / "run.json").read_text())
    info = {key: value for key, value in info.items() if key not in ("files", "sha256")}
    (run / "run.json").write_bytes(json_file.dump_sealed({**info, "files": hashes.list_files(run)}))


def check(case: Case, place: Place) -> None:
    """Lay the payload, run whatever reads it, and look for traces."""
    if case.kind == "source":
        assert not dangers(), "; ".join(dangers())
        return
    marker, run, outside = place.path / "marker", place.path / "home/runs/r", place.path / "outside"
    for folder in (run / CHECKPOINT, outside):
        folder.mkdir(parents=True)
    for name, data in trained(place.server).items():
        (run / name).write_bytes(data)
    codes = lay(case, run, marker, outside)
    before = listing(place.path)
    for argv, wanted in codes:
        done = place.server.run(argv, run.parent.parent, [["tests.faults.rows.payloads:confine"], *place.mutant])
        assert not marker.exists(), f"{argv} ran code"
        assert done.code in wanted, f"{argv}: exit code {done.code}, wanted one of {wanted}: {done.err[-600:]}"
        assert "\x1b" not in done.out + done.err, f"{argv}: escapes got through"
        if done.code:
            assert "error: " in done.err and "internal error" not in done.err, f"{argv}: {done.err[:300]}"
        after = listing(place.path)
        assert after == before, f"{argv} wrote {after.items() ^ before.items()}"


def lay(case: Case, run: Path, marker: Path, outside: Path) -> list[tuple[list[str], set[int]]]:
    """Put the payload in its place; gives the commands to run and the exit codes that are right."""
    refused = [(argv, {4}) for argv in READERS.get(case.which, [])]
    if case.kind == "pickle":
        (run / case.which).write_bytes(pickle.dumps(Evil(marker), protocol=4) + b"\n")  # a line that is whole
        if not case.which.endswith(("run.json", "MANIFEST.json")):
            forge(run)
        return [*refused, (["runs"], {0})]
    if case.kind == "beside":
        for folder in (run, run / CHECKPOINT, run.parent.parent):
            for name in ("model.pt", "state.pkl", "optimizer.npy"):
                (folder / name).write_bytes(pickle.dumps(Evil(marker)))
            for name in ("torch.py", "mhsa_cli.py", "sitecustomize.py", "conftest.py", "attention.py"):
                (folder / name).write_text(f"open({str(marker)!r}, 'w')\n")
        return [(argv, {0}) for argv in (["inspect-heads", "r"], GENERATE, RESUME, ["runs"])]
    if case.kind == "tag":
        for file in (run / "config.yaml", run.parent.parent / "own.yaml"):
            file.write_text(f"train:\n  epochs: {case.which.format(marker=marker)}\n")
        forge(run)
        own = ["train", "--config", "own.yaml"]
        return [*((argv, {2, 4}) for argv in READERS["config.yaml"]), (own, {2}), (["runs"], {0})]
    if case.kind == "safetensors":
        for name in ("model", "optimizer"):
            (run / CHECKPOINT / f"{name}.safetensors").write_bytes(SAFETENSORS[case.which])
        forge(run)
        return [(argv, {4}) for argv in READERS[f"{CHECKPOINT}/model.safetensors"]]
    if case.kind == "manifest":
        from mhsa_cli.runs import commit

        (outside / "evil").write_text("outside")
        files = {case.which: b"outside", "model.safetensors": (run / CHECKPOINT / "model.safetensors").read_bytes()}
        (run / CHECKPOINT / "MANIFEST.json").write_bytes(commit._manifest(Path(CHECKPOINT).name, files))
        return [(GENERATE, {4}), (RESUME, {4})]
    if case.kind.startswith("link"):
        for name in LINKS[9:] if case.kind == "links" else [case.which]:
            if (run / name).is_symlink() or any(parent.is_symlink() for parent in (run / name).parents):
                continue
            shutil.move(run / name, outside / Path(name).name)
            (run / name).symlink_to(outside / Path(name).name)
        return [*refused, (RESUME, {4, 5}), (["inspect-heads", "r"], {0, 4}), (["runs"], {0})]
    assert case.kind == "names"
    made = [(["train", *TRAIN, "--name", name], {2}) for name in ESCAPES if "\0" not in name]
    read = [(["train", "--resume", f"../../{name}"], {2, 4}) for name in ESCAPES if "\0" not in name]
    return [*made, *read, (["inspect-heads", "../outside"], {4}), (["train", "--config", "/dev/stdin"], {2})]


def listing(folder: Path) -> dict[str, Any]:
    """Everything around the run folder, and what is in it; the run itself may change."""
    found = {}
    for path in folder.rglob("*"):
        name = str(path.relative_to(folder))
        if not name.startswith("home/runs") and name not in ("home/r.npz",):
            found[name] = path.read_bytes() if path.is_file() else None
    return found


ROW = Row(
    fault="malicious payloads: pickles, YAML tags, header bombs, traversal, links; and a scan of our source",
    promise="P7",
    quick=39,
    long=39,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.payloads:unpickles",
)
assert len(CASES) == ROW.quick
