"""Errors of torch and Python that only their message tells apart: the one place that reads such messages.

Each has a general type (RuntimeError, SyntaxError) and no attribute that identifies it.
"""

from __future__ import annotations


def is_second_backward(error: RuntimeError) -> bool:
    """Whether torch refuses a backward pass through a freed graph."""
    return "backward through the graph a second time" in str(error)


def is_overwritten(error: BaseException) -> bool:
    """Whether torch refuses a backward pass that needs a tensor which was changed in place."""
    return "modified by an inplace operation" in str(error)


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


def is_about_none(error: BaseException) -> bool:
    """Whether an operation was applied to None."""
    return "NoneType" in str(error)


def is_about_number(error: BaseException) -> bool:
    """Whether a number was taken for something else, as where a list or a module is meant."""
    kinds = ("'int' object", "'float' object", "'bool' object")
    uses = ("is not iterable", "is not subscriptable", "is not callable")
    used = any(kind in str(error) for kind in kinds) and any(use in str(error) for use in uses)
    return used or "should be called with an iterable" in str(error)


def is_about_device(error: BaseException) -> bool:
    """Whether the processor that an operation needs is not here, or the operation is not made for this one."""
    return any(word in str(error) for word in ("CUDA", "NVIDIA", "MPS", "not implemented for", "backend"))


def is_view_of_other_strides(error: RuntimeError) -> bool:
    """Whether torch refuses a view of a tensor whose memory is in another order."""
    return "view size is not compatible with input tensor" in str(error)
