"""Messages for people, on stderr."""

from __future__ import annotations

import sys


def tell(text: str) -> None:
    """Print a message to stderr, whatever characters it can show."""
    encoding = getattr(sys.stderr, "encoding", None) or "ascii"
    print(text.encode(encoding, "backslashreplace").decode(encoding), file=sys.stderr, flush=True)
