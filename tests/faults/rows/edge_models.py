"""Random models at the edges of what a config allows: tiny and odd sizes, every form; what must hold of each."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from tests.faults.row import Place, Row
from tests.faults.rows.reading import MODEL, TASKS

if TYPE_CHECKING:
    from torch import Tensor

    from mhsa_cli.config.schema import Config
    from mhsa_cli.core.model.transformer import TransformerLM
    from mhsa_cli.core.tasks import Task
    from mhsa_cli.records.training import Record

STEPS = 3
FORMS: dict[str, list[Any]] = {  # taken in turn, so that a few cases meet all of each
    "task": [name for name, settings in TASKS.items() if "path" not in settings],
    "positions": [*MODEL["positions"][1:], "rope half"],
    "attention": ["softmax", "window", "linear", "uniform"],
    "norm": ["none", "layernorm", "rmsnorm"],
    "mlp": ["", "gelu", "relu", "swiglu"],
    "dtype": ["float32", "float64", "bfloat16"],
    "bias": [True, False],
    "residual": [True, False],
    "tie_embeddings": [False, True],
    "dropout": [0.0, 0.1, 0.6],
}
SPREADS = [0.0, 0.02, 0.3, 1.0]  # of weights that no training made; wider ones overflow without a norm
EPS = {"float32": 2.0**-23, "float64": 2.0**-52, "bfloat16": 2.0**-23}  # of what is summed; bfloat16 is looked at too
WORSE = 64  # times as far from the exact logits as others are, or as many roundings: still rounding


class Case(NamedTuple):
    """A config as JSON, the rows that are looked at, the spread of the weights that are drawn, a seed."""

    config: str
    rows: int
    spread: float
    seed: int


def cases(count: int, seed: int) -> Iterator[Case]:
    """Take the forms in turn, with sizes drawn; what the schema refuses is drawn again."""
    from pydantic import ValidationError

    from mhsa_cli.config.schema import Config

    draw = random.Random(seed)
    for number in range(count):
        while True:
            drawn = settings(draw, number)
            try:
                Config.model_validate(drawn, context={"seq_len": drawn["task"]["seq_len"]})
            except ValidationError:
                number += draw.randint(0, 1)  # some forms do not go together at all
                continue
            break
        yield Case(json.dumps(drawn), draw.randint(1, 5), draw.choice(SPREADS), draw.randrange(10**9))


def in_turn(name: str, values: list[Any], number: int) -> Any:
    """Give the values of a form in an order of its own: each once, then all once more in another order."""
    block, at = divmod(number, len(values))
    return random.Random(f"{name}/{block}").sample(values, len(values))[at]


def settings(draw: random.Random, number: int) -> dict[str, dict[str, Any]]:
    """Draw a config with the forms of this number: not lawful in every case."""
    form = {name: in_turn(name, values, number) for name, values in FORMS.items()}
    heads = draw.choice([1, 1, 2, 3, 4, 6])
    width = heads * draw.randint(1, 24 // heads)
    positions, _, layout = form["positions"].partition(" ")
    model = {
        "d_model": width,
        "n_heads": heads,
        "n_kv_heads": draw.choice([None, *(n for n in range(1, heads + 1) if heads % n == 0)]),
        "n_layers": draw.randint(1, 3),
        "d_mlp": draw.choice([1, 2, 7, 24]) if form["mlp"] else 0,
        "mlp": form["mlp"] or "gelu",
        "positions": positions,
        "rope_layout": layout or "interleaved",
        "attention": "softmax" if form["attention"] == "window" else form["attention"],
        "window": draw.randint(1, 10) if form["attention"] == "window" else None,
        **{name: form[name] for name in ("norm", "bias", "residual", "tie_embeddings", "dropout")},
    }
    T = draw.randint(1, 9)
    model["max_seq_len"] = draw.choice([None, T, T + 1, 12])
    epochs = draw.choice([1, STEPS])
    train = {
        "epochs": epochs,
        "steps_per_epoch": STEPS // epochs,
        "batch_size": draw.randint(1, 5),
        "eval_sequences": draw.randint(1, 5),
        "lr": draw.choice([1e-4, 5e-3, 0.05]),
        "schedule": draw.choice(["constant", "cosine", "linear"]),
        "warmup_steps": draw.randint(0, STEPS),
        "weight_decay": draw.choice([0.0, 0.1]),
        "betas": draw.choice([[0.9, 0.999], [0.0, 0.0], [0.0, 0.99]]),
        "grad_clip": draw.choice([None, 0.01, 1.0]),
        "seed": draw.choice([0, 2**63 - 1, draw.randrange(10**6)]),
        "dtype": form["dtype"],
        "device": "cpu",
        "log_every": 1,
        "eval_every": 1,
        "save_every": 1,
    }
    return {
        "task": {"name": form["task"], "vocab_size": draw.randint(2, 13), "seq_len": T},
        "model": model,
        "train": train,
    }


def check(case: Case, place: Place) -> None:
    """Train it, alone and beside others, stop and reload it, and look at it from all sides."""
    import torch

    from mhsa_cli.config.load import parse
    from mhsa_cli.core.tasks import build_task
    from mhsa_cli.core.training.checkpoint import digest, weights_of, weights_sha256
    from mhsa_cli.core.training.load import load_trained
    from tests.core.reference import redraw

    torch.set_num_threads(1)
    config = parse(case.config.encode(), "case.yaml")
    task = build_task(config.task)
    model, records, files = trained(config, task)
    own = weights_sha256(model)
    assert digest(weights_of(files[STEPS])) == own, "the last checkpoint holds other weights"
    check_resume(config, task, records, files, 1 + case.seed % (STEPS - 1))
    check_beside_others(config, task, records, case.seed)
    ids = torch.randint(task.vocab_size, (case.rows, task.seq_len), generator=torch.Generator().manual_seed(case.seed))
    again = load_trained(config, task, files[STEPS], lambda _: None)
    assert weights_sha256(again) == own, "what is loaded has other weights"
    assert torch.equal(logits_of(again, ids, config), logits_of(model, ids, config)), "what is loaded says other logits"
    for looked_at in (model, redraw(again, case.seed, case.spread)):
        before = weights_sha256(looked_at)
        check_logits(looked_at, ids, config, case.seed)
        check_maps(looked_at, ids, config)
        check_cache(looked_at, ids, config)
        assert weights_sha256(looked_at) == before, "to look at a model changed its weights"


def trained(
    config: Config, task: Task, resume: Mapping[str, bytes] | None = None
) -> tuple[TransformerLM, list[Record], dict[int, Mapping[str, bytes]]]:
    """Train a run to its end: the model, its figures, and the checkpoint of each step."""
    import torch

    from mhsa_cli.core.training.lockstep import Group, records_of
    from mhsa_cli.records.training import SaveRecord

    group = Group([config], task, torch.device("cpu"), resume=None if resume is None else [resume], watch=False)
    records = list(records_of(group))
    files = {record.step: record.files for record in records if isinstance(record, SaveRecord)}
    return group.model(0), [record for record in records if record.step <= STEPS], files


def check_resume(
    config: Config, task: Task, records: list[Record], files: Mapping[int, Mapping[str, bytes]], at: int
) -> None:
    """A run that stopped after a step and went on is the one that never stopped, bit for bit."""
    from mhsa_cli.records.training import EvalRecord, StepRecord

    _, later, theirs = trained(config, task, files[at])
    for step in range(at + 1, STEPS + 1):
        assert theirs[step] == files[step], f"resumed after step {at}, its checkpoint of step {step} is another one"
    figures = [
        [record for record in found if isinstance(record, StepRecord | EvalRecord) and record.step > at]
        for found in (records, later)
    ]
    assert figures[0] == figures[1] and figures[0], f"resumed after step {at}, its figures are others"


def check_beside_others(config: Config, task: Task, records: list[Record], seed: int) -> None:
    """A run that is trained together with others is the run alone, bit for bit."""
    import torch

    from mhsa_cli.core.training.lockstep import Group
    from mhsa_cli.records.training import SaveRecord

    M = 2 + seed // 7 % 2
    slot = seed % M
    seeds = [(config.train.seed + (i - slot)) % 2**63 for i in range(M)]
    configs = [config.model_copy(update={"train": config.train.model_copy(update={"seed": one})}) for one in seeds]
    group = Group(configs, task, torch.device("cpu"), watch=False, wants_save=lambda step: False)
    mine = [record for run, record in group.records() if run == slot]
    alone = [r for r in records if not isinstance(r, SaveRecord) or r.step in (0, STEPS)]  # what a group saves here
    assert mine == alone, f"as number {slot} of {M} it is another run"


def logits_of(model: TransformerLM, ids: Tensor, config: Config) -> Tensor:
    """The logits as evaluation computes them: in the run's dtype."""
    import torch

    from mhsa_cli.core.training.stack import autocast

    with torch.no_grad(), autocast(config.train.dtype, torch.device("cpu")):
        logits = model(ids)
    assert isinstance(logits, torch.Tensor)
    return logits


