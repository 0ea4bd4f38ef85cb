"""Entry point for `alchemy` and `python -m alchemy`; handles Ctrl-C from the start."""

import os
import signal
import sys
from types import FrameType, TracebackType


def main() -> int:
    """Run the command. Imports happen here, so that Ctrl-C during an import exits without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise, the caller chose to ignore SIGINT
        signal.signal(signal.SIGINT, _interrupt)
    sys.excepthook = _print_exception
    try:
        from alchemy.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt; during an import, exit instead, because libraries may swallow the exception.

    A run installs its own signal handler.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + number)
        frame = frame.f_back
    raise KeyboardInterrupt


def _print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an exception as Python does, with secrets from the config masked."""
    import traceback

    from alchemy.config.secrets import hide

    sys.stderr.write(hide("".join(traceback.format_exception(kind, error, trace))))


# the guard is needed because spawned workers import the main module again
if __name__ == "__main__":
    sys.exit(main())
