"""Settings of a test that are put together from several lists."""

from __future__ import annotations

# Every task at its smallest.
SMALLEST = {
    "repeat": {"task.vocab_size": "3", "task.seq_len": "2"},
    "copy": {"task.vocab_size": "4", "task.seq_len": "4"},
    "reverse": {"task.vocab_size": "4", "task.seq_len": "4"},
    "induction": {"task.vocab_size": "3", "task.seq_len": "3"},
    "shift": {"task.vocab_size": "3", "task.seq_len": "2"},
    "text": {"task.path": "text.txt", "task.seq_len": "2"},
}


def later_wins(*settings: str) -> list[str]:
    """Drop each setting that a later one of the same key replaces: on one command line a key is set once."""
    return list({setting.partition("=")[0].rpartition(".")[2]: setting for setting in settings}.values())