def check_logits(model: TransformerLM, ids: Tensor, config: Config, seed: int) -> None:
    """They are finite, and no later token changes a bit of an earlier one's."""
    import torch

    logits, V = logits_of(model, ids, config), config.task.vocab_size  # type: ignore[union-attr]
    assert logits.shape == (*ids.shape, V) and bool(logits.isfinite().all()), "the logits are not finite"
    for cut in {1, seed % 9, ids.size(1) - 1} & set(range(1, ids.size(1))):
        other = ids.clone()
        generator = torch.Generator().manual_seed(seed + cut)
        other[:, cut:] += 1 + torch.randint(V - 1, other[:, cut:].shape, generator=generator)
        changed = logits_of(model, other % V, config)
        assert torch.equal(changed[:, :cut], logits[:, :cut]), f"token {cut} reaches back"


def check_maps(model: TransformerLM, ids: Tensor, config: Config) -> None:
    """Every query's weights sum to one and lie on tokens that it may see."""
    import torch

    from mhsa_cli.core.heads.capture import capture

    T, window = ids.size(1), config.model.window or ids.size(1)
    back = torch.arange(T).unsqueeze(1) - torch.arange(T)
    hidden = (back < 0) | (back >= window)
    layers = capture(model, ids)
    assert len(layers) == config.model.n_layers
    for weights in layers:
        assert weights.shape == (len(ids), config.model.n_heads, T, T) and bool((weights >= 0).all())
        assert not weights[..., hidden].any(), "a weight lies on what may not be seen"
        off = float((weights.sum(-1) - 1).abs().max())
        assert off <= 8 * torch.finfo(weights.dtype).eps, f"a row of weights sums to one but for {off:.2g}"


