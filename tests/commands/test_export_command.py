"""mhsa export: new files only, never into a run, and the formats that need no torch do without it."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mhsa_cli.core.export import EXPORTS
from tests.commands.shell import codes_without_torch, facts, metrics, mhsa, tree


def test_every_format_is_named_in_the_help_and_by_the_error(tiny: Path) -> None:
    helped = " ".join(mhsa("export", "--help").out.replace("│", " ").split())
    assert all(name in helped for name in EXPORTS)
    for arguments, words in ((["--to", "onnx"], "--to: found `onnx`"), ([], "--to: found no value")):
        said = mhsa("export", "tiny", *arguments)
        assert (said.code, said.out) == (2, "") and words in said.err
        assert "npz, csv, json, transformer-lens or tensorboard" in said.err


def test_what_was_written_is_listed_and_the_run_is_untouched(tiny: Path) -> None:
    before = tree(tiny)
    for to, files in (
        ("npz", ["tiny.npz"]),
        ("json", ["tiny.json"]),
        ("csv", ["tiny-csv/heads.csv", "tiny-csv/metrics.csv"]),
        ("transformer-lens", ["tiny-transformer-lens/config.json", "tiny-transformer-lens/model.safetensors"]),
    ):
        said = mhsa("export", "tiny", "--to", to)
        assert said.code == 0, said.err
        lines = said.out.splitlines()
        assert [line.split()[:2] for line in lines[: len(files)]] == [["wrote", file] for file in files]
        assert lines[len(files)].startswith("next: ") and all(Path(file).stat().st_size > 0 for file in files)
    assert tree(tiny) == before and not list(Path().glob("**/.tmp*"))


def test_the_same_as_json(tiny: Path) -> None:
    said = mhsa("export", "--to", "csv", "-o", "there", "--json")
    assert said.json == {"run": str(tiny), "to": "csv", "files": ["there/heads.csv", "there/metrics.csv"]}
    with Path("there/heads.csv").open() as file:
        table = list(csv.DictReader(file))
    heads = json.loads((tiny / "heads.json").read_text())["heads"]
    assert [(int(r["layer"]), int(r["head"])) for r in table] == [(x, y) for x in range(2) for y in range(3)]
    assert [float(row["entropy"]) for row in table] == [head["entropy"] for head in heads]
    with Path("there/metrics.csv").open() as file:
        assert len(list(csv.DictReader(file))) == len(metrics(tiny))


def test_the_next_line_reads_what_was_written(tiny: Path) -> None:
    for to in ("npz", "csv", "json"):
        said = mhsa("export", "tiny", "--to", to, "-o", f"my {to}")
        command = said.out.splitlines()[-1].removeprefix("next: ").replace("python ", f"{shlex.quote(sys.executable)} ")
        done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
        assert done.returncode == 0 and done.stdout, done.stderr
    assert np.load("my npz")["attention"].shape == (64, 2, 3, 6, 6)


class Lens:
    """What the printed lines use of TransformerLens: it keeps what it was given."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.config = config

    def load_state_dict(self, weights: dict[str, Any], strict: bool) -> None:
        self.weights, self.strict = weights, strict


def test_the_lines_for_transformer_lens_can_be_pasted(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = ModuleType("transformer_lens")
    library.HookedTransformer = Lens  # type: ignore[attr-defined]
    library.HookedTransformerConfig = SimpleNamespace(from_dict=dict)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "transformer_lens", library)
    said = mhsa("export", "tiny", "--to", "transformer-lens", "-o", "it's here")
    install, *lines = said.out.partition("next: ")[2].splitlines()
    assert install.startswith("pip install 'transformer_lens<4'")
    names: dict[str, Any] = {}
    for line in lines:  # each on its own, as a prompt takes them
        exec(line, names)
    model = names["model"]
    assert isinstance(model, Lens) and model.config["d_model"] == 12 and not model.strict
    assert tuple(model.weights["blocks.1.attn.W_Q"].shape) == (3, 12, 4)


def test_nothing_is_overwritten_and_no_run_is_written_to(tiny: Path) -> None:
    Path("taken").write_text("mine")
    Path("link").symlink_to("nowhere")
    for path, words in (
        ("taken", "taken already exists"),
        ("link", "link already exists"),
        (tiny / "a.npz", "in the run folder"),
        (tiny / "checkpoints" / "a.npz", "in the run folder"),
        (".", "is not a name"),
    ):
        before = tree(Path())
        said = mhsa("export", "tiny", "--to", "npz", "-o", path)
        assert (said.code, said.out) == (2, "") and words in said.err and "-o NAME" in said.err
        assert tree(Path()) == before
    assert mhsa("export", "tiny", "--to", "csv", "-o", "none/there").code == 5
    assert mhsa("export", "nowhere", "--to", "csv").code == 4


def test_what_transformer_lens_cannot_do_is_said_before_anything_is_written(here: Path) -> None:
    assert mhsa("train", "epochs=0", "--name", "lesson").code == 0
    said = mhsa("export", "lesson", "--to", "transformer-lens")
    assert said.code == 2 and "model.residual is false" in said.err and not Path("lesson-transformer-lens").exists()
    assert facts(Path("runs/lesson"))["status"] == "finished"


def test_a_run_without_maps_has_its_metrics(tiny: Path) -> None:
    (tiny / "heads.json").unlink()
    assert mhsa("export", "--to", "csv", "--json").json["files"] == ["tiny-csv/metrics.csv"]
    assert mhsa("export", "--to", "json").code == 0 and json.loads(Path("tiny.json").read_text())["heads"] is None


def test_what_needs_no_torch_does_not_load_it(tiny: Path) -> None:
    assert codes_without_torch(*(["export", "tiny", "--to", to] for to in ("csv", "json"))) == [0, 0]
