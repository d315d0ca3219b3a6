"""Twelve well-known faults of attention blocks, each put into the source on purpose; the suite must notice every one.

Run as a script it prints a table of mutants and the tests that killed them.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from unittest import mock

import torch

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

from mhsa_cli.core.model import attention

# Test modules whose tests reach the block only through their global name `attention`; quick ones first.
SUITE = ["laws", "masks", "numbers", "shapes", "golden", "reference"]

Patch = tuple[str, str]
Check = Callable[[], None]

# Both paths of every mutant are the materialised one: a fault must be found for what it is, not by the other path.
ONE_PATH: Patch = ('exact = return_weights or (dropping and not by_blocks) or self.kind == "uniform"', "exact = True")

_MASK = "device=device).tril(n_keys - n_queries)"
_SCALE = " / math.sqrt(q.size(-1))"
_PROJECT = "return q, k, v"
_FILL = "scores = scores.masked_fill(~mask, -math.inf)"
_SOFTMAX = "return scores.softmax(-1)\n    # Empty"
_CORNER = "allowed = self.visible[first : first + q.size(-2), : k.size(-2)]\n"
_WEIGHTS = "weights = self.weights(q, k, mask, pos, k_pos, past)"
_DROP = "self.weights_dropout(weights).to(v.dtype)"
_MERGE = "return x.transpose(-3, -2).flatten(-2)"

MUTANTS: dict[str, list[Patch]] = {
    "mask inverted": [(_MASK, _MASK + ".logical_not()")],
    "mask one diagonal too far": [(_MASK, _MASK.replace("n_queries)", "n_queries + 1)"))],
    "mask one diagonal short": [(_MASK, _MASK.replace("n_queries)", "n_queries - 1)"))],
    "scaled by sqrt(d_model)": [(_SCALE, " / math.sqrt(q.size(-1) * q.size(-3))")],
    "not scaled": [(_SCALE, "")],
    "queries and keys swapped": [(_PROJECT, _PROJECT.replace("q, k, v", "k, q, v"))],
    "softmax over queries": [(_SOFTMAX, _SOFTMAX.replace("softmax(-1)", "softmax(-2)"))],
    "filled with -1e9": [(_FILL, _FILL.replace("-math.inf", "-1e9"))],
    "mask's last rows instead of its corner": [
        (_CORNER, _CORNER.replace("first : first + q.size(-2)", "-q.size(-2) :"))
    ],
    "dropout left on in eval": [(_DROP, "F.dropout(weights, self.weights_dropout.p).to(v.dtype)")],
    "weights returned after dropout": [
        (_WEIGHTS, "weights = self.weights_dropout(self.weights(q, k, mask, pos, k_pos, past))"),
        (_DROP, "weights.to(v.dtype)"),
    ],
    "heads merged without transposing": [(_MERGE, "return x.reshape(*x.shape[:-3], x.size(-2), -1)")],
}


def mutate(patches: list[Patch]) -> ModuleType:
    """Compile the block's source with patches into a fresh module. Each patched text must stand there exactly once."""
    source = inspect.getsource(attention)
    for old, new in patches:
        assert source.count(old) == 1, f"the source has {source.count(old)} times: {old}"
        source = source.replace(old, new)
    module = ModuleType("mutant")
    exec(compile(source, "mutant", "exec"), module.__dict__)
    return module


def expand(test: Callable[..., None]) -> Iterator[dict[str, object]]:
    """Give the arguments of every case of a parametrised test; one empty case for a plain one."""
    axes = []
    for mark in getattr(test, "pytestmark", []):
        assert mark.name == "parametrize", f"{test.__name__} carries {mark.name}"
        names, cases = mark.args
        if isinstance(names, str):
            axes.append([{names: case} for case in cases])
        else:
            axes.append([dict(zip(names, case, strict=True)) for case in cases])
    for parts in itertools.product(*axes):
        yield {name: value for part in parts for name, value in part.items()}


def checks(block: ModuleType) -> Iterator[tuple[str, Check]]:
    """Give every case of the suite by its test's name, to be run on the module `block` in place of the real one."""
    for part in SUITE:
        module = importlib.import_module(f"tests.core.test_attention_{part}")
        for name, test in vars(module).items():
            if not name.startswith("test_"):
                continue
            for arguments in expand(test):

                def check(test: Callable[..., None] = test, arguments: dict[str, object] = arguments) -> None:
                    with mock.patch.dict(test.__globals__, attention=block):
                        test(**arguments)

                yield f"{part}: {name}", check


def failed(check: Check) -> bool:
    """Run one case; any exception is a failure of the block, whatever its kind."""
    try:
        check()
    except Exception:
        return True
    return False


def killers(block: ModuleType, *, all_of_them: bool = False) -> list[str]:
    """Give the tests that fail on `block`: the first one, or all."""
    found: list[str] = []
    for name, check in checks(block):
        if name not in found and failed(check):
            found.append(name)
            if not all_of_them:
                break
    return found


def main() -> int:
    """Print the table; the exit status tells whether all mutants died and the sound source lived."""
    torch.set_num_threads(1)
    start, dead = time.perf_counter(), 0
    sound = not killers(mutate([])) and not killers(mutate([ONE_PATH]))
    for name, patches in MUTANTS.items():
        found = killers(mutate([ONE_PATH, *patches]), all_of_them=True)
        dead += bool(found)
        others = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        print(f"{name:40} {found[0] + others if found else 'SURVIVED'}")
    print(f"{dead} of {len(MUTANTS)} killed; the sound source {'passes' if sound else 'FAILS'}", end="")
    print(f" ({time.perf_counter() - start:.0f} s)")
    return 0 if sound and dead == len(MUTANTS) else 1


if __name__ == "__main__":
    sys.exit(main())
