"""Messages for people, on stderr."""

from __future__ import annotations

import sys

from mhsa_cli.runs.disk import show


def counted(count: int, noun: str) -> str:
    """Write `1 trial`, `2 trials`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def tell(text: str) -> None:
    """Print a message to stderr, whatever characters it can show; a control character becomes an escape."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    text = "\n".join(map(show, text.split("\n")))
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr, flush=True)
