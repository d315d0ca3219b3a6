"""The extrapolated time of a training is the time that the training takes, on a clock of the test's own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from mhsa_cli.config.load import load_config
from mhsa_cli.core.bench import stack_time
from mhsa_cli.core.bench.stack_time import LEAST_STEPS, stack_seconds
from mhsa_cli.core.tasks import build_task
from mhsa_cli.core.training.lockstep import Group
from mhsa_cli.core.training.snapshots import Snapshots
from mhsa_cli.core.training.stack import Stack

SMALL = ["task.name=shift", "vocab_size=7", "seq_len=5", "d_model=6", "n_heads=2", "batch_size=3", "eval_sequences=4"]


@pytest.mark.parametrize(
    "more", [[], ["eval_every=10"], ["eval_every=7", "epochs=3"], ["steps_per_epoch=2"], ["epochs=0"]]
)
@pytest.mark.parametrize("most", [stack_time.MOST, 7000])
def test_what_is_measured_adds_up_to_the_whole_training(
    most: int, more: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stack_time, "MOST", most)
    now, calls = [0.0], list[str]()

    def takes(of: type, name: str, seconds: Any) -> None:
        real = getattr(of, name)

        def instead(self: Any, *given: Any, **kept: Any) -> Any:
            now[0] += seconds(self, *given)
            calls.append(name)
            return real(self, *given, **kept)

        monkeypatch.setattr(of, name, instead)

    takes(Stack, "step", lambda *_: 0.5)
    takes(Stack, "evaluate", lambda _, inputs, targets: 0.75 * inputs.size(1))
    takes(Snapshots, "_score", lambda _, kept: 0.25 * len(kept))
    monkeypatch.setattr(stack_time, "clock", lambda _: now[0])
    given = [*SMALL, "epochs=2", "steps_per_epoch=20"]
    names = {text.partition("=")[0] for text in more}
    config = load_config(None, [*(text for text in given if text.partition("=")[0] not in names), *more])
    task, configs = build_task(config.task), [config, config]
    seconds, model = stack_seconds(configs, task, torch.device("cpu"), 0.0)
    assert calls.count("step") == min(LEAST_STEPS + 1, config.total_steps) and not model.training
    now[0] = 0.0
    for _ in Group(configs, task, torch.device("cpu")).records():
        pass
    assert seconds == pytest.approx(now[0]) and now[0] >= 3


def test_a_training_that_does_not_stay_finite_has_a_time_all_the_same() -> None:
    config = load_config(None, [*SMALL, "lr=1e4", "weight_decay=1e4", "steps_per_epoch=2000"])
    seconds, model = stack_seconds([config], build_task(config.task), torch.device("cpu"), 0.1)
    assert seconds > 0 and all(parameter.isfinite().all() for parameter in model.parameters())
