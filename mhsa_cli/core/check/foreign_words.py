"""What torch and Python say with nothing but a message: the one place that reads somebody else's words.

Each of these errors has a general type (RuntimeError, SyntaxError) and no attribute that tells it from others.
"""

from __future__ import annotations


def is_second_backward(error: RuntimeError) -> bool:
    """Tell whether torch refuses to go backward through a graph that it has freed."""
    return "backward through the graph a second time" in str(error)


def is_overflow(error: BaseException) -> bool:
    """Tell whether torch refuses a number that a type of tensor cannot hold."""
    return "overflow" in str(error)
