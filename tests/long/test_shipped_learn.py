"""The tasks installed with the recipes, as their recipes train them: later phases, and what their baselines bound."""

from __future__ import annotations

import math

import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.tasks import Task
from mhsa_cli.core.training.lockstep import Group, records_of
from mhsa_cli.jobs.own_task import make_task
from mhsa_cli.records.training import EpochRecord


def epochs_of(recipe: str, *overrides: str) -> tuple[Task, list[EpochRecord]]:
    config = load_config(recipe, overrides)
    task = make_task(config)
    group = Group([config], task, torch.device("cpu"), watch=False)
    return task, [record for record in records_of(group) if isinstance(record, EpochRecord)]


def test_modular_addition_is_memorised_first_and_understood_later() -> None:
    task, epochs = epochs_of("modular", "epochs=5")
    assert epochs[0].loss < task.chance_loss < epochs[0].eval_loss
    assert epochs[3].loss < 0.7 and epochs[3].eval_loss > 0.8
    assert epochs[4].eval_accuracy > 0.6 and epochs[4].eval_loss < task.baselines["memory and a+b = b+a"]


def test_markov_goes_from_unigrams_to_bigrams_and_not_beyond() -> None:
    task, epochs = epochs_of("markov")
    unigram, bigram = task.baselines["unigram"], task.baselines["bigram"]
    assert task.chance_loss > epochs[0].eval_loss > (unigram + bigram) / 2
    assert bigram - 0.01 < epochs[-1].eval_loss < bigram + (unigram - bigram) / 4
    assert epochs[-1].eval_accuracy > task.goal_accuracy


def test_one_layer_does_not_get_beyond_unigrams() -> None:
    task, epochs = epochs_of("markov", "n_layers=1", "epochs=4")
    assert epochs[-1].eval_loss > (2 * task.baselines["unigram"] + task.baselines["bigram"]) / 3


def test_counting_finishes_what_any_symbol_cannot() -> None:
    for recipe, overrides in (("sort", ["epochs=2"]), ("selective_copy", ["epochs=2"]), ("segment", ["epochs=1"])):
        task, epochs = epochs_of(recipe, *overrides)
        assert epochs[-1].eval_accuracy > 0.9, recipe
        assert epochs[-1].eval_loss < min(task.chance_loss, *task.baselines.values()) / 3 < math.inf, recipe


def test_recall_needs_values_that_ask_for_their_keys() -> None:
    task, epochs = epochs_of("recall", "epochs=3")
    assert epochs[-1].eval_accuracy > 0.95 and epochs[-1].eval_loss < task.baselines["any value so far"] / 3
    alone, epochs = epochs_of("recall", "task.back=false", "epochs=3")
    assert epochs[-1].eval_loss > alone.baselines["any value so far"] - 0.05
