"""The settings of each task: a schema per task, and the table of tasks."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Annotated, Any, Literal, get_args

import pydantic
from pydantic import Field, PlainValidator, ValidationInfo, field_validator, model_validator
from pydantic_core import CoreSchema, PydanticCustomError

from mhsa_cli.config.own_task import OwnTask, is_own
from mhsa_cli.config.row_file import MARKS, RowFileError, read_row_file
from mhsa_cli.config.section import MAX_SEQ_LEN, Expected, Section, SeqLen, VocabSize, rule
from mhsa_cli.config.text_file import read_text
from mhsa_cli.errors import UsageError


class Repeat(Section):
    """One random id in every place: every position holds the answer."""

    name: Literal["repeat"] = Field(default="repeat", description="one random id repeated over the row")
    vocab_size: VocabSize = Field(default=64, description="number of different tokens")
    seq_len: SeqLen = Field(default=12, description="tokens in a row")


LossOn = Literal["answers", "all"]


class PrefixTask(Section):
    """A prefix, a separator, and an answer as long as the prefix: seq_len + 1 tokens, seq_len of them inputs.

    Without a separator all inputs are the prefix, and each is asked for the answer of its own place.
    """

    vocab_size: VocabSize = Field(default=64, description="ids, including the separator (and padding with min_length)")
    separator: bool = Field(default=True, description="false = answers in place, in a row without separator (encoder)")
    seq_len: SeqLen = Field(default=12, description="input tokens; with a separator even, half of them the prefix")
    min_length: Annotated[int, Field(ge=1, le=MAX_SEQ_LEN // 2)] | None = Field(
        default=None, description="shortest prefix if lengths vary; null = always seq_len / 2"
    )
    loss_on: LossOn = Field(default="answers", description="answers | all: tokens that training predicts")

    @field_validator("seq_len")
    @classmethod
    def _even(cls, value: int, info: ValidationInfo) -> int:
        if info.data.get("separator") is False:
            return value
        name = cls.model_fields["name"].default
        if value < 2:
            message = f"found {value}, which leaves task `{name}` no target positions"
            raise rule("targets", message, "write an even number, 2 or more")
        if value % 2:
            message = f"found {value}, wanted an even number: prefix and answer of `{name}` are equally long"
            raise rule("even", message, f"{value - 1} and {value + 1} are even")
        return value

    @field_validator("min_length")
    @classmethod
    def _fits(cls, value: int | None, info: ValidationInfo) -> int | None:
        seq_len, vocab_size = info.data.get("seq_len"), info.data.get("vocab_size")
        if info.data.get("separator") is False:
            if value is not None:
                message = f"found {value}, but without `task.separator` all rows are as long as `task.seq_len`"
                raise rule("prefix", message, "leave the line out", at=("min_length", "separator"))
            return value
        if value is not None and seq_len is not None and value > seq_len // 2:
            most = seq_len // 2
            raise rule("prefix", f"found {value}, wanted at most {most}, which is half of `task.seq_len` ({seq_len})")
        specials = 1 if value is None else 2
        if vocab_size is not None and vocab_size < 2 + specials:
            extra = "the separator" if value is None else "the separator and the padding"
            message = f"`task.vocab_size` is {vocab_size}, wanted {2 + specials} or more: two symbols and {extra}"
            raise rule("vocabulary", message, at=("vocab_size", "min_length"))
        return value

    @field_validator("loss_on")
    @classmethod
    def _needs_separator(cls, value: str, info: ValidationInfo) -> str:
        if value == "all" and info.data.get("separator") is False:
            message = "found all, but without `task.separator` every token has an answer already"
            raise rule("loss-on", message, "leave the line out", at=("loss_on", "separator"))
        return value


class Copy(PrefixTask):
    """The prefix again after the separator."""

    name: Literal["copy"] = Field(default="copy", description="repeat the prefix after the separator")


class Reverse(PrefixTask):
    """The prefix backwards after the separator."""

    name: Literal["reverse"] = Field(default="reverse", description="reverse the prefix after the separator")


Period = Annotated[int, Field(ge=1, le=MAX_SEQ_LEN - 1)]


class Induction(Section):
    """A block of symbols, repeated to the end of the row; its length is random in each row or batch."""

    name: Literal["induction"] = Field(default="induction", description="continue a repeated block of random length")
    vocab_size: VocabSize = Field(default=32, description="number of different tokens")
    seq_len: Annotated[int, Field(ge=2, le=MAX_SEQ_LEN)] = Field(default=24, description="tokens in a row")
    distinct: bool = Field(default=True, description="the symbols of a block differ; false = drawn one by one")
    min_period: Period | None = Field(default=None, description="shortest block; null = a quarter of seq_len")
    max_period: Period | None = Field(default=None, description="longest block; null = half of seq_len")
    period_per: Literal["row", "batch"] = Field(
        default="row", description="row | batch: which of them draws its block length in training"
    )
    loss_on: LossOn = Field(default="answers", description="answers | all: tokens that training predicts")

    @field_validator("max_period")
    @classmethod
    def _repeats(cls, value: int | None, info: ValidationInfo) -> int | None:
        if not {"vocab_size", "seq_len", "distinct", "min_period"} <= info.data.keys():
            return value
        vocab_size, seq_len = info.data["vocab_size"], info.data["seq_len"]
        longest = value or seq_len // 2
        shortest = info.data["min_period"] or max(1, seq_len // 4)
        if longest >= seq_len:
            message = (
                f"found {value}, wanted at most {seq_len - 1}: a block must repeat within `task.seq_len` ({seq_len})"
            )
            raise rule("periods", message)
        if shortest > longest:
            message = f"periods from {shortest} to {longest}: the shortest exceeds the longest"
            way = "set both `task.min_period` and `task.max_period`"
            raise rule("periods", message, way, at=("min_period", "max_period"))
        if longest > vocab_size and info.data["distinct"]:
            message = f"`task.vocab_size` is {vocab_size}, wanted {longest} or more: the symbols of a block differ"
            way = "`task.max_period`" if value else "`task.seq_len`: the longest block is half of it"
            way = f"or lower {way}; or set task.distinct=false"
            raise rule("vocabulary", message, way, at=("vocab_size", "max_period", "seq_len"))
        return value


class Shift(Section):
    """Counting: the answer at each position is the token plus one, modulo vocab_size."""

    name: Literal["shift"] = Field(default="shift", description="count: each answer is its token plus one")
    vocab_size: VocabSize = Field(default=64, description="number of different tokens")
    seq_len: SeqLen = Field(default=12, description="tokens in a row")


def _path(value: Any) -> str:
    # pydantic's str refuses file names that are not UTF-8.
    if not isinstance(value, str):
        raise PydanticCustomError("string_type", "wanted text")
    if not value:
        raise rule("path", "found an empty text, wanted the path of a file")
    if any(ord(char) < 32 or ord(char) == 127 for char in value):
        raise rule("path", "found a control character in the path")
    return value


FilePath = Annotated[str, PlainValidator(_path), pydantic.WithJsonSchema({"type": "string"})]
EvalFraction = Annotated[float, Field(gt=0, le=0.5)]


class Text(Section):
    """Next-character prediction on a text file."""

    name: Literal["text"] = Field(default="text", description="predict the next character of a text file")
    path: Annotated[FilePath, Expected("the path of a text file")] = Field(
        description="text file, relative to the working directory"
    )
    seq_len: SeqLen = Field(default=64, description="characters in a row")
    eval_fraction: EvalFraction = Field(default=0.1, description="held-out end of the file")


class Rows(Section):
    """Rows of the user's own: inputs with their targets, a line each."""

    name: Literal["rows"] = Field(default="rows", description="rows of your own, from a file")
    rows: Annotated[FilePath, Expected("the path of a file of rows")] = Field(
        description="lines `input -> target`, or JSON lines, or CSV"
    )
    vocab_size: VocabSize | None = Field(
        default=None, description="tokens are ids below this number; null = any tokens, numbered by the file"
    )
    seq_len: SeqLen = Field(description="tokens in a row [default: those of the longest]")
    eval_fraction: EvalFraction = Field(default=0.1, description="held-out part of the different rows")

    @model_validator(mode="before")
    @classmethod
    def _as_long_as_the_longest(cls, data: Any, info: ValidationInfo) -> Any:
        """Fill in seq_len from the file; of a run it is written."""
        path = data.get("rows") if isinstance(data, dict) else None
        if not isinstance(path, str) or not path or not (info.context or {}).get("files"):
            return data
        try:
            longest = read_row_file(path).seq_len
        except RowFileError as error:
            raise rule("rows", error.message, error.hint, at=("rows",)) from error
        return {"seq_len": longest, **data}


