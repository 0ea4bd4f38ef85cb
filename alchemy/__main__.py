"""The program `alchemy`, also as `python -m alchemy`: meets Ctrl-C from its first moment on."""

import os
import signal
import sys
from types import FrameType, TracebackType


def main() -> int:
    """The command that was typed; what it takes is imported here, where Ctrl-C ends it without a word."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else somebody ignores it on purpose
        signal.signal(signal.SIGINT, _interrupt)
    sys.excepthook = _print_exception
    try:
        from alchemy.cli import main as command

        return command()
    except KeyboardInterrupt:
        return 128 + signal.SIGINT


def _interrupt(number: int, frame: FrameType | None) -> None:
    """As Python does it, but at once while something is imported: libraries swallow it there, or fail in other words.

    A run, which has more to leave than a module half read, hears the signal by itself.
    """
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            os._exit(128 + number)
        frame = frame.f_back
    raise KeyboardInterrupt


def _print_exception(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """As Python does it, without the secrets of a config."""
    import traceback

    from alchemy.config.secrets import hide

    sys.stderr.write(hide("".join(traceback.format_exception(kind, error, trace))))


# guarded: spawned workers import the main module again
if __name__ == "__main__":
    sys.exit(main())
