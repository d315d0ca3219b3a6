"""Training on a device: the figures of float64 on the CPU, the same bits twice, and nothing that kills the process."""

from __future__ import annotations

import copy
from collections.abc import Mapping

import pytest
import torch
from torch import Generator

from mhsa_cli.config.load import load_config
from mhsa_cli.config.schema import Config
from mhsa_cli.core.devices import self_check
from mhsa_cli.core.heads.capture import capture
from mhsa_cli.core.heads.causal import ablate
from mhsa_cli.core.heads.logit_attribution import direct_by_position
from mhsa_cli.core.heads.logit_lens import logit_lens
from mhsa_cli.core.heads.path_patching import activation_patch, path_error, path_patch
from mhsa_cli.core.heads.report import head_report
from mhsa_cli.core.model.generate import generate
from mhsa_cli.core.tasks import Batch, Task, build_task, fixed_batch
from mhsa_cli.core.tasks.copy import Copy
from mhsa_cli.core.training.checkpoint import weights_sha256
from mhsa_cli.core.training.lockstep import Group, build_model, records_of
from mhsa_cli.core.training.snapshots import Snapshots
from mhsa_cli.core.training.stack import Stack
from mhsa_cli.errors import UsageError
from mhsa_cli.records.heads import EMBEDDING, Path
from mhsa_cli.records.timeline import SnapshotRecord
from mhsa_cli.records.training import EvalRecord, Record, SaveRecord, StepRecord
from tests.devices import on_each_device, with_models
from tests.settings import later_wins

SIZES = ["task.vocab_size=17", "task.seq_len=10", "model.d_model=24", "model.n_heads=3", "train.batch_size=9"]
SHORT = ["train.epochs=2", "train.steps_per_epoch=7", "train.eval_sequences=11", "train.grad_clip=0.9"]
BLOCK = ["model.n_layers=2", "model.d_mlp=29", "model.residual=true", "model.norm=layernorm"]
MODELS = {
    "copy": [],  # its gradient by hand
    "gpt": [*BLOCK, "model.positions=learned"],
    "llama": [*BLOCK, "model.norm=rmsnorm", "model.mlp=swiglu", "model.positions=rope", "model.n_kv_heads=1"],
    "alibi": [*BLOCK, "model.positions=alibi", "model.window=4", "model.tie_embeddings=true"],
    "linear": [*BLOCK, "model.attention=linear"],
    "long rows": ["task.seq_len=26", *BLOCK],  # the fused kernel with its way back
}
DROPPING = ["model.dropout=0.1"]


def config(model: str, *more: str) -> Config:
    return load_config(None, later_wins("task.name=copy", *SIZES, *SHORT, *MODELS[model], *more))


def run(
    settings: Config, device: str, *, resume: Mapping[str, bytes] | None = None, watch: bool = False
) -> tuple[Group, list[Record]]:
    group = Group(
        [settings],
        build_task(settings.task),
        torch.device(device),
        resume=None if resume is None else [resume],
        watch=watch,
    )
    return group, list(records_of(group))


def figures(records: list[Record]) -> list[float]:
    """Every loss and accuracy, in order."""
    steps = [x for r in records if isinstance(r, StepRecord) for x in (r.loss, r.accuracy)]
    return steps + [x for r in records if isinstance(r, EvalRecord) for x in (r.loss, r.accuracy)]


# How far a step may be off, as a share of a tensor's largest number. A wrong step is off by about all of it.
PRECISION = {"float32": 1e-4, "bfloat16": 0.1}


def midway(model: str, dtype: str, device: str) -> Stack:
    """Two models with wide weights, and moments: without them Adam's update is hardly more than a gradient's sign."""
    settings = config(model, f"train.dtype={dtype}")
    task, draw = build_task(settings.task), torch.Generator().manual_seed(5)
    stack = Stack([build_model(settings, task, s) for s in (1, 2)], [1, 2], settings.train, torch.device(device))
    for flat in (stack.weights, stack.moment1, stack.moment2):
        flat[: stack.size] = 0.2 * torch.randn(stack.size, generator=draw)
    stack.moment2[: stack.size].square_().add_(0.01)
    stack.set_updates(9)
    return stack