def check_cache(model: TransformerLM, ids: Tensor, config: Config) -> None:
    """Logits by way of a cache are as exact as those without one, and so is what is said but for ties."""
    import copy

    import torch

    from mhsa_cli.core.model.kv_cache import KVCache
    from tests.core.forms import check_same_but_for_ties

    cache, exact = KVCache(config.model.n_layers), copy.deepcopy(model).double()
    with torch.no_grad():
        wanted, rough, whole = exact(ids), copy.deepcopy(model).float()(ids), model(ids)
        pieces = torch.cat([model(piece, cache=cache) for piece in ids.split(1 + len(ids) % 3, 1)], 1)
    eps, size = EPS[config.train.dtype], max(1.0, float(wanted.abs().max()))
    sensitive = float((rough - wanted).abs().max()) / EPS["float32"]  # to a rounding of the model's own numbers
    size, usual = eps * size, eps * max(size, sensitive)
    off = float((pieces - whole).abs().max())
    assert off <= WORSE * usual, f"with a cache the logits are {off:.2g} off, usual is {usual:.2g}"
    prompt = ids[0, : 1 + len(ids) % ids.size(1)]
    check_same_but_for_ties(model, prompt, model.max_seq_len - len(prompt) + 1, WORSE * usual / size)


def rounded_when_loaded(patch: pytest.MonkeyPatch) -> None:
    """The mutant: whatever the run's dtype, what is loaded is float32."""
    from mhsa_cli.core.training import checkpoint

    real = checkpoint.load_weights
    patch.setattr(checkpoint, "load_weights", lambda model, files: real(model, files).float())


ROW = Row(
    fault="random models of tiny and odd sizes, of every form: finite, causal, resumed, reloaded, stacked, cached",
    promise="P2",
    quick=40,
    long=1000,
    cases=cases,
    check=check,
    mutant="tests.faults.rows.edge_models:rounded_when_loaded",
)
