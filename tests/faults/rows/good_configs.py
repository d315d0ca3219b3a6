"""Configs that are right load to what stands in them: sixty with the values beside them, then thousands drawn."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.faults.row import Place, Row
from tests.faults.rows import drawn_configs, reading

# file or overrides -> what differs from the defaults. `;` is a new line; a text of KEY=VALUE words is the command line.
HANDMADE: list[tuple[str, dict[str, Any]]] = [
    ("", {}),
    ("# only a comment", {}),
    ("---", {}),
    ("---;...", {}),
    ("{}", {}),
    ("task:;model:;train:", {}),
    ("train: {}", {}),
    ("train: null;model: ~", {}),
    ("train:;  lr: 1e-3", {"lr": 0.001}),
    ("train:;  lr: 1e3", {"lr": 1000.0}),
    ("train:;  lr: 1E-3", {"lr": 0.001}),
    ("train:;  lr: 1.5e3", {"lr": 1500.0}),
    ("train:;  lr: 5e-4 # as in the lesson", {"lr": 0.0005}),
    ("train:;  lr: +.5", {"lr": 0.5}),
    ("train:;  lr: 2.", {"lr": 2.0}),
    ("train:;  lr: 3", {"lr": 3.0}),
    ("train:;  lr: 10000", {"lr": 10000.0}),
    ("train: {seed: 0}", {"seed": 0}),
    ("train: {seed: 9223372036854775807}", {"seed": 2**63 - 1}),
    ("train: {seed: +7}", {"seed": 7}),
    ("train: {seed: -0}", {"seed": 0}),
    ("train: {epochs: 0}", {"epochs": 0}),
    ("train: {epochs: 0, warmup_steps: 9}", {"epochs": 0, "warmup_steps": 9}),
    ("train: {epochs: 1000000000, steps_per_epoch: 1}", {"epochs": 10**9, "steps_per_epoch": 1}),
    (
        "train: {epochs: 2, steps_per_epoch: 7, warmup_steps: 14}",
        {"epochs": 2, "steps_per_epoch": 7, "warmup_steps": 14},
    ),
    ("train:;  betas:;    - 0;    - 0.98", {"betas": [0.0, 0.98]}),
    ("train:;  betas:;  - 0.5;  - .25", {"betas": [0.5, 0.25]}),
    ("train: {betas: [0.8, 0.95,]}", {"betas": [0.8, 0.95]}),
    ('train: {"betas": [0.7, 0.9]}', {"betas": [0.7, 0.9]}),
    ("train:;  grad_clip: 1", {"grad_clip": 1.0}),
    ("train:;  grad_clip:;  keep: 5", {"grad_clip": None, "keep": 5}),
    ("train: {log_every: ~, save_every: 11}", {"log_every": None, "save_every": 11}),
    ("train: {device: cuda:3}", {"device": "cuda:3"}),
    ("train: {device: 'cpu', dtype: \"bfloat16\"}", {"device": "cpu", "dtype": "bfloat16"}),
    ("train: {device: mps}", {"device": "mps"}),
    ("train:; schedule: cosine; threads: 2", {"schedule": "cosine", "threads": 2}),
    ("model:;  residual: True;  bias: FALSE", {"residual": True, "bias": False}),
    ("model: {dropout: 0, norm: rmsnorm}", {"dropout": 0.0, "norm": "rmsnorm"}),
    ("model:;    d_model: 21;    n_heads: 7", {"d_model": 21, "n_heads": 7}),
    ("model:;  n_heads: 7;  d_model: 21", {"d_model": 21, "n_heads": 7}),
    ("model: {n_heads: 8, n_kv_heads: 2}", {"n_heads": 8, "n_kv_heads": 2}),
    ("model: {positions: rope, rope_theta: 5e5}", {"positions": "rope", "rope_theta": 500000.0}),
    ("model: {positions: none, attention: linear}", {"positions": "none", "attention": "linear"}),
    ("model: {attention: uniform}", {"attention": "uniform"}),
    ("model: {window: 5, max_seq_len: 12}", {"window": 5, "max_seq_len": 12}),
    ("model: {mlp: swiglu, d_mlp: 48, tie_embeddings: true}", {"mlp": "swiglu", "d_mlp": 48, "tie_embeddings": True}),
    ("task: {name: shift, seq_len: 1, vocab_size: 2}", {"name": "shift", "seq_len": 1, "vocab_size": 2}),
    ("task:;  name: copy;  seq_len: 14", {"name": "copy", "seq_len": 14}),
    (
        "task: {name: reverse, vocab_size: 4, min_length: 3}",
        {"name": "reverse", "vocab_size": 4, "min_length": 3},
    ),
    (
        "task: {name: induction, seq_len: 9, max_period: 8, min_period: 2}",
        {"name": "induction", "seq_len": 9, "min_period": 2, "max_period": 8},
    ),
    ("task: {name: text, path: no}", {"name": "text", "path": "no"}),
    ("task: {name: text, path: '010'}", {"name": "text", "path": "010"}),
    ("task:;  name: text;  path: >-;    a;    b.txt", {"name": "text", "path": "a b.txt"}),
    ("task: {name: text, path: '[red]x[/] :smile:'}", {"name": "text", "path": "[red]x[/] :smile:"}),
    ("task: {name: text, path: 2024-01-01, eval_fraction: 0.5}",
     {"name": "text", "path": "2024-01-01", "eval_fraction": 0.5}),
    ("lr=1e-5 n_heads=8", {"lr": 1e-05, "n_heads": 8}),
    ("task.name=text task.path=007", {"name": "text", "path": "007"}),
    ("betas=[0.5,0.75] model.dropout=0.1", {"betas": [0.5, 0.75], "dropout": 0.1}),
    ("name=copy seq_len=20 task.vocab_size=17", {"name": "copy", "seq_len": 20, "vocab_size": 17}),
    ("grad_clip=null residual=true max_seq_len=13", {"grad_clip": None, "residual": True, "max_seq_len": 13}),
]  # fmt: skip


class Case(NamedTuple):
    """Which config: of those made by hand, or the seed of a drawn one."""

    kind: str
    which: int


def cases(count: int, seed: int) -> Iterator[Case]:
    """The sixty made by hand, then drawn ones."""
    for number in range(min(count, len(HANDMADE))):
        yield Case("by hand", number)
    for number in range(count - len(HANDMADE)):
        yield Case("drawn", seed * 10**9 + number)


def exponents_are_text(patch: pytest.MonkeyPatch) -> None:
    """The mutant: YAML 1.1's reading of `1e-3`, which is text."""
    from mhsa_cli.config import yaml_events

    real = yaml_events.resolve
    patch.setattr(yaml_events, "resolve", lambda text: text if text[:1].isdigit() and "e" in text else real(text))