# Every task, in the order in which they are listed; core.tasks.TASKS implements them.
TaskConfig = (
    Repeat
    | Copy
    | Reverse
    | Induction
    | Shift
    | Text
    | Rows
)  # fmt: skip
TASK_SCHEMAS: dict[str, type[TaskConfig]] = {
    schema.model_fields["name"].default: schema for schema in get_args(TaskConfig)
}


# The setting of a task that names its file of data, which is copied into every run.
DATA_FILES = {"text": "path", "rows": "rows"}


def data_file(task: TaskConfig | OwnTask) -> str | None:
    """Return the path of a task's file of data; None if it has none."""
    return getattr(task, DATA_FILES[task.name]) if task.name in DATA_FILES else None


def with_data_file(task: TaskConfig | OwnTask, path: str) -> TaskConfig | OwnTask:
    """Return the task with its file of data at another path."""
    return task.model_copy(update={DATA_FILES[task.name]: path})


def vocab_size_of(task: TaskConfig | OwnTask) -> int:
    """Return the number of ids, which a task over a file has from it. Raises: UsageError if that cannot be read."""
    if isinstance(task, Text):
        return len(set(read_text(task.path)))
    if not isinstance(task, Rows) or task.vocab_size is not None:
        return int(task.vocab_size or 0)
    try:
        return len(read_row_file(task.rows).tokens) + len(MARKS)
    except RowFileError as error:
        raise UsageError(error.message, error.hint) from error


def schema_of(name: str) -> type[TaskConfig | OwnTask] | None:
    """Return the schema of a task, built in or in a file of the user's; None if there is no such task."""
    return OwnTask if is_own(name) else TASK_SCHEMAS.get(name)


def task_name(value: Any) -> str:
    """Return the task whose schema applies; without a name that of a file of rows, or the default task."""
    if isinstance(value, dict):
        name = value.get("name", "rows" if "rows" in value else "repeat")
    else:
        name = getattr(value, "name", "")
    return name if isinstance(name, str) else ""


def _tag(value: Any) -> str:
    name = task_name(value)
    return OWN if is_own(name) else name


def _by_name(union: Any, handler: pydantic.GetCoreSchemaHandler) -> CoreSchema:
    tagged = [Annotated[schema, pydantic.Tag(name)] for name, schema in {**TASK_SCHEMAS, OWN: OwnTask}.items()]
    return handler(Annotated[reduce(or_, tagged), pydantic.Discriminator(_tag)])


OWN = "FILE.py:Name"
AnyTask = Annotated[TaskConfig | OwnTask, pydantic.GetPydanticSchema(_by_name)]
