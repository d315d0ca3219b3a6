"""Whether the heads of two runs can be compared, from their sizes alone: checked before torch is loaded."""

from __future__ import annotations


def why_not_comparable(vocab_sizes: tuple[int | None, int | None], seq_lens: tuple[int, int]) -> str | None:
    """Say why the maps of two models cannot be compared; None if nothing known forbids it."""
    if None not in vocab_sizes and vocab_sizes[0] != vocab_sizes[1]:
        sizes = " and ".join(map(str, vocab_sizes))
        return f"the vocabularies differ ({sizes} ids), so no rows suit both models"
    if min(seq_lens) < 2:
        return "in a row of one token every head attends to that token, so there is nothing to compare"
    return None
