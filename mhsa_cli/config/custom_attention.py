"""Custom attention, named in a config as FILE:Class: the name is checked, the file read but never run."""

from __future__ import annotations

from collections.abc import Sequence

from mhsa_cli.config.own_file import OwnKind, pick
from mhsa_cli.errors import UsageError
from mhsa_cli.text import escape, quoted

KINDS = ("softmax", "linear", "uniform")
ATTENTION = OwnKind("custom-attention", "Class", "MyAttention", (".py", ".ipynb", ".md"), functions=False)
FOR_MAPS = "for maps: return (y, weights), the weights (B, H, T, T) before dropout, and train again"


def is_file(attention: str) -> bool:
    """Return whether model.attention names a file, not a built-in kind."""
    return attention not in KINDS


def way(attention: str) -> str:
    """Return the hint that lets a command import the custom attention of a run."""
    return f"to let this command import it: --attention {quoted(attention)}"


def refuse_block(attention: str, what: str, does: str = "needs the built-in attention") -> None:
    """Refuse custom attention where its inside is needed. Raises: UsageError."""
    if is_file(attention):
        message = f"{what} {does}; model.attention is {escape(attention)}"
        raise UsageError(message, f"to test your attention: mhsa check {quoted(attention)}")


def find_block(attention: str, options: Sequence[str], who: str) -> str:
    """Find the option --attention that names a run's custom attention. Raises: UsageError if there is none."""
    found = pick(attention, options)
    if found is None:
        shown = escape(attention)
        raise UsageError(f"{who} was trained with {shown}, which is not imported without permission", way(attention))
    return found
