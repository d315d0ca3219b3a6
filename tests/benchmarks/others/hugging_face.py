"""Hugging Face's GPT-2 in its Trainer, with logging, saving and progress switched off."""

from __future__ import annotations

import tempfile
from typing import Any

import torch
import transformers
from others.turns import Batches, Pause, count
from torch import Tensor, nn
from torch.utils.data import Dataset, SequentialSampler

from mhsa_cli.config.schema import Config

VERSION = transformers.__version__


class Rows(Dataset[Any]):
    """Rows one by one: the Trainer puts batches together itself."""

    def __init__(self, batches: Batches) -> None:
        self.inputs = torch.cat([inputs for inputs, _ in batches])
        self.targets = torch.cat([targets for _, targets in batches])

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Any:
        return {"input_ids": self.inputs[index], "answers": self.targets[index]}


class GPT2(nn.Module):
    """GPT-2 with our sizes and a bias in the head; the loss is on answers given, not on inputs moved by one."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        super().__init__()
        c, V, T = config.model, config.task.vocab_size, config.task.seq_len
        sizes = {"n_embd": c.d_model, "n_head": c.n_heads, "n_layer": c.n_layers, "n_inner": c.d_mlp}
        off = {"resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0, "tie_word_embeddings": False}
        given = {"vocab_size": V, "n_positions": T, "activation_function": "gelu", "use_cache": False}
        given |= {"bos_token_id": None, "eos_token_id": None}
        self.gpt = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes, **off, **given))
        self.gpt.lm_head = nn.Linear(c.d_model, V)
        self.load(weights)

    @torch.no_grad()
    def load(self, weights: dict[str, Tensor]) -> None:
        """Copy our weights; GPT-2's own linear maps hold them transposed."""
        ours, g = iter(weights.values()), self.gpt.transformer
        parts = [g.wte, g.wpe]
        for block in g.h:
            parts += [block.ln_1, block.attn.c_attn, block.attn.c_proj, block.ln_2, block.mlp.c_fc, block.mlp.c_proj]
        for part in [*parts, g.ln_f, self.gpt.lm_head]:
            for parameter in part.parameters():
                weight = next(ours)
                turned = weight.dim() == 2 and not isinstance(part, nn.Embedding | nn.Linear)
                parameter.copy_(weight.T if turned else weight)
        assert next(ours, None) is None

    def forward(self, input_ids: Tensor, answers: Tensor) -> dict[str, Tensor]:
        logits = self.gpt(input_ids=input_ids).logits
        return {"loss": nn.functional.cross_entropy(logits.view(-1, logits.size(-1)), answers.reshape(-1))}


class InOrder(transformers.Trainer):
    """A Trainer that takes the rows as they come, and says each step's loss."""

    def __init__(self, *given: Any, pause: Pause, **named: Any) -> None:
        super().__init__(*given, **named)
        self.pause = pause

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        return SequentialSampler(self.train_dataset)

    def training_step(self, *given: Any, **named: Any) -> Tensor:
        """Take the loss of a step for later; the optimiser's step is still to come."""
        self.loss = super().training_step(*given, **named)
        return self.loss


class Told(transformers.TrainerCallback):
    """Says after each step what its loss was."""

    trainer: InOrder

    def on_step_end(self, args: Any, state: Any, control: Any, **named: Any) -> None:
        """Pass the loss on."""
        self.trainer.pause(self.trainer.loss.detach())


class HuggingFace:
    """Trainer.train over the batches."""

    def __init__(self, config: Config, weights: dict[str, Tensor]) -> None:
        self.config, self.model = config, GPT2(config, weights)
        self.parameters = count(self.model)

    def run(self, batches: Batches, pause: Pause) -> None:
        """Train on every batch."""
        told = Told()
        with tempfile.TemporaryDirectory() as folder:
            options = transformers.TrainingArguments(
                output_dir=folder,
                per_device_train_batch_size=self.config.train.batch_size,
                num_train_epochs=1,
                learning_rate=self.config.train.lr,
                lr_scheduler_type="constant",
                weight_decay=0.0,
                max_grad_norm=0.0,
                logging_strategy="no",
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                dataloader_pin_memory=False,
                remove_unused_columns=False,
            )
            trainer = InOrder(self.model, options, train_dataset=Rows(batches), callbacks=[told], pause=pause)
            told.trainer = trainer
            trainer.remove_callback(transformers.PrinterCallback)
            trainer.train()