@on_each_device
@pytest.mark.parametrize("dtype", PRECISION)
@pytest.mark.parametrize("model", MODELS)
def test_a_step_is_that_of_float64_on_the_cpu(device: str, model: str, dtype: str) -> None:
    """Its loss, every gradient and update, and what its heads look like; weights stay in float32 at least."""
    task = build_task(config(model).task)
    batch = fixed_batch(task, 1, "test", 18)
    found = []
    for stack in (midway(model, dtype, device), midway(model, "float64", "cpu")):
        assert stack.weights.device.type == stack.device.type
        before = stack.weights.clone()
        stack.step(*(rows.view(2, 9, -1).to(stack.device) for rows in (batch.inputs, batch.targets)), 1e-2)
        heads = Snapshots(stack, task)
        heads.note()
        entropies = [[h.entropy for h in record.heads] for _, record in heads.flush()]
        figures = {"loss": stack.loss, "entropies": torch.tensor(entropies, dtype=torch.float64)}
        for what, flat in (("gradient", stack.gradients), ("update", stack.weights - before)):
            figures |= {f"{what} of {name}": view for name, view in stack.views(flat).items()}
        found.append({name: figure.cpu() for name, figure in figures.items()})
        assert stack.weights.dtype == (torch.float64 if stack.config.dtype == "float64" else torch.float32)
    largest = max(float(g.abs().max()) for name, g in found[1].items() if name.startswith("gradient"))
    for name, exact in found[1].items():
        size = max(float(exact.abs().max()), 1e-2 * largest if name.startswith("gradient") else 0)
        off = float((found[0][name].double() - exact).abs().max()) / size
        assert off < PRECISION[dtype], name


@with_models(MODELS)
@pytest.mark.parametrize("dtype", PRECISION)
def test_a_training_lowers_the_loss_and_looks_at_its_heads(device: str, model: str, dtype: str) -> None:
    settings = config(model, f"train.dtype={dtype}", "train.lr=0.003")
    _, records = run(settings, device, watch=True)
    evaluated = [r.loss for r in records if isinstance(r, EvalRecord)]
    assert evaluated[-1] < evaluated[0]
    assert sum(isinstance(r, SnapshotRecord) for r in records) > 2


@pytest.mark.parametrize("model", MODELS)
def test_nothing_of_a_step_is_left_on_the_cpu(model: str) -> None:
    """Torch's meta device has shapes but no numbers, and refuses tensors of another device beside its own."""
    settings, where = config(model), torch.device("meta")
    task = build_task(settings.task)
    stack = Stack([build_model(settings, task, seed) for seed in (1, 2)], [1, 2], settings.train, where)
    batch = fixed_batch(task, 1, "test", 6)
    ids, targets = (rows.view(2, 3, -1).to(where) for rows in (batch.inputs, batch.targets))
    for road in (stack.analytic, stack.by_autograd):
        found = [] if road is None else road(ids, targets)
        assert all(figure.device == where for figure in found)
    stack._clip(1.0)
    stack._update(1e-3)
    assert {t.device for t in (*stack.model.state_dict().values(), *stack.model.buffers())} == {where}


@with_models(MODELS)
@pytest.mark.parametrize("more", [[], DROPPING], ids=["plain", "dropout"])
def test_the_same_bits_twice(device: str, model: str, more: list[str]) -> None:
    (first, said), (second, again) = (run(config(model, *more), device) for _ in range(2))
    assert weights_sha256(first.model(0)) == weights_sha256(second.model(0))
    assert figures(said) == figures(again)


@with_models(["copy", "gpt"], on_cpu=["copy"])
@pytest.mark.parametrize("more", [[], DROPPING], ids=["plain", "dropout"])
def test_a_resume_equals_never_stopping(device: str, model: str, more: list[str]) -> None:
    settings = config(model, *more, "train.save_every=5")
    whole, records = run(settings, device)
    saves = [r for r in records if isinstance(r, SaveRecord)]
    for save in saves[:2]:
        resumed, rest = run(settings, device, resume=save.files)
        assert weights_sha256(resumed.model(0)) == weights_sha256(whole.model(0))
        assert torch.equal(resumed.stack.moment2, whole.stack.moment2)
        later = [r for r in records if isinstance(r, StepRecord) and r.step > save.step]
        assert [r for r in rest if isinstance(r, StepRecord)] == later != []


class Wrong(Copy):
    """Copy, but one id or answer of every draw is not in the vocabulary."""

    def __init__(self, part: str, wrong: int) -> None:
        super().__init__(vocab_size=17, seq_len=10)
        self.part, self.wrong = part, wrong

    def sample(self, generator: Generator, rows: int) -> Batch:
        batch = super().sample(generator, rows)
        getattr(batch, self.part)[-1, 8] = self.wrong
        return batch

    held_out = sample


