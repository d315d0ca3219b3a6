"""The prefix matching score of Olsson et al. 2022 by hand, and its null by a second computation."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from mhsa_cli.config.schema import ModelConfig
from mhsa_cli.core.heads.prefix_matching import prefix_matching
from mhsa_cli.core.model.transformer import TransformerLM, draw_weights
from mhsa_cli.core.tasks import TASKS, Task
from mhsa_cli.core.tasks.base import stream_generator
from tests.core.forms import V
from tests.core.handmade import induction
from tests.core.noise import Noise

T, SYMBOLS = 101, 29


def rows(task: Task, seed: int) -> list[list[int]]:
    """The rows of the definition, from its stream."""
    generator = stream_generator(seed, "olsson", 0)
    block = torch.randint(task.n_symbols, (10, 25), generator=generator)
    start = torch.randint(task.n_symbols, (10, 1), generator=generator)
    return torch.cat([start, block, block, block, block], 1).tolist()


@torch.no_grad()
def by_definition(model: TransformerLM, task: Task, seed: int) -> list[float]:
    """Add up the weight of each query from the second block on, on the keys after earlier copies of its token."""
    drawn = rows(task, seed)
    target = torch.zeros(10, T, T, dtype=torch.float64)
    for b, row in enumerate(drawn):
        for q in range(26, T):
            target[b, q, [j + 1 for j in range(1, q) if row[j] == row[q]]] = 1
    _, weights = model(torch.tensor(drawn), return_weights=True)
    sums = [torch.einsum("bhqk,bqk->h", maps.double(), target) for maps in weights]
    return [float(mass) / (10 * 75) for layer in sums for mass in layer]


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer untrained heads than a run is compared with."""
    monkeypatch.setattr("mhsa_cli.core.heads.random_baseline.HEADS", 7)


def test_a_perfect_induction_head_matches_and_the_head_below_does_not() -> None:
    task = TASKS["induction"](vocab_size=SYMBOLS, seq_len=T)
    found = prefix_matching(induction(SYMBOLS, T), task, 3)
    below, above = (head.prefix_matching for head in found.heads)
    # All of its weight, but for the queries whose token is also the start token: that place is no target.
    assert above > 0.95 > found.prefix_matching_null + 0.5 and below < 0.1
    exact = by_definition(induction(SYMBOLS, T), task, 3)
    assert [below, above] == pytest.approx(exact, abs=1e-6)
    assert [head.address for head in found.heads] == [(0, 0), (1, 0)]
    assert [head.copies for head in found.heads] == [0.0, 1.0]  # of all symbols the lower head writes none


@torch.no_grad()
def test_the_null_is_the_99th_percentile_of_untrained_heads() -> None:
    model = TransformerLM(ModelConfig(d_model=12, n_heads=3), vocab_size=V, max_seq_len=T)
    found = prefix_matching(model, Noise(seq_len=5), 4)
    scores, copies = [], []
    for index in range(3):
        draw_weights(model, stream_generator(0, "null", index))
        scores += by_definition(model, Noise(seq_len=5), 0)
        attn = model.attention[0]
        for h in range(3):
            part = slice(4 * h, 4 * h + 4)
            read, write = attn.qkv_proj.weight[24:][part], attn.out_proj.weight[:, part]
            logits = model.tok_emb.weight @ read.T @ write.T @ model.lm_head.weight.T
            copies.append(float((logits.argmax(1) == torch.arange(V)).double().mean()))
    assert len(scores) == 9 and found.prefix_matching_null == pytest.approx(np.quantile(scores, 0.99), abs=1e-6)
    assert found.copies_null == pytest.approx(np.quantile(copies, 0.99)) and 0 < np.quantile(copies, 0.99) < 0.5
