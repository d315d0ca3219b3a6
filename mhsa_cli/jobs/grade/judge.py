"""The process that confirms right grades: no code of a user's ever runs in it."""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.context import BaseContext
from typing import Any

from mhsa_cli.jobs.plain_main import plain_main
from mhsa_cli.records.check import UNCONFIRMED, Grade, GradeOptions, Note

SECONDS = 60.0  # for one grade; it takes some milliseconds
WHY = {
    "laws": "its process sent a grade in which these laws are missing or broken: {fact}",
    "claim": "its process does not say how its weights are read ({fact})",
    "fault": "its process calls it right and describes a fault ({fact})",
    "differs": "with fresh weights and input its output is not the reference's (max diff {fact})",
    "silent": "the process that confirms it gave no answer ({fact})",
}


class Judge:
    """Confirms right grades in one process for all, which starts when it is first needed."""

    def __init__(self, context: BaseContext, grader: str) -> None:
        self._context, self._grader = context, grader
        self._process: Any = None
        self._pipe: Any = None

    def refusal(self, grade: Grade, claim: Any, seed: int, answer: Any, options: GradeOptions) -> Note | None:
        """Say why a right grade is not confirmed; None if it is."""
        if self._process is None:
            self._start()
        laws = [[law.id, law.passed] for law in grade.laws]
        try:
            self._pipe.send_bytes(json.dumps([laws, claim, seed, answer, options.causal]).encode())
            found = json.loads(self._pipe.recv_bytes()) if self._pipe.poll(SECONDS) else ["silent", f"{SECONDS:g} s"]
        except (EOFError, OSError) as error:
            found = ["silent", type(error).__name__]
        if found is not None and found[0] == "silent":
            self.close()
        return None if found is None else unconfirmed(*found)

    def _start(self) -> None:
        self._pipe, other = self._context.Pipe()
        self._process = self._context.Process(  # type: ignore[attr-defined]
            target=serve, args=(other, self._grader), daemon=True
        )
        with plain_main():
            self._process.start()
        other.close()

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._pipe.close()
            self._process.kill()
            self._process.join(5)
            self._process = None


def unconfirmed(code: str, fact: str) -> Note:
    """Say why a grade that is called right is not confirmed."""
    return Note(UNCONFIRMED, f"called right and not confirmed: {WHY[code].format(fact=fact)}", {"code": code})


def serve(pipe: Connection, grader: str) -> None:
    """Answer until the parent closes the pipe. Never returns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    with contextlib.suppress(EOFError, OSError):
        refusal: Any = importlib.import_module(grader).refusal
        while True:
            given: Sequence[Any] = json.loads(pipe.recv_bytes())
            pipe.send_bytes(json.dumps(refusal(*given)).encode())
    os._exit(0)
