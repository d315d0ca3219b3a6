"""Loss, accuracy and exact match of a trained model on any rows, in all and place by place."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from mhsa_cli.config.estimate import EVALUATED
from mhsa_cli.config.schema import Config, TrainConfig
from mhsa_cli.core.heads.causal import ratio
from mhsa_cli.core.model.transformer import TransformerLM
from mhsa_cli.core.statistics import wilson
from mhsa_cli.core.tasks import IGNORE, Batch, Task
from mhsa_cli.core.tasks.base import token_figures
from mhsa_cli.core.training.lockstep import build_model
from mhsa_cli.core.training.stack import in_chunks, stack_models
from mhsa_cli.records.evaluation import Evaluation, Place

HELD = 2**26  # numbers of attention weights or logits of one layer held at once


def with_rows_of(model: TransformerLM, config: Config, task: Task, max_seq_len: int) -> TransformerLM:
    """Copy a model with tables for rows of `max_seq_len` tokens; its weights, which know no length, stay."""
    longer = config.model_copy(update={"model": config.model.model_copy(update={"max_seq_len": max_seq_len})})
    made = build_model(longer, task)
    made.load_state_dict(model.state_dict())
    return made.eval()


def evaluate(
    model: TransformerLM,
    task: Task,
    batch: Batch,
    settings: Mapping[str, Any],
    seen: int | None,
    train: TrainConfig,
    chunk: int | None = None,
) -> Evaluation:
    """Evaluate a model in eval mode on rows of a task. Loss and accuracy are those of its training, bit for bit.

    chunk: rows that run together, by default as in a training if memory allows.
    """
    torch.set_num_threads(train.threads)  # changes the last bits
    T, V = task.seq_len, model.tok_emb.weight.size(-2)
    at_once = chunk or max(1, min(EVALUATED, HELD // (T * max(T * model.mixers[0].n_heads, V))))
    rows, targets = batch.inputs.unsqueeze(0), batch.targets.unsqueeze(0)
    parts, figures = [], []
    for logits, wanted in in_chunks(stack_models([model]), rows, targets, train.dtype, torch.device("cpu"), at_once):
        nats, correct = token_figures(logits, wanted)
        scored = wanted != IGNORE
        # Summed as by `Stack.evaluate`, so that the figures are those of the run.
        figures.append(torch.stack([part.flatten(1).sum(1).double() for part in (nats, correct, scored)]))
        parts.append((nats[0].double(), correct[0].double()))
    nats, correct = (torch.cat(each) for each in zip(*parts, strict=True))  # (N, T), 0 where nothing is scored
    scored = batch.targets != IGNORE
    totals = torch.stack(figures).sum(0)[:, 0]
    counts, loss, accuracy = scored.sum(1), *(totals[:2] / totals[2]).tolist()
    _, (loss_se, accuracy_se) = ratio(torch.stack([nats.sum(1), correct.sum(1)]), counts.double())
    n, exact = int((counts > 0).sum()), int(((correct.sum(1) == counts) & (counts > 0)).sum())
    first = scored.int().argmax(1, keepdim=True)
    t = torch.arange(T)
    return Evaluation(
        settings,
        len(batch.inputs),
        seen,
        loss,
        loss_se,
        accuracy,
        accuracy_se,
        n,
        exact,
        *wilson(exact, n),
        task.chance_loss,
        task.chance_accuracy,
        _places(t.expand_as(scored), nats, correct, scored),
        _places(t - first, nats, correct, scored),
    )


def _places(at: Tensor, nats: Tensor, correct: Tensor, scored: Tensor) -> list[Place]:
    """Average over the scored tokens of each place, which `at` (N, T) numbers from 0."""
    index = at[scored]
    count = torch.bincount(index)
    loss, right = (torch.bincount(index, each[scored], len(count)) / count for each in (nats, correct))
    figures = zip(count.tolist(), loss.tolist(), right.tolist(), strict=True)
    return [Place(place, n, *means) for place, (n, *means) in enumerate(figures) if n]
