"""The way in: `mhsa` and `python -m mhsa_cli`."""

from __future__ import annotations

import os
import sys


def main() -> None:
    """Run the command line and leave with the exit code that tells what happened."""
    from mhsa_cli.commands.stderr import tell
    from mhsa_cli.errors import MhsaError

    try:
        from mhsa_cli.commands.app import app

        app(prog_name="mhsa")
    except MhsaError as error:
        tell(f"error: {error}")
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # Whoever read our output has seen enough. Python would complain once more while flushing at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except Exception as error:
        tell(f"internal error: {type(error).__name__}: {error}\n  please report it, with {write_trace()}")
        sys.exit(1)


def write_trace() -> str:
    """Write the traceback to a file of its own and say where it is."""
    import tempfile
    import traceback

    try:
        with tempfile.NamedTemporaryFile("w", prefix="mhsa-", suffix=".txt", delete=False, encoding="utf-8") as file:
            file.write(f"mhsa {' '.join(map(ascii, sys.argv[1:]))}\n{traceback.format_exc()}")
        return f"the details in {file.name}"
    except OSError:
        return f"these details:\n{traceback.format_exc()}"


if __name__ == "__main__":
    main()
