"""Parameters and memory of a config, estimated before anything is allocated."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, prod
from typing import Any

from mhsa_cli.config.custom_attention import is_file
from mhsa_cli.config.parameters import parameter_shapes
from mhsa_cli.text import byte_size

LIMIT_BYTES = 16 * 2**30
CAUSES: dict[str, tuple[str, ...]] = {  # the settings that enlarge each part, the strongest first
    "weights": ("model.d_model", "model.d_mlp", "model.d_head", "model.n_layers", "task.vocab_size"),
    "masks": ("model.max_seq_len", "task.seq_len", "model.n_layers"),
    "maps": ("task.seq_len", "train.batch_size", "model.n_heads", "model.n_layers"),
    "stream": ("train.batch_size", "task.seq_len", "task.vocab_size", "model.d_model", "model.d_mlp"),
}
MAX_RECORDS = 2000  # step records of a run at the default log_every
EVALUATED = 64  # rows evaluated together: those of a stack stay near a core
MODELS = 5  # copies with masks at a time: the trained model, its stack, the probe, random models


def log_every(train: Any) -> int:
    """Return the steps between recorded steps; the first and the last are always recorded."""
    return int(train.log_every or max(1, ceil(train.epochs * train.steps_per_epoch / MAX_RECORDS)))


def parameters(task: Any, model: Any) -> int | None:
    """Count the parameters; None if they depend on a file: the vocabulary of a text, or custom attention."""
    vocab_size = getattr(task, "vocab_size", None)
    return None if vocab_size is None or is_file(model.attention) else _count(task, model, vocab_size)


def _count(task: Any, model: Any, vocab_size: int) -> int:
    return sum(prod(shape) for shape in parameter_shapes(model, vocab_size, task.seq_len).values())


@dataclass(frozen=True, slots=True)
class Estimate:
    """The memory of a training step in bytes, by part, and the number of parameters."""

    weights: int
    maps: int
    masks: int
    stream: int
    parameters: int

    def problem(self) -> tuple[str, str, tuple[str, ...]] | None:
        """Return message, hint and the settings of the largest part, if the parts exceed the limit."""
        parts = {part: getattr(self, part) for part in CAUSES}
        if sum(parts.values()) <= LIMIT_BYTES:
            return None
        weights, masks, maps, stream, limit = map(byte_size, (*parts.values(), LIMIT_BYTES))
        message = (
            f"this config needs about {weights} for {self.parameters:,} parameters and their moments, {maps} for "
            f"attention maps, {masks} for masks and {stream} for the other activations; the limit is {limit}"
        )
        causes = CAUSES[max(parts, key=parts.__getitem__)]
        return message, "lower " + ", ".join(f"`{name}`" for name in causes), causes


def estimate(task: Any, model: Any, train: Any) -> Estimate:
    """Estimate the memory of a training step: weights, gradient, two moments, activations, and one-byte masks."""
    vocab_size = getattr(task, "vocab_size", None) or 256  # a text's alphabet is small
    item = 8 if train.dtype == "float64" else 4
    count = _count(task, model, vocab_size)
    rows = train.batch_size * task.seq_len
    widths = 4 * model.d_model + 4 * model.n_heads * model.head_width + 2 * model.d_mlp  # of a layer's activations
    return Estimate(
        weights=4 * item * count,
        masks=MODELS * model.attention_layers * (model.max_seq_len or task.seq_len) ** 2,
        maps=2 * item * model.attention_layers * model.n_heads * rows * task.seq_len,
        stream=item * rows * (2 * vocab_size + model.attention_layers * widths),
        parameters=count,
    )


def step_flop(task: Any, model: Any, train: Any) -> float:
    """Estimate the floating-point operations of a training step: the forward pass, and twice as many backward.

    Counted are two for each weight and token, and the products of queries and keys and of weights and values.
    """
    vocab_size = getattr(task, "vocab_size", None) or 256
    shapes = parameter_shapes(model, vocab_size, task.seq_len)
    weights = sum(prod(shape) for name, shape in shapes.items() if len(shape) == 2 and "_emb." not in name)
    weights += vocab_size * model.d_model if model.tie_embeddings else 0
    keys = model.head_width if model.attention == "linear" else min(model.window or task.seq_len, task.seq_len)
    maps = 2 * model.attention_layers * model.n_heads * model.head_width * keys
    return 6.0 * float(train.batch_size * task.seq_len * (weights + maps))


def trial_memory(task: Any, model: Any, train: Any) -> int:
    """Estimate the largest memory of one more model in a stack, evaluation and checkpoints included.

    Evaluation keeps one layer's activations of up to EVALUATED rows; linear attention also has sums as large as a map.
    """
    step = estimate(task, model, train)
    rows = min(EVALUATED, train.eval_sequences)
    evaluation = estimate(task, model, train.model_copy(update={"batch_size": rows}))
    kept = evaluation.stream + (evaluation.maps if model.attention == "linear" else 0)
    return int(3 * step.weights + step.maps + step.masks + step.stream + kept // model.attention_layers)


def trial_disk(task: Any, model: Any, train: Any) -> int:
    """Estimate the size of a finished trial's folder: a checkpoint, metrics, and heads over training."""
    total = train.epochs * train.steps_per_epoch
    checkpoint = 3 * (8 if train.dtype == "float64" else 4) * estimate(task, model, train).parameters
    records = total // log_every(train)
    curve = 120 * (records + 2 * train.epochs)
    with_maps = min(48, max(8, total // 45)) + total.bit_length()
    without = min(total // 4, 16 * total.bit_length())
    size = min(task.seq_len, 32)
    lines = with_maps * (700 + 2 * size * size) + without * (200 + 12 * min(task.seq_len, 64))
    heads = model.attention_layers * model.n_heads * (lines + 20 * task.seq_len**2)
    return int(checkpoint + curve + heads + 50_000)
