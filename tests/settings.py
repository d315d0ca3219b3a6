"""Settings of a test that are put together from several lists."""

from __future__ import annotations


def later_wins(*settings: str) -> list[str]:
    """Drop each setting that a later one of the same key replaces: on one command line a key is set once."""
    return list({setting.partition("=")[0].rpartition(".")[2]: setting for setting in settings}.values())
