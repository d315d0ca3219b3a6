"""The GPT in Lightning's Trainer, with logging, checkpoints, progress and summary switched off."""

from __future__ import annotations

import logging
import warnings
from typing import Any

import lightning
import torch
from others.gpt import GPT
from others.turns import Batches, Pause, count, load_in_order
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from mhsa_cli.config.schema import Config

logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
warnings.filterwarnings("ignore", module="lightning.*")
VERSION = lightning.__version__


class Given(Dataset[Any]):
    """The batches that are at hand."""

    def __init__(self, batches: Batches) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Any:
        return self.batches[index]


class Module(lightning.LightningModule):
    """The GPT as Lightning wants it."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        super().__init__()
        self.given, self.gpt = config, GPT(config)
        load_in_order(self.gpt, weights)

    def training_step(self, batch: Any, number: int) -> Tensor:
        """Compute the loss."""
        return self.gpt(*batch)[1]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Make Adam as ours is."""
        return torch.optim.AdamW(self.parameters(), lr=self.given.train.lr, weight_decay=0.0)


class Told(lightning.Callback):
    """Says after each step what its loss was."""

    def __init__(self, pause: Pause) -> None:
        self.pause = pause

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, number: int) -> None:
        """Pass the loss on."""
        self.pause(outputs["loss"].detach())


class Lightning:
    """Trainer.fit over the batches."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        self.module = Module(config, weights)
        self.parameters = count(self.module)

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=1,
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[Told(pause)],
        )
        trainer.fit(self.module, DataLoader(Given(batches), batch_size=None))
