"""What every section of a config has in common: strict types, and errors that know their place."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

MAX_VOCAB = 2**20
MAX_SEQ_LEN = 65536


class Section(BaseModel):
    """A section of a config: strict types, no unknown keys, frozen."""

    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        validate_default=True,
        allow_inf_nan=False,
        use_attribute_docstrings=False,
    )


class Expected(str):
    """The values that a field takes, in words, where its type does not tell."""

    __slots__ = ()


def rule(code: str, message: str, hint: str | None = None, at: tuple[str, ...] = ()) -> PydanticCustomError:
    """Make the error of a rule, at the first field of `at` in the file, or about the value of the field itself."""
    return PydanticCustomError("rule", "{message}", {"code": code, "message": message, "hint": hint, "at": at})


VocabSize = Annotated[int, Field(ge=2, le=MAX_VOCAB)]
SeqLen = Annotated[int, Field(ge=1, le=MAX_SEQ_LEN)]
