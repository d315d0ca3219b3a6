"""How many parameters a config asks for, and whether they fit, before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mhsa_cli.config.custom_attention import is_file

LIMIT_BYTES = 16 * 2**30
CAUSES: dict[str, tuple[str, ...]] = {  # the settings that make each part of an estimate large, most telling first
    "weights": ("model.d_model", "model.d_mlp", "model.n_layers", "task.vocab_size"),
    "masks": ("model.max_seq_len", "task.seq_len", "model.n_layers"),
    "maps": ("task.seq_len", "train.batch_size", "model.n_heads", "model.n_layers"),
    "stream": ("train.batch_size", "task.seq_len", "task.vocab_size", "model.d_model", "model.d_mlp"),
}
MODELS = 5  # that have masks at a time: the trained one, its stack, what watches it, what it is held against


def parameters(task: Any, model: Any) -> int | None:
    """Count the weights; None where a file tells: the vocabulary of a text, or somebody's own block."""
    vocab_size = getattr(task, "vocab_size", None)
    return None if vocab_size is None or is_file(model.attention) else _count(task, model, vocab_size)


def _count(task: Any, model: Any, vocab_size: int) -> int:
    D, bias = model.d_model, int(model.bias)
    norm = {"none": 0, "layernorm": D * (1 + bias), "rmsnorm": D}[model.norm]
    embeddings = vocab_size * D
    if model.positions == "learned":
        embeddings += (model.max_seq_len or task.seq_len) * D
    kv = D // model.n_heads * (model.n_kv_heads or model.n_heads)  # width of the keys, and of the values
    attention = (D + bias) * (D + 2 * kv) + D * (D + bias) + norm
    ups = 2 if model.mlp == "swiglu" else 1
    mlp = (ups + 1) * D * model.d_mlp + bias * (D + ups * model.d_mlp) + norm if model.d_mlp else 0
    head = vocab_size * (1 if model.tie_embeddings else D + 1)  # the head always has its bias
    return int(embeddings + model.n_layers * (attention + mlp) + norm + head)


@dataclass(frozen=True, slots=True)
class Estimate:
    """What a config asks for, in bytes."""

    weights: int
    maps: int
    masks: int
    stream: int
    parameters: int

    @property
    def too_large(self) -> bool:
        """Tell whether it is more than any machine this is meant for holds."""
        return self.weights + self.maps + self.masks + self.stream > LIMIT_BYTES

    def sentence(self) -> str:
        """Say the numbers."""
        return (
            f"this asks for about {_gib(self.weights)} for {self.parameters:,} parameters and their moments, "
            f"{_gib(self.maps)} for attention maps, {_gib(self.masks)} for masks and {_gib(self.stream)} for the "
            f"other activations; the limit is {_gib(LIMIT_BYTES)}"
        )

    def hint(self) -> str:
        """Say which settings lower the largest part."""
        return "lower " + ", ".join(f"`{name}`" for name in self.causes())

    def causes(self) -> tuple[str, ...]:
        """Name the settings of the largest part."""
        return CAUSES[max(CAUSES, key=lambda part: getattr(self, part))]


def _gib(size: int) -> str:
    return f"{size / 2**30:,.1f} GiB" if size >= 2**28 else f"{size / 2**20:,.1f} MiB"


def estimate(task: Any, model: Any, train: Any) -> Estimate:
    """Estimate the memory of a training step: weights, gradient, two moments, and what the backward pass keeps.

    A layer's mask has a byte for each pair of positions up to the longest row that the model takes.
    """
    vocab_size = getattr(task, "vocab_size", 256)  # a text's alphabet is small
    item = 8 if train.dtype == "float64" else 4
    count = _count(task, model, vocab_size)
    rows = train.batch_size * task.seq_len
    return Estimate(
        weights=4 * item * count,
        masks=MODELS * model.n_layers * (model.max_seq_len or task.seq_len) ** 2,
        maps=2 * item * model.n_layers * model.n_heads * rows * task.seq_len,
        stream=item * rows * (2 * vocab_size + model.n_layers * (8 * model.d_model + 2 * model.d_mlp)),
        parameters=count,
    )


def trial_memory(task: Any, model: Any, train: Any) -> int:
    """Estimate the bytes that one more model of a stack takes at most, evaluation and checkpoints included.

    Evaluation keeps one layer's activations of up to 256 rows; linear attention also holds a map's worth of sums.
    """
    step = estimate(task, model, train)
    rows = min(256, train.eval_sequences)
    look = estimate(task, model, train.model_copy(update={"batch_size": rows}))
    kept = look.stream + (look.maps if model.attention == "linear" else 0)
    return int(3 * step.weights + step.maps + step.masks + step.stream + kept // model.n_layers)


def trial_disk(task: Any, model: Any, train: Any) -> int:
    """Estimate the bytes of a finished trial's folder: a checkpoint, its curve, and its heads over training."""
    total = train.epochs * train.steps_per_epoch
    checkpoint = 3 * (8 if train.dtype == "float64" else 4) * estimate(task, model, train).parameters
    records = total // train.log_every if train.log_every else min(total, 2000)
    curve = 120 * (records + 2 * train.epochs)
    looks = min(48, max(8, total // 45)) + total.bit_length()
    size = min(task.seq_len, 32)
    heads = model.n_layers * model.n_heads * (looks * (700 + 2 * size * size) + 20 * task.seq_len**2)
    return int(checkpoint + curve + heads + 50_000)
