"""A process that has torch loaded and copies itself, a copy for each command: a start costs milliseconds, not seconds.

Its side of the talk: a JSON line a command on stdin, on stdout a line with the copy's process id and one with its end.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import selectors
import signal
import sys
from typing import Any

import pytest

HELD = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # until the copy is a command: before, they would end a server


def warm() -> None:
    """Import what a command may need, so that its copies have it."""
    import torch

    torch.set_num_threads(1)
    importlib.import_module("mhsa_cli.__main__")  # a signal that came while a copy imports it would be told by Python
    importlib.import_module("torch.fx.experimental.symbolic_shapes")  # which autograd's first call would import
    for name in (
        "commands.app",
        "commands.train",
        "commands.train_output",
        "jobs.train",
        "jobs.resume",
        "jobs.load_heads",
    ):
        importlib.import_module(f"mhsa_cli.{name}")
    for name in (
        "heads.capture",
        "heads.report",
        "training.overlap",
        "training.checkpoint",
        "training.lockstep",
        "training.load",
    ):
        importlib.import_module(f"mhsa_cli.core.{name}")


def prepare(name: str, *arguments: Any) -> None:
    """Call `module:function(patch, *arguments)`, which changes this process as a fault or a mutant wants it."""
    module, _, function = name.partition(":")
    getattr(importlib.import_module(module), function)(pytest.MonkeyPatch(), *arguments)


def begins() -> bool:
    """Let signals in again; False if Ctrl-C came before the command began."""
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
    except KeyboardInterrupt:
        return False
    return True


def be_the_command(wanted: dict[str, Any]) -> None:
    """Become `mhsa ...` in the copied process; never returns."""
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    create = os.O_WRONLY | os.O_CREAT
    for target, path, flags in [(0, os.devnull, os.O_RDONLY), (1, wanted["out"], create), (2, wanted["err"], create)]:
        os.dup2(os.open(path, flags, 0o666), target)
    os.chdir(wanted["cwd"])
    os.environ.update(wanted["env"])
    sys.argv = ["mhsa", *wanted["argv"]]
    sys.stdin, sys.stdout, sys.stderr = (open(fd, mode, closefd=False) for fd, mode in enumerate("rww"))  # noqa: PTH123, SIM115
    code = 1
    try:
        for name, *arguments in wanted["prepare"]:
            prepare(name, *arguments)
        from mhsa_cli.__main__ import run

        begun = begins()
        if begun:
            run()
        code = 0 if begun else 130
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    with contextlib.suppress(Exception):
        sys.stdout.flush(), sys.stderr.flush()  # noqa: B018
    os._exit(code)


def serve() -> None:
    """Read commands until stdin ends."""
    answers = os.dup(1)
    os.set_inheritable(answers, False)
    os.dup2(2, 1)  # whatever prints here must not disturb the talk

    def say(**content: Any) -> None:
        os.write(answers, (json.dumps(content) + "\n").encode())

    warm()
    wake, woken = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(woken)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    selector = selectors.DefaultSelector()
    selector.register(0, selectors.EVENT_READ)
    selector.register(wake, selectors.EVENT_READ)
    running: dict[int, int] = {}
    unread = b""
    say(ready=True)
    while True:
        ready = {key.fd for key, _ in selector.select()}
        if wake in ready:
            with contextlib.suppress(BlockingIOError):
                os.read(wake, 4096)
            for pid in list(running):
                done, status = os.waitpid(pid, os.WNOHANG)
                if done:
                    say(id=running.pop(pid), code=os.waitstatus_to_exitcode(status))
        if 0 in ready:
            data = os.read(0, 1 << 16)
            if not data:
                return
            *lines, unread = (unread + data).split(b"\n")
            for line in lines:
                wanted = json.loads(line)
                signal.pthread_sigmask(signal.SIG_BLOCK, HELD)
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    be_the_command(wanted)
                signal.pthread_sigmask(signal.SIG_UNBLOCK, HELD)
                running[pid] = wanted["id"]
                say(id=wanted["id"], pid=pid)


if __name__ == "__main__":
    serve()
