"""A row of every built-in task at a small size, for `mhsa tasks`: drawn once, so that no torch is needed to show it."""

from __future__ import annotations

from math import log

from mhsa_cli.records.training import TaskInfo


def _drawn(name: str, summary: str, inputs: str, targets: str, loss: float, accuracy: float) -> TaskInfo:
    return TaskInfo(name, summary, inputs.split(), targets.split(), loss, accuracy, {})


# What core.tasks.drawn draws of each of core.tasks.TASKS, in the order of that table. A test draws all of it again.
EXAMPLES = {
    info.name: info
    for info in (
        _drawn(
            "repeat", "one id in every position; any attention finds the answer",
            "7 7 7 7 7 7 7 7",
            "7 7 7 7 7 7 7 7", log(10), 1 / 10,
        ),
        _drawn(
            "copy", "a random prefix, a separator, the prefix again",
            "8 3 5 0 | 8 3 5",
            "· · · · 8 3 5 0", log(9), 1 / 9,
        ),
        _drawn(
            "reverse", "a random prefix, a separator, the prefix backwards",
            "8 3 5 0 | 0 5 3",
            "· · · · 0 5 3 8", log(9), 1 / 9,
        ),
        _drawn(
            "induction", "repeated random symbols of unknown period; one layer is not enough",
            "9 3 7 9 3 7 9 3",
            "· · · 3 7 9 3 7", log(10), 1 / 10,
        ),
        _drawn(
            "shift", "counting upwards; a wrongly shifted target shows at once",
            "7 8 9 0 1 2 3 4",
            "8 9 0 1 2 3 4 5", log(10), 1 / 10,
        ),
        _drawn(
            "text", "the next character of your own file",
            "l o ␣ a t t e n",
            "o ␣ a t t e n t", 2.134136538332939, 0.1875,
        ),
        _drawn(
            "rows", "rows of your own, from a file",
            "4 + 3 |",
            "· · · 7", 2.899748105060001, 0.083526611328125,
        ),
    )
}  # fmt: skip
