"""What torch and Python say with nothing but a message: the one place that reads somebody else's words.

Each of these errors has a general type (RuntimeError, SyntaxError) and no attribute that tells it from others.
"""

from __future__ import annotations


def is_second_backward(error: RuntimeError) -> bool:
    """Tell whether torch refuses to go backward through a graph that it has freed."""
    return "backward through the graph a second time" in str(error)


def is_unknown_encoding(error: SyntaxError) -> bool:
    """Tell whether a file names an encoding that Python does not know, and not one that it is not written in."""
    return "unknown encoding" in str(error)


def is_python_2(error: SyntaxError) -> bool:
    """Tell whether Python takes a line for Python 2."""
    said = error.msg or ""
    return "Missing parentheses in call to" in said or "multiple exception types" in said


def is_overflow(error: BaseException) -> bool:
    """Tell whether torch refuses a number that a type of tensor cannot hold."""
    return "overflow" in str(error)
