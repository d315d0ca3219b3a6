"""Exports for NumPy, tables, JSON and TensorBoard: what is in them is what was measured."""

from __future__ import annotations

import csv
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from mhsa_cli.config.load import Config, load_config
from mhsa_cli.core.export import SINGLE, Source, exported, flat
from mhsa_cli.core.export.tensorboard import PIXELS, head_scalars, layer_images
from mhsa_cli.core.heads.capture import head_maps
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.tasks import Task, build_task
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.errors import RunError, UsageError

CONFIG = load_config(
    None, ["task.name=copy", "seq_len=8", "vocab_size=19", "d_model=12", "n_heads=3", "model.n_layers=2"]
)
HEADS = {
    "step": 7,
    "tokens": ["a", "b"],
    "weights": [[[[1.0, 0.0], [0.25, 0.75]]] * 2],
    "heads": [
        {"layer": 0, "head": 0, "label": "previous, token", "scores": {"self": {"lift": 0.5}}, "gaps": [1, 2]},
        {"layer": 0, "head": 1, "label": None, "shapley_nats": math.nan, "new": True},
    ],
}
METRICS = [
    {"kind": "step", "step": 1, "loss": 2.5, "accuracy": 0.25, "lr": 0.005},
    {"kind": "eval", "step": 1, "loss": math.inf, "accuracy": 0.5},
    {"kind": "epoch", "epoch": 1, "step": 1, "loss": 2.25, "eval_loss": math.inf, "eval_accuracy": 0.5},
]


def source(heads: Any = HEADS, scores: Any = ()) -> Source:
    def trained() -> tuple[TransformerLM, Task, Config, int]:
        task = build_task(CONFIG.task)
        return build_model(CONFIG, task).eval(), task, CONFIG, 7

    return Source("a run", CONFIG, {"final": {"eval_loss": 0.5}}, heads, METRICS, scores, trained)


def rows(pieces: Any) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(b"".join(pieces).decode())))


def test_tables_hold_every_figure_and_keys_that_nobody_foresaw() -> None:
    files = exported(source(), "csv")
    first, second = rows(files["heads.csv"])
    named = ["label", "scores.self.lift", "gaps.0", "gaps.1", "shapley_nats", "new"]
    assert list(first) == ["layer", "head", "step", *named]
    assert first == {
        "layer": "0",
        "head": "0",
        "step": "7",
        "label": "previous, token",
        "scores.self.lift": "0.5",
        "gaps.0": "1",
        "gaps.1": "2",
        "shapley_nats": "",
        "new": "",
    }
    assert (second["head"], second["label"], second["shapley_nats"], second["new"]) == ("1", "", "nan", "True")
    columns = ["kind", "step", "loss", "accuracy", "lr", "eval_loss", "eval_accuracy", "epoch", "epoch_loss"]
    curve = rows(files["metrics.csv"])
    assert [list(row) for row in curve] == [columns] * 3
    assert [list(row.values()) for row in curve] == [
        ["step", "1", "2.5", "0.25", "0.005", "", "", "", ""],
        ["eval", "1", "", "", "", "inf", "0.5", "", ""],
        ["epoch", "1", "", "", "", "inf", "0.5", "1", "2.25"],
    ]
    assert set(exported(source(heads=None), "csv")) == {"metrics.csv"}


def test_the_document_is_strict_json_of_everything() -> None:
    text = b"".join(exported(source(), "json")[""]).decode("ascii")
    document = json.loads(text, parse_constant=lambda word: pytest.fail(word))
    assert list(document) == ["run", "config", "info", "final", "heads", "metrics", "head_scores"]
    assert document["config"] == json.loads(json.dumps(CONFIG.to_dict()))
    assert document["final"] == {"eval_loss": 0.5} and document["heads"]["heads"][1]["shapley_nats"] is None
    assert document["metrics"] == [METRICS[0], {**METRICS[1], "loss": None}, {**METRICS[2], "eval_loss": None}]


