"""The way in: `mhsa` and `python -m mhsa_cli`."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
import time

NO_MEMORY = b"error: out of memory\n  give it more memory\n"


def main() -> None:
    """Run the command line and leave with the exit code that tells what happened."""
    # An import makes hundreds of thousands of objects that stay: looking through them again and again costs an eighth
    # of the time to import torch.
    gc.set_threshold(100_000, 20, 20)
    from mhsa_cli.commands.deleted_folder import refuse_torch_without_folder, tell_if_gone
    from mhsa_cli.errors import MhsaError
    from mhsa_cli.jobs.messages import foreseen, forget_output, open_streams, tell

    open_streams()
    refuse_torch_without_folder()
    if os.environ.get("FORCE_COLOR", "").lower() in ("0", "false", "no", "off"):
        os.environ["NO_COLOR"] = os.environ.pop("FORCE_COLOR")  # the libraries would read it as a yes
    try:
        from mhsa_cli.commands.app import app

        try:
            app(prog_name="mhsa")
        finally:
            sys.stdout.flush()  # here, where a full disk or a reader that left can still be told
    except MhsaError as error:
        tell(f"error: {error}")
        tell_if_gone()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:  # Ctrl-C before a command has begun; commands see to it themselves
        sys.exit(130)
    except BrokenPipeError:
        forget_output()  # whoever read it has seen enough
        sys.exit(1)
    except Exception as error:
        refused = foreseen(error)
        if isinstance(error, OSError):
            forget_output()
        if refused is not None:
            tell(f"error: {refused}")
            tell_if_gone()
            sys.exit(refused.exit_code)
        tell(f"internal error: {type(error).__name__}: {error}\n  please report it, with {write_trace()}")
        sys.exit(1)


def write_trace() -> str:
    """Write the traceback to a file of its own and say where it is."""
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
        if name:  # half of them help nobody
            pathlib.Path(name).unlink(missing_ok=True)
        return f"these details:\n{trace}"


def _keep_interrupt(lost: sys.UnraisableHookArgs) -> None:
    """Let a Ctrl-C that came inside a destructor, where Python writes a traceback and drops it, come once more."""
    if not issubclass(lost.exc_type, KeyboardInterrupt):
        sys.__unraisablehook__(lost)
        return
    threading.Thread(target=_interrupt_again, daemon=True).start()


def _interrupt_again() -> None:
    """Send a Ctrl-C as soon as the main thread is out of the function above, from which Python would drop it too."""
    while _in_keep_interrupt():
        time.sleep(0.01)
    signal.raise_signal(signal.SIGINT)


def _in_keep_interrupt() -> bool:
    # A note that the function makes at its end would come too early, still inside it: only the frames tell.
    frame = sys._current_frames().get(threading.main_thread().ident or 0)
    while frame is not None and frame.f_code is not _keep_interrupt.__code__:
        frame = frame.f_back
    return frame is not None


def run() -> None:
    """Be the program: as `main`, and gone at once when all is said."""
    code: int | str | None = 0
    sys.unraisablehook = _keep_interrupt
    try:
        try:
            main()
        except SystemExit as error:
            code = error.code
        except (MemoryError, OSError) as error:  # not even enough to say so, or to begin
            with contextlib.suppress(OSError):
                os.write(2, NO_MEMORY if isinstance(error, MemoryError) else f"error: {error}\n".encode())
            code = 5
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    except KeyboardInterrupt:  # a second one, while the first was being told, or one at the very end
        code = 130
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    if "torch" not in sys.modules or isinstance(code, str):
        sys.exit(code)
    # Taking torch apart, module by module, takes Python more than half a second, and all files are closed.
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    os._exit(code or 0)


if __name__ == "__main__":
    run()
