"""Every setting with its type, default and description."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, ValidationInfo, WithJsonSchema, field_validator

from mhsa_cli.config import custom_attention, early_stop, estimate, init_file, own_file
from mhsa_cli.config.problems import clip
from mhsa_cli.config.section import Expected, Section, SeqLen, rule
from mhsa_cli.config.spelling import did_you_mean
from mhsa_cli.config.tasks import AnyTask, FilePath, Repeat
from mhsa_cli.config.threads import Threads, with_threads

Norm = Literal["none", "layernorm", "rmsnorm"]
Mlp = Literal["gelu", "relu", "swiglu"]
RopeLayout = Literal["interleaved", "half"]
Schedule = Literal["constant", "cosine", "linear"]
BatchStream = Literal["seekable", "sequential"]
DType = Literal["float32", "float64", "bfloat16"]
# Each positional scheme with the method of core.model.positions.Positions that it overrides.
SCHEMES = {"learned": "embed", "sinusoidal": "embed", "rope": "rotate", "alibi": "bias", "none": ""}
if TYPE_CHECKING:
    Positions = str
else:
    Positions = Literal[tuple(SCHEMES)]

MAX_STEPS = 10**9

Width = Annotated[int, Field(ge=1, le=65536)]
Steps = Annotated[int, Field(ge=1, le=MAX_STEPS)]
Count = Annotated[int, Field(ge=0, le=MAX_STEPS)]
MAX_ROWS = 2**20
Rows = Annotated[int, Field(ge=1, le=MAX_ROWS)]
Rate = Annotated[float, Field(ge=0, lt=1)]


def _device(value: str) -> str:
    if not re.fullmatch(r"auto|cpu|mps|cuda(:(0|[1-9][0-9]{0,3}))?", value):
        hint = "did you mean `cuda`?" if value == "gpu" else None
        raise rule("value", f"found the text `{clip(value)}`, wanted {_DEVICES}", hint)
    return value


def _attention(value: str, info: ValidationInfo) -> str:
    if not custom_attention.is_file(value):
        return value
    if ":" not in value and not value.lower().endswith(custom_attention.ATTENTION.suffixes):  # not meant as a file
        hint = did_you_mean(value, custom_attention.KINDS)
        raise rule("value", f"found the text `{clip(value)}`, wanted {_ATTENTION}", hint)
    problem = own_file.form_problem(value, custom_attention.ATTENTION)
    if problem is None and (info.context or {}).get("files"):  # a run is readable without its file
        problem = own_file.file_problem(value, custom_attention.ATTENTION)
    if problem is not None:
        raise rule(*problem, at=("attention",) if problem.code == custom_attention.ATTENTION.file_code else ())
    return value


_ATTENTION = "one of softmax, linear, uniform, or custom attention: FILE.py:Class"
_FORMS = {"anyOf": [{"enum": list(custom_attention.KINDS)}, {"type": "string", "pattern": r"\.(py|ipynb|md):\w+$"}]}
Attention = Annotated[str, AfterValidator(_attention), Expected(_ATTENTION), WithJsonSchema(_FORMS)]


def _init(value: str, info: ValidationInfo) -> str:
    if (info.context or {}).get("files") and (problem := init_file.problem(value)):  # a run has a copy of its file
        raise rule(*problem)
    return value


InitFile = Annotated[FilePath, AfterValidator(_init), Expected("the path of a safetensors file")]


def _goal(value: str) -> str:
    if early_stop.read_goal(value) is None:
        form = early_stop.meant(value)
        raise rule("value", f"found the text `{clip(value)}`, wanted {early_stop.EXAMPLE}", form and f"write {form}")
    return value


StopAt = Annotated[str, AfterValidator(_goal), Expected(early_stop.EXAMPLE)]
_DEVICES = "one of auto, cpu, mps, cuda, cuda:N"
Device = Annotated[str, AfterValidator(_device), Expected(_DEVICES)]
# YAML has lists; a frozen config has tuples.
Betas = Annotated[
    tuple[Rate, Rate],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
    Expected("a list of two numbers in [0, 1)"),
]


def divisors(number: int) -> list[int]:
    """List the divisors of `number` in ascending order."""
    small = [n for n in range(1, int(number**0.5) + 1) if number % n == 0]
    return sorted({*small, *(number // n for n in small)})


def _next_to(number: int, options: list[int]) -> str:
    below, above = [n for n in options if n < number], [n for n in options if n > number]
    return " and ".join(map(str, [*below[-1:], *above[:1]]))


# Settings of the built-in attention that custom attention does not take, each with what is left to do.
_BUILT_IN = {
    "d_head": "its heads are d_model / n_heads wide",
    "n_kv_heads": "custom attention may share keys itself",
}


# Values that an encoder-decoder may have, and the reason.
_WITH_ENCODER: dict[str, tuple[tuple[Any, ...], str]] = {
    "causal": ((True,), "its encoder has no mask, its decoder is causal"),
    "attention": (("softmax", "uniform"), "its attention is softmax or uniform"),
    "window": ((None,), "its attention has no window"),
    "max_seq_len": ((None,), "its rows are as long as the task's"),
}


class ModelConfig(Section):
    """The network; with d_mlp 0, no residual and no norm it is attention alone."""

    d_model: Width = Field(default=32, description="model width")
    n_heads: Width = Field(default=4, description="attention heads")
    d_head: Width | None = Field(default=None, description="width of a head; null = d_model / n_heads")
    n_kv_heads: Width | None = Field(default=None, description="key/value heads; null = n_heads, 1 = multi-query")
    n_layers: Annotated[int, Field(ge=1, le=1024)] = Field(default=1, description="layers")
    encoder_layers: Annotated[int, Field(ge=0, le=1024)] = Field(
        default=0, description="encoder layers, read by cross-attention in every layer (encoder-decoder); 0 = none"
    )
    d_mlp: Annotated[int, Field(ge=0, le=2**20)] = Field(default=0, description="hidden width of the MLP; 0 = no MLP")
    mlp: Mlp = Field(default="gelu", description="gelu | relu | swiglu: type of the MLP")
    residual: bool = Field(default=False, description="residual connections")
    norm: Norm = Field(default="none", description="none | layernorm | rmsnorm, pre-norm")
    positions: Positions = Field(default="sinusoidal", description=" | ".join(SCHEMES))
    rope_theta: Annotated[float, Field(gt=1, le=1e9)] = Field(default=10000.0, description="base of the rope angles")
    rope_layout: RopeLayout = Field(default="interleaved", description="interleaved | half: pairs that rope rotates")
    attention: Attention = Field(default="softmax", description="softmax | linear | uniform (frozen) | FILE.py:Class")
    causal: bool = Field(default=True, description="hide later tokens; false = encoder: every query sees all keys")
    window: SeqLen | None = Field(default=None, description="sliding window of softmax, in tokens; null = none")
    bias: bool = Field(default=True, description="biases in the linear layers")
    init_std: Annotated[float, Field(ge=1e-4, le=100)] | None = Field(
        default=None, description="initial weights from N(0, init_std^2), biases 0, as GPT-2; null = as torch.nn.Linear"
    )
    dropout: Rate = Field(default=0.0, description="dropout probability in training")
    max_seq_len: SeqLen | None = Field(default=None, description="longest row the model takes; null = task.seq_len")
    tie_embeddings: bool = Field(default=False, description="tie the input and output embeddings")

    @field_validator("d_head")
    @classmethod
    def _divides(cls, value: int | None, info: ValidationInfo) -> int | None:
        d_model, n_heads = info.data.get("d_model"), info.data.get("n_heads")
        if value is None and d_model is not None and n_heads is not None and d_model % n_heads:
            message = f"`model.d_model` ({d_model}) is not divisible by `model.n_heads` ({n_heads})"
            way = f"nearest n_heads that divide {d_model}: {_next_to(n_heads, divisors(d_model))}"
            raise rule("heads", message, way, at=("n_heads", "d_model"))
        return value

    @field_validator("n_kv_heads")
    @classmethod
    def _shares(cls, value: int | None, info: ValidationInfo) -> int | None:
        n_heads = info.data.get("n_heads")
        if value is not None and n_heads is not None and n_heads % value:
            message = f"`model.n_heads` ({n_heads}) is not divisible by `model.n_kv_heads` ({value})"
            way = f"n_kv_heads that divide {n_heads}: {', '.join(map(str, divisors(n_heads)))}"
            raise rule("heads", message, way, at=("n_kv_heads", "n_heads"))
        return value

    @field_validator("positions")
    @classmethod
    def _turns_pairs(cls, value: str, info: ValidationInfo) -> str:
        d_model, n_heads, d_head = (info.data.get(name) for name in ("d_model", "n_heads", "d_head"))
        if value != "rope" or "d_head" not in info.data:
            return value
        if d_head is not None and d_head % 2:
            message = f"`model.positions` (rope) rotates pairs, but `model.d_head` ({d_head}) is odd"
            raise rule("pairs", message, "make d_head even; or use other positions", at=("positions", "d_head"))
        if d_head is None and d_model and n_heads and d_model // n_heads % 2:
            message = f"`model.positions` (rope) rotates pairs, but `model.d_model` ({d_model}) / `model.n_heads`"
            near = _next_to(n_heads, [n for n in divisors(d_model) if d_model // n % 2 == 0])
            way = f"nearest n_heads with an even width: {near}" if near else "make d_model even"
            at = ("positions", "n_heads", "d_model")
            raise rule("pairs", f"{message} ({n_heads}) is odd", f"{way}; or use other positions", at=at)
        return value

    @field_validator("attention")
    @classmethod
    def _takes_bias(cls, value: str, info: ValidationInfo) -> str:
        positions = info.data.get("positions", "")
        if value == "linear" and SCHEMES.get(positions) == "bias":
            message = f"`model.positions` ({positions}) adds to the scores of a softmax, linear attention has none"
            way = "use attention: softmax, or positions: rope"
            raise rule("positions", message, way, at=("attention", "positions"))
        if custom_attention.is_file(value):
            if SCHEMES.get(positions, "") in ("rotate", "bias"):
                message = f"`model.positions` ({positions}) belongs to the built-in attention, not to custom attention"
                way = "use learned, sinusoidal or none; custom attention may have its own"
                raise rule("positions", message, way, at=("positions", "attention"))
            for name, way in _BUILT_IN.items():
                if info.data.get(name) is not None:
                    message = f"`model.{name}` belongs to the built-in attention, not to custom attention"
                    raise rule("custom-attention", message, f"leave the line out; {way}", at=(name, "attention"))
        return value

    @field_validator("causal")
    @classmethod
    def _unmasks(cls, value: bool, info: ValidationInfo) -> bool:
        attention = info.data.get("attention")
        if not value and attention is not None and custom_attention.is_file(attention):
            message = "`model.causal` (false) belongs to the built-in attention: custom attention must be causal"
            raise rule("custom-attention", message, "leave the line out", at=("causal", "attention"))
        return value

    @field_validator("window")
    @classmethod
    def _slides(cls, value: int | None, info: ValidationInfo) -> int | None:
        if value is not None and info.data.get("causal") is False:
            message = f"`model.window` ({value}) ends at the query, but `model.causal` (false) shows it all keys"
            raise rule("window", message, "leave one of the two lines out", at=("window", "causal"))
        attention = info.data.get("attention")
        if value is not None and attention not in (None, "softmax"):
            message = f"`model.window` ({value}) belongs to softmax, not to `model.attention` ({clip(attention)})"
            way = "leave the line out, or use attention: softmax"
            raise rule("window", message, way, at=("window", "attention"))
        return value

    @field_validator(*_WITH_ENCODER)
    @classmethod
    def _fits_an_encoder(cls, value: Any, info: ValidationInfo) -> Any:
        name = str(info.field_name)
        allowed, why = _WITH_ENCODER[name]
        if info.data.get("encoder_layers") and value not in allowed:
            message = f"`model.{name}` ({clip(str(value))}) does not go with `model.encoder_layers`: {why}"
            raise rule("encoder", message, "leave one of the two lines out", at=(name, "encoder_layers"))
        return value

    @property
    def attention_layers(self) -> int:
        """The number of attention layers; each decoder layer of an encoder-decoder has two."""
        return self.n_layers + self.encoder_layers + (self.n_layers if self.encoder_layers else 0)

    @field_validator("max_seq_len")
    @classmethod
    def _reaches(cls, value: int | None, info: ValidationInfo) -> int | None:
        # The context has the task's length, so that this is checked even if another setting is wrong.
        return _check_reach(value, (info.context or {}).get("seq_len"))

    @property
    def head_width(self) -> int:
        """The width of a head: `model.d_head`, or d_model / n_heads."""
        return self.d_head or self.d_model // self.n_heads


def _check_reach(max_seq_len: int | None, seq_len: int | None) -> int | None:
    if max_seq_len is not None and seq_len is not None and max_seq_len < seq_len:
        message = f"found {max_seq_len}, wanted `task.seq_len` ({seq_len}) or more"
        raise rule("reach", message, "leave the line out: null means `task.seq_len`")
    return max_seq_len


class TrainConfig(Section):
    """Optimisation, and what is recorded on the way."""

    epochs: Count = Field(default=3, description="0 = save the untrained model")
    steps_per_epoch: Steps = Field(default=120, description="optimizer steps per epoch")
    batch_size: Rows = Field(default=16, description="rows per step")
    batch_stream: BatchStream = Field(
        default="seekable", description="seekable | sequential: one generator draws every batch in turn"
    )
    lr: Annotated[float, Field(gt=0, le=1e4)] = Field(default=5e-3, description="peak learning rate of Adam")
    schedule: Schedule = Field(default="constant", description="constant | cosine | linear: decay of lr after warm-up")
    warmup_steps: Count = Field(default=0, description="steps until lr reaches its peak")
    min_lr: Annotated[float, Field(ge=0, le=1e4)] = Field(
        default=0.0, description="learning rate of the last step of a cosine or linear schedule"
    )
    weight_decay: Annotated[float, Field(ge=0, le=1e4)] = Field(default=0.0, description="weight decay, as in AdamW")
    betas: Betas = Field(default=(0.9, 0.999), description="beta1 and beta2 of Adam")
    eps: Annotated[float, Field(ge=1e-16, le=1)] = Field(default=1e-8, description="added to Adam's denominator")
    grad_clip: Annotated[float, Field(gt=0, le=1e9)] | None = Field(
        default=None, description="maximum gradient norm; null = no clipping"
    )
    init: InitFile | None = Field(default=None, description="file of initial weights; null = drawn from the seed")
    seed: Annotated[int, Field(ge=0, le=2**63 - 1)] = Field(default=42, description="random seed")
    device: Device = Field(default="auto", description="auto | cpu | mps | cuda | cuda:N")
    dtype: DType = Field(default="float32", description="float32 | float64 | bfloat16")
    threads: Threads = Field(default=1, description="CPU threads, or auto (changes the last bits)")
    log_every: Steps | None = Field(default=None, description="steps between records; null = at most 2,000 records")
    eval_every: Steps | None = Field(default=None, description="steps between evaluations; null = once per epoch")
    eval_sequences: Rows = Field(default=512, description="rows per evaluation")
    stop_at: StopAt | None = Field(default=None, description="end once an evaluation shows it: accuracy=0.99, loss=0.1")
    patience: Steps | None = Field(default=None, description="end after so many evaluations without a lower loss")
    save_every: Steps | None = Field(default=None, description="steps between checkpoints; null = once per epoch")
    keep: Steps = Field(default=2, description="checkpoints kept on disk, the newest ones")

    @field_validator("steps_per_epoch")
    @classmethod
    def _ends(cls, value: int, info: ValidationInfo) -> int:
        epochs = info.data.get("epochs")
        if epochs is not None and epochs * value > MAX_STEPS:
            product = f"`train.epochs` x `train.steps_per_epoch` is {epochs * value:,} steps"
            raise rule("steps", f"{product}, wanted at most {MAX_STEPS:,}", at=("steps_per_epoch", "epochs"))
        return value

    @field_validator("warmup_steps")
    @classmethod
    def _warms_up(cls, value: int, info: ValidationInfo) -> int:
        epochs, per_epoch = info.data.get("epochs"), info.data.get("steps_per_epoch")
        # An untrained run (0 epochs) has no schedule.
        if epochs and per_epoch is not None and value > epochs * per_epoch:
            message = f"found {value:,}, wanted at most {epochs * per_epoch:,}: the run has no more steps"
            raise rule("warmup", message, "steps are epochs x steps_per_epoch")
        return value

    @field_validator("min_lr")
    @classmethod
    def _decays(cls, value: float, info: ValidationInfo) -> float:
        lr = info.data.get("lr")
        if lr is not None and value > lr:
            message = f"`train.min_lr` is {value:g}, wanted at most `train.lr` ({lr:g})"
            raise rule("min-lr", message, at=("min_lr", "lr"))
        if value and info.data.get("schedule") == "constant":
            message = f"`train.min_lr` ({value:g}) is where a schedule ends, `train.schedule` is constant"
            raise rule("min-lr", message, "write schedule: cosine, or linear", at=("min_lr", "schedule"))
        return value

    @property
    def sequential(self) -> bool:
        """Whether one generator draws every batch in turn."""
        return self.batch_stream == "sequential"

    @field_validator("dtype")
    @classmethod
    def _runs_on(cls, value: str, info: ValidationInfo) -> str:
        if value == "float64" and info.data.get("device") == "mps":
            raise rule("dtype", "mps has no float64", "write float32, or device: cpu", at=("dtype", "device"))
        return value


class Config(Section):
    """A complete, valid run: task, model and training."""

    task: AnyTask = Field(default=Repeat(), description="the task")
    model: ModelConfig = Field(default=ModelConfig(), description="the network")
    train: TrainConfig = Field(default=TrainConfig(), description="the training")

    @field_validator("model")
    @classmethod
    def _long_enough(cls, value: ModelConfig, info: ValidationInfo) -> ModelConfig:
        if "task" in info.data:
            task = info.data["task"]
            _check_reach(value.max_seq_len, task.seq_len)
            if value.encoder_layers and not (getattr(task, "separator", False) is True and task.min_length is None):
                found = f"`model.encoder_layers` ({value.encoder_layers})"
                message = f"{found} needs rows of a source of one length, a separator and an answer"
                way = "use task copy or reverse, without min_length and with its separator"
                raise rule("encoder", message, way, at=("encoder_layers",))
        return value

    @field_validator("train")
    @classmethod
    def _fits_in_memory(cls, value: TrainConfig, info: ValidationInfo) -> TrainConfig:
        if "task" in info.data and "model" in info.data:
            problem = estimate.estimate(info.data["task"], info.data["model"], value).problem()
            if problem is not None:
                raise rule("memory", *problem)
        return value

    @field_validator("train")
    @classmethod
    def _chooses_threads(cls, value: TrainConfig, info: ValidationInfo) -> TrainConfig:
        known = "task" in info.data and "model" in info.data
        return with_threads(info.data["task"], info.data["model"], value) if known else value

    @property
    def total_steps(self) -> int:
        """The optimizer steps of the run."""
        return self.train.epochs * self.train.steps_per_epoch

    @property
    def origin(self) -> str | None:
        """The file that a model comes from which is not trained here; None for any other."""
        return None if self.total_steps else self.train.init

    @property
    def max_seq_len(self) -> int:
        """The longest row the model takes: `model.max_seq_len`, or the task's."""
        return self.model.max_seq_len or self.task.seq_len

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, in the order of the schema."""
        return {name: _section(getattr(self, name)) for name in ("task", "model", "train")}


def _section(section: Section) -> dict[str, Any]:
    values = {**{name: getattr(section, name) for name in type(section).model_fields}, **(section.model_extra or {})}
    plain = {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}
    return {"name": plain.pop("name"), **plain} if "name" in plain else plain
