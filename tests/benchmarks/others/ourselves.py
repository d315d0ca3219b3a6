"""Our own step of another config, in turns with ours: what a form costs beside the same model without it."""

from __future__ import annotations

from collections.abc import Sequence

from others.turns import Batches, Ours, Pause, Work
from torch import Tensor

from mhsa_cli.config.schema import Config


class Without:
    """Our training of the config that `settings` make, from its own initial weights, on the given batches."""

    def __init__(self, settings: Sequence[str], config: Config, weights: dict[str, Tensor]) -> None:
        self.ours = Ours(Work("without", settings))
        self.parameters = self.ours.parameters

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        for inputs, targets in batches:
            pause(self.ours.step(inputs, targets))