def test_arrays_are_the_models_and_need_no_pickle() -> None:
    run = source()
    found = np.load(io.BytesIO(exported(run, "npz")[""]), allow_pickle=False)
    model, task, *_ = run.trained()
    for name, parameter in model.named_parameters():
        assert np.array_equal(found[f"model.{name}"], parameter.detach().numpy())
    assert sum(name.startswith("model.") for name in found) == len(list(model.named_parameters()))
    attention = found["attention"]
    assert attention.shape == (64, 2, 3, 8, 8) and np.allclose(attention.sum(-1), 1, atol=1e-6)
    assert found["tokens"].shape == found["symbols"].shape == found["targets"].shape == (64, 8)
    maps = head_maps(model, task, CONFIG.train.seed, 7)
    assert np.allclose(attention[0], np.array(maps.weights), atol=1e-6) and list(found["symbols"][0]) == maps.tokens
    _, weights = model(torch.tensor(found["tokens"][5:6]), return_weights=True)
    for layer in range(2):
        assert np.allclose(attention[5, layer], weights[layer][0].detach().numpy(), atol=1e-6)
    assert int(found["step"]) == 7 and json.loads(str(found["config"]))["model"]["n_heads"] == 3


def test_arrays_keep_to_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mhsa_cli.core.export.npz.ROOM", 6 * 64 * 5 + 1)
    assert np.load(io.BytesIO(exported(source(), "npz")[""]))["attention"].shape[0] == 5
    monkeypatch.setattr("mhsa_cli.core.export.npz.LARGEST", 6 * 64 - 1)
    with pytest.raises(UsageError, match="384 attention weights per row"):
        exported(source(), "npz")


@pytest.mark.parametrize("wrong", [{"heads": {}}, {"heads": [{"layer": 0}]}, {"heads": [{"layer": 0, "head": "1"}]}])
def test_damaged_heads_are_said(wrong: dict[str, Any]) -> None:
    with pytest.raises(RunError, match="heads.json is damaged"):
        exported(source(heads=wrong), "csv")


def test_head_scores_become_points() -> None:
    lines = [{"step": s, "heads": [{"layer": 1, "head": 2, "lifts": {"self": s / 4, "first": None}}]} for s in (0, 3)]
    assert head_scalars(source(scores=lines)) == [
        ("heads/L1.H2/lifts.self", 0.0, 0),
        ("heads/L1.H2/lifts.self", 0.75, 3),
    ]
    at_the_end = {tag: (value, step) for tag, value, step in head_scalars(source())}
    assert at_the_end["heads/L0.H0/scores.self.lift"] == (0.5, 7)
    assert not any("new" in tag or "shapley" in tag for tag in at_the_end)
    assert head_scalars(source(heads=None)) == []


def test_maps_become_grey_images() -> None:
    (image,) = layer_images(HEADS["weights"])
    half = PIXELS // 2
    assert image.shape == (3 * PIXELS, 2 * 3 * PIXELS) and image.dtype == np.uint8
    picked = image[PIXELS::PIXELS, PIXELS::PIXELS]
    assert picked[:2, :2].tolist() == [[0, 255], [191, 64]] and (image[:half] == 255).all()


def test_flat_names() -> None:
    assert flat({"a": {"b": 1, "c": [2, {"d": 3}]}, "e": None}) == {"a.b": 1, "a.c.0": 2, "a.c.1.d": 3, "e": None}
    assert flat({}) == {}


def test_a_tensorboard_log_reads_back(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    lines = [{"step": s, "heads": [{"layer": 0, "head": 1, "entropy": s / 8}]} for s in (0, 4)]
    ((name, data),) = exported(source(scores=lines), "tensorboard").items()
    (tmp_path / name).write_bytes(data)
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    points = {tag: [(e.step, e.value) for e in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
    assert points.pop("train/lr") == [(1, pytest.approx(0.005))]
    assert points == {
        "train/loss": [(1, 2.5)],
        "train/accuracy": [(1, 0.25)],
        "eval/accuracy": [(1, 0.5)],
        "heads/L0.H1/entropy": [(0, 0.0), (4, 0.5)],
    }
    assert events.Tags()["images"] == ["maps/L0"] and events.Images("maps/L0")[0].step == 7


def test_without_tensorboard_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"mhsa-cli\[tensorboard\]"):
        exported(source(), "tensorboard")


def test_single_files_are_those_without_a_name() -> None:
    for name in ("npz", "json", "csv"):
        assert (list(exported(source(), name)) == [""]) == (name in SINGLE)
