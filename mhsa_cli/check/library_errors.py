"""Errors of torch and Python that only their message tells apart: the one place that reads such messages.

Each has a general type (RuntimeError, SyntaxError) and no attribute that identifies it.
"""

from __future__ import annotations


def is_second_backward(error: RuntimeError) -> bool:
    """Whether torch refuses a backward pass through a freed graph."""
    return "backward through the graph a second time" in str(error)


def is_unknown_encoding(error: SyntaxError) -> bool:
    """Whether a file declares an encoding that Python does not know."""
    return "unknown encoding" in str(error)


def is_python_2(error: SyntaxError) -> bool:
    """Whether Python recognises a line as Python 2."""
    message = error.msg or ""
    return "Missing parentheses in call to" in message or "multiple exception types" in message


def is_overflow(error: BaseException) -> bool:
    """Whether torch refuses a number that the dtype cannot hold."""
    return "overflow" in str(error)
