"""The lesson's figures: its own weights and data must give its digits, and our own draws the same story."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn

from mhsa_cli.config.load import load_config
from mhsa_cli.config.recipes import FOLDER
from mhsa_cli.config.schema import Config
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.init_weights import load_initial
from mhsa_cli.core.training.lockstep import Group, build_model, records_of
from mhsa_cli.records.training import EpochRecord, StepRecord

CPU = torch.device("cpu")
STEP_LOSSES = {
    1: 4.2115,
    20: 4.1813,
    40: 4.0458,
    60: 3.6810,
    80: 2.2340,
    100: 0.7939,
    120: 0.2969,
    240: 0.0057,
    360: 0.0025,
}


def epochs(config: Config) -> list[EpochRecord]:
    """Train; give the epochs."""
    records = records_of(Group([config], build_task(config.task), CPU, watch=False))
    return [record for record in records if isinstance(record, EpochRecord)]


def lesson_layers() -> tuple[nn.Embedding, nn.Linear, nn.Linear, nn.Linear]:
    """Draw the lesson's weights with plain torch modules, in its order: a throw-away block and input come first."""
    torch.manual_seed(42)
    nn.Linear(32, 96), nn.Linear(32, 32), torch.randn(16, 12, 32)
    embedding = nn.Embedding(64, 32)
    nn.init.normal_(embedding.weight, std=0.02)
    return embedding, nn.Linear(32, 96), nn.Linear(32, 32), nn.Linear(32, 64)


def by_hand() -> list[float]:
    """Train the lesson's model in a loop of plain torch; the loss of every step."""
    embedding, qkv, out, head = layers = nn.ModuleList(lesson_layers())
    rate = 10000 ** (-torch.arange(0, 32, 2) / 32)
    angle = torch.arange(12)[:, None] * rate
    table = torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
    generator, optimizer, losses = torch.Generator().manual_seed(42), torch.optim.Adam(layers.parameters(), lr=5e-3), []
    for _ in range(360):
        row = torch.randint(0, 64, (16, 1), generator=generator).expand(16, 13)
        q, k, v = (t.view(16, 12, 4, 8).transpose(1, 2) for t in qkv(embedding(row[:, :-1]) + table).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1) / 8**0.5).masked_fill(torch.ones(12, 12).triu(1).bool(), -torch.inf)
        y = out((scores.softmax(-1) @ v).transpose(1, 2).flatten(2))
        loss = F.cross_entropy(head(y).flatten(0, 1), row[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_the_recipe_begins_with_the_lessons_weights() -> None:
    embedding, qkv, out, head = lesson_layers()
    found = load_file(FOLDER / "lesson.safetensors")
    names = {"tok_emb": embedding, "blocks.0.attn.qkv_proj": qkv, "blocks.0.attn.out_proj": out, "lm_head": head}
    drawn = {f"{at}.{leaf}": tensor for at, part in names.items() for leaf, tensor in part.state_dict().items()}
    assert found.keys() == drawn.keys()
    assert all(torch.allclose(found[name], tensor, atol=1e-6) for name, tensor in drawn.items())


def test_the_recipe_gives_the_lessons_digits() -> None:
    config = load_config("lesson")
    assert config.train.init == "lesson.safetensors" and config.train.sequential
    task = build_task(config.task)
    model = build_model(config, task, seed=7)
    load_initial(model, config, load_file(FOLDER / "lesson.safetensors"), "lesson.safetensors")
    records = list(records_of(Group([config], task, CPU, models=[model])))
    losses = {r.step: r.loss for r in records if isinstance(r, StepRecord)}
    assert {step: losses[step] for step in STEP_LOSSES} == pytest.approx(STEP_LOSSES, abs=2e-3)
    means = [r.loss for r in records if isinstance(r, EpochRecord)]
    assert means == pytest.approx([2.8808, 0.0501, 0.0036], abs=2e-3)
    assert min(s for s in losses if losses[s] < 1.0) == 94
    assert min(s for s in losses if losses[s] < 0.1) == 130
    assert list(losses.values()) == pytest.approx(by_hand(), abs=2e-3)


def test_it_has_the_lessons_8384_parameters_for_every_head_count() -> None:
    for n_heads in (1, 2, 4, 8, 16, 32):
        config = load_config(None, [f"model.n_heads={n_heads}"])
        assert sum(p.numel() for p in build_model(config, build_task(config.task)).parameters()) == 8384


def test_the_three_epochs_fall_as_the_lessons_do_for_any_seed() -> None:
    """Six seeds, trained together: each run of a group is the run alone."""
    configs = [load_config(None, [f"train.seed={seed}"]) for seed in range(6)]
    records = list(Group(configs, build_task(configs[0].task), CPU, watch=False).records())
    for seed in range(6):
        own = [record for run, record in records if run == seed]
        first, second, third = (r for r in own if isinstance(r, EpochRecord))
        step_one = next(r for r in own if isinstance(r, StepRecord))
        assert step_one.loss == pytest.approx(4.16, abs=0.15), f"seed {seed}"
        assert 2.3 < first.loss < 3.4 and 0.01 < second.loss < 0.25 and 0.001 < third.loss < 0.006, f"seed {seed}"
        assert third.eval_accuracy == 1.0, f"seed {seed}"


@pytest.mark.parametrize("n_heads", [1, 2, 8])
def test_the_lesson_learns_with_any_number_of_heads(n_heads: int) -> None:
    config = load_config(None, [f"model.n_heads={n_heads}"])
    last = epochs(config)[-1]
    assert last.eval_accuracy == 1.0 and last.loss < 0.006


def test_copy_is_learned_and_its_control_without_a_pattern_is_not() -> None:
    learned, control = (
        epochs(load_config(None, ["task.name=copy", f"model.attention={kind}"]))[-1] for kind in ("softmax", "uniform")
    )
    assert learned.eval_accuracy == 1.0 and learned.loss < 0.01
    assert control.eval_accuracy < 0.2 and control.loss > 3.0