def by_hand(number: int) -> tuple[bytes, list[str], dict[str, Any]]:
    """Give a file, overrides, and every value that must come of them."""
    text, differing = HANDMADE[number]
    overrides = text.split() if "=" in text else []
    name = differing.get("name", "repeat")
    wanted = {
        "task": {"name": name, **reading.TASK_DEFAULTS[name]},
        **{k: dict(v) for k, v in reading.DEFAULTS.items()},
    }
    for key, item in differing.items():
        home = next(part for part in ("train", "model", "task") if key in wanted[part] or part == "task")
        wanted[home][key] = item
    return b"" if overrides else text.replace(";", "\n").encode(), overrides, wanted


def drawn(number: int) -> tuple[bytes, list[str], dict[str, Any]]:
    """Draw a config, write some of it into a file and now and then the rest on the command line."""
    draw = random.Random(number)
    said = drawn_configs.config(draw)
    wanted = reading.resolved(said)
    overrides = []
    if draw.random() < 0.3:
        for part in said:
            for key in [key for key in said[part] if draw.random() < 0.3]:
                overrides.append(f"{part}.{key}={drawn_configs.spelled(draw, said[part].pop(key))}")
    return drawn_configs.written(draw, said), overrides, wanted


def check(case: Case, place: Place) -> None:
    """Load it, and what was saved of it."""
    from mhsa_cli.config.dump import dump_yaml
    from mhsa_cli.config.load import load_config, parse
    from mhsa_cli.config.problems import ConfigError

    data, overrides, wanted = by_hand(case.which) if case.kind == "by hand" else drawn(case.which)
    path = place.path / "c.yaml"
    path.write_bytes(data)
    try:
        config = load_config(str(path), overrides)
    except ConfigError as error:
        raise AssertionError(f"refused: {error}\nof {data!r} {overrides}") from None
    found = config.to_dict()
    assert reading.same(found, wanted), f"{data!r} {overrides} gave {json.dumps(found)}, wanted {json.dumps(wanted)}"
    saved = dump_yaml(config).encode()
    assert reading.same(parse(saved, "saved").to_dict(), wanted), f"saved as {saved!r}"
    assert reading.same(reading.resolved(reading.read(saved)), wanted), f"another reader misreads {saved!r}"


ROW = Row(
    fault="good configs: by hand with their values, drawn ones",
    promise="P6",
    quick=60,
    long=20060,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.good_configs:exponents_are_text",
)
