"""Settings of a test that are put together from several lists."""

from __future__ import annotations

from mhsa_cli.config.tasks import TASK_SCHEMAS

# A small value for each setting that a task may have without a default, and for its sizes.
SMALL = {"vocab_size": "4", "seq_len": "4", "path": "text.txt", "rows": "rows.txt"}
IDS = ("rows", "vocab_size")  # null is the small one


def small_task(name: str) -> list[str]:
    """List the settings of a small task, so small that the least of nearly every other setting fits with them."""
    fields = TASK_SCHEMAS[name].model_fields
    return [
        f"task.name={name}",
        *(f"task.{key}={value}" for key, value in SMALL.items() if key in fields and (name, key) != IDS),
    ]


def later_wins(*settings: str) -> list[str]:
    """Drop each setting that a later one of the same key replaces: on one command line a key is set once."""
    return list({setting.partition("=")[0].rpartition(".")[2]: setting for setting in settings}.values())
