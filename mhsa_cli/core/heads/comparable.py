"""Whether two runs' heads can be compared at all: known from their sizes, before anything is loaded (no torch here)."""

from __future__ import annotations


def why_not_comparable(vocab_sizes: tuple[int | None, int | None], seq_lens: tuple[int, int]) -> str | None:
    """Say why no maps of two models can be compared; None where they can, for all that is known."""
    if None not in vocab_sizes and vocab_sizes[0] != vocab_sizes[1]:
        sizes = " and ".join(map(str, vocab_sizes))
        return f"the vocabularies differ ({sizes} ids), so there are no rows that both models can read"
    if min(seq_lens) < 2:
        return "in a row of one token every head looks at that token, so there is nothing to compare"
    return None
