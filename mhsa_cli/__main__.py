"""The entry point of `mhsa` and `python -m mhsa_cli`."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time
from typing import NoReturn

NO_MEMORY = b"error: out of memory\n  give it more memory\n"


def main() -> None:
    """Run the command line and exit with its code."""
    # Importing torch makes hundreds of thousands of permanent objects: collecting them again and again takes an eighth
    # of its time.
    gc.set_threshold(100_000, 20, 20)
    from mhsa_cli.commands.deleted_folder import refuse_torch_without_folder, tell_if_gone
    from mhsa_cli.errors import COMPLETION, MhsaError
    from mhsa_cli.jobs.messages import foreseen, forget_output, open_streams, tell

    def fail(error: MhsaError) -> NoReturn:
        if COMPLETION in os.environ:
            sys.exit(0)
        tell(f"error: {error}")
        tell_if_gone()
        sys.exit(error.exit_code)

    open_streams()
    refuse_torch_without_folder()
    if os.environ.get("FORCE_COLOR", "").lower() in ("0", "false", "no", "off"):
        os.environ["NO_COLOR"] = os.environ.pop("FORCE_COLOR")  # libraries would take any value as yes
    try:
        from mhsa_cli.commands.app import app

        try:
            app(prog_name="mhsa")
        finally:
            sys.stdout.flush()  # here, where a full disk or a closed pipe is still reported
    except MhsaError as error:
        fail(error)
    except KeyboardInterrupt:  # Ctrl-C before a command starts; commands handle it themselves
        sys.exit(130)
    except BrokenPipeError:
        forget_output()
        sys.exit(1)
    except Exception as error:
        if COMPLETION in os.environ:
            sys.exit(0)
        refused = foreseen(error)
        if isinstance(error, OSError):
            forget_output()
        if refused is not None:
            fail(refused)
        what = f"internal error: {type(error).__name__}: {error}"
        tell(f"{what}\n  please report it, with the output of `mhsa doctor -v` and {write_trace()}")
        sys.exit(1)


def write_trace() -> str:
    """Write the traceback to a temporary file; return where it is."""
    import pathlib
    import tempfile
    import traceback

    trace = f"mhsa {' '.join(map(ascii, sys.argv[1:]))}\n{traceback.format_exc()}"
    name = ""
    try:
        with tempfile.NamedTemporaryFile("w", prefix="mhsa-", suffix=".txt", delete=False, encoding="utf-8") as file:
            name = file.name
            file.write(trace)
        return f"the details in {name}"
    except OSError:
        if name:  # no incomplete file
            pathlib.Path(name).unlink(missing_ok=True)
        return f"these details:\n{trace}"


def _keep_interrupt(lost: sys.UnraisableHookArgs) -> None:
    """Repeat a Ctrl-C that came inside a destructor, where Python prints a traceback and drops it."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    threading.Thread(target=_interrupt_again, daemon=True).start()


def _interrupt_again() -> None:
    """Send a Ctrl-C once the main thread has left the function above, in which Python would drop it, too."""
    while _in_keep_interrupt():
        time.sleep(0.01)
    signal.raise_signal(signal.SIGINT)


def _in_keep_interrupt() -> bool:
    # A flag set at the end of the function would be set while still inside it: only the frames tell.
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not _keep_interrupt.__code__:
        frame = frame.f_back
    return frame is not None


def run() -> None:
    """Run `main` as a program, and exit without taking modules apart."""
    code: int | str | None = 0
    sys.unraisablehook = _keep_interrupt
    try:
        try:
            main()
        except SystemExit as error:
            code = error.code
        except (MemoryError, OSError) as error:  # too little memory even for an error message, or to start
            with contextlib.suppress(OSError):
                os.write(2, NO_MEMORY if isinstance(error, MemoryError) else f"error: {error}\n".encode())
            code = 5
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:  # a second one, during the handling of the first, or at the very end
        code = 130
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "torch" not in sys.modules or isinstance(code, str):
        sys.exit(code)
    # Python needs more than half a second to unload torch; all files are closed already.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    run()