@on_each_device
@pytest.mark.parametrize("wrong", [17, -1, 2**40])
def test_ids_out_of_range_are_refused_and_the_device_goes_on(device: str, wrong: int) -> None:
    """Wherever they come in. On a GPU the first one that gets through ends all that follows, this test included."""
    where = torch.device(device)
    for part in ("inputs", "targets"):
        task: Task = Wrong(part, wrong)
        with pytest.raises(ValueError) as caught:
            Group([config("copy")], task, where)
        assert str(wrong) in str(caught.value)
    good = build_task(config("copy").task)
    for model in ("copy", "gpt", "llama"):
        settings = config(model)
        stack = Stack([build_model(settings, good, seed) for seed in (1, 2)], [1, 2], settings.train, where)
        ids = torch.stack([fixed_batch(good, 1, "test", 3).inputs] * 2).to(where)
        targets, spoilt = ids.clone(), ids.clone()
        spoilt[1, 2, 3] = wrong
        alone = Group([settings], good, where).model(0)
        for call in (
            lambda: stack.step(spoilt, targets, 1e-3),  # noqa: B023
            lambda: stack.evaluate(spoilt, targets),  # noqa: B023
            lambda: alone(spoilt[1]),  # noqa: B023
        ):
            with pytest.raises(ValueError) as caught:
                call()
            assert str(wrong) in str(caught.value)
        with pytest.raises(UsageError) as refused:
            generate(alone, torch.tensor([3, wrong]), 2)
        assert str(wrong) in str(refused.value)
        with pytest.raises(ValueError):
            alone(ids[0, :, :4].repeat(1, 99))
        stack.step(ids, targets, 1e-3)
        assert bool(stack.weights.isfinite().all()) and bool(alone(ids[1]).isfinite().all())
        assert len(list(generate(alone, torch.tensor([3, 1]), 3))) == 3


@with_models(["copy", "gpt", "llama"], on_cpu=["copy"])
@pytest.mark.parametrize("more", [[], DROPPING], ids=["plain", "dropout"])
def test_models_trained_together_are_the_single_ones(device: str, model: str, more: list[str]) -> None:
    seeds = [3, 1, 8]
    configs = [config(model, *more, f"train.seed={seed}") for seed in seeds]
    group = Group(configs, build_task(configs[0].task), torch.device(device), watch=False)
    together: dict[int, list[Record]] = {slot: [] for slot in range(len(seeds))}
    for slot, record in group.records():
        together[slot].append(record)  # type: ignore[arg-type]
    for slot, settings in enumerate(configs):
        alone, records = run(settings, device)
        assert figures(together[slot]) == pytest.approx(figures(records), abs=1e-4)
        for ours, theirs in zip(group.model(slot).parameters(), alone.model(0).parameters(), strict=True):
            assert torch.allclose(ours, theirs, atol=1e-3)
    assert len({round(group.last_eval[slot].loss, 6) for slot in together}) == len(seeds)


@on_each_device
@pytest.mark.parametrize("model", ["copy", "gpt"])
def test_heads_are_measured_where_the_model_is(device: str, model: str) -> None:
    """Maps, what heads cause, and a whole report, beside the same model in float64 on the CPU."""
    self_check(torch.device(device))
    group, _ = run(config(model, "train.steps_per_epoch=40", "train.lr=0.01"), device)
    here, task = group.model(0), group.task
    there = copy.deepcopy(here).cpu().double()
    assert here.pos.device.type == device
    batch, pair = fixed_batch(task, 1, "probe", 9), here.heads[:2]
    for ours, theirs in zip(capture(here, batch.inputs), capture(there, batch.inputs), strict=True):
        assert torch.allclose(ours.double(), theirs, atol=1e-4)
    causes, wanted = (
        [x for a in ablate(m, batch, pair) for x in (a.loss, a.delta_nats, a.delta_se)] for m in (here, there)
    )
    assert causes == pytest.approx(wanted, abs=1e-4)
    paths = [Path(here.heads[0]), Path(EMBEDDING, here.heads[-1], "k"), Path(here.heads[1], here.heads[-1], "v")]
    paths = [path for path in paths if path_error(here, path) is None]
    patched = [
        [x for e in path_patch(m, task, 1, paths) for x in (e.delta_nats, e.delta_se, e.null)] for m in (here, there)
    ]
    assert patched[0] == pytest.approx(patched[1], abs=1e-3) and len(patched[0]) >= 3
    whole = [[e.delta_nats for e in activation_patch(m, task, 1)] for m in (here, there)]
    assert whole[0] == pytest.approx(whole[1], abs=1e-3)
    lens = [[step.loss for step in logit_lens(m, batch)] for m in (here, there)]
    assert lens[0] == pytest.approx(lens[1], abs=1e-4)
    direct = [[x for found in direct_by_position(m, batch)[1].values() for x in found if x] for m in (here, there)]
    assert direct[0] == pytest.approx(direct[1], abs=1e-4)
    reports = [[h.entropy for h in head_report(m, task, 1).heads] for m in (here, there)]
    assert reports[0] == pytest.approx(reports[1], abs=1e-4) and len(reports[0]) == len(here.heads)
