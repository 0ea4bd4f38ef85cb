"""Where log messages go, whichever library they come from."""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loguru import logger
from rich.console import Console
from rich.text import Text

from alchemy.config.secrets import hide
from alchemy.errors import AlchemyError
from alchemy.files import open_to_append, reopen

if TYPE_CHECKING:
    from loguru import Message, Record

DATE_FORMAT = "YYYY-MM-DD HH:mm:ss.SSS"
FILE_FORMAT = "{time:DATE} | {level: <8} | {name}:{line} | {message}"
Level = Literal["TRACE", "DEBUG", "INFO", "SUCCESS", "WARNING", "ERROR", "CRITICAL"]
CONSOLE_FORMAT = "{time:HH:mm:ss} {level: <7} {message}"
LONGEST_WAIT = 2**20  # bytes of a log kept for a retry
STYLES = {"WARNING": "yellow", "ERROR": "bold red", "CRITICAL": "bold red", "DEBUG": "dim"}


@contextlib.contextmanager
def console_log(console: Console, level: str, format: str = CONSOLE_FORMAT) -> Iterator[None]:
    """Log messages on the console, in place of loguru's own sink, until the block ends."""

    def write(message: Message) -> None:
        # Text, not markup: a message may hold "[/x]"
        style = STYLES.get(message.record["level"].name, "")
        console.print(Text(hide(message).rstrip("\n"), style=style), soft_wrap=True)

    had_default = _remove(_default[0])  # sinks that a project has added stay
    sink = logger.add(
        write, level=level, format=_formatter(format, DATE_FORMAT, brief=True), catch=True, diagnose=False
    )
    try:
        yield
    finally:
        _remove(sink)
        if had_default:
            _default[0] = logger.add(sys.stderr)


@contextlib.contextmanager
def plain_console(console: Console) -> Iterator[None]:
    """What a run without BasicSetup has: our console in place of loguru's own, which shows the values of variables."""
    # loguru tells only by removing it whether its own sink is still there
    if not _remove(_default[0]):
        yield  # the program has a log of its own
        return
    _default[0] = logger.add(sys.stderr)
    with console_log(console, "INFO"):
        yield


class LogFile:
    """A log file that never raises. Lines that cannot be written are kept and retried with the next one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self._using = open_to_append(path), threading.Lock()
        self._waiting, self._dropped, self._error = b"", 0, ""

    def write(self, message: str) -> None:
        line = hide(message).encode("utf-8", "backslashreplace")
        with self._using:
            if len(self._waiting) < LONGEST_WAIT:
                self._waiting += line
            else:
                self._dropped += line.count(b"\n")
            self._write()

    def _write(self) -> None:
        try:
            while self._waiting:
                self._waiting = self._waiting[os.write(self._file, self._waiting) :]
        except OSError as error:
            if not self._error:  # not logged: a sink must not call the logger
                sys.stderr.write(f"{self.path} cannot be written, the run continues without it: {error}\n")
            self._error = str(error)

    def reopen(self) -> None:
        """Recreates the file with its content if it was deleted."""
        with self._using:
            self._file = reopen(self._file, self.path)

    def close(self) -> None:
        with self._using:
            self._write()
            with contextlib.suppress(OSError):  # network disks may report a failed write only here
                os.close(self._file)
        lost = self._dropped + self._waiting.count(b"\n")
        if lost:
            logger.warning("{} lines of {} could not be written: {}", lost, self.path, self._error)


@contextlib.contextmanager
def file_log(path: Path, level: str, format: str = FILE_FORMAT, date_format: str = DATE_FORMAT) -> Iterator[LogFile]:
    """Log messages, with full tracebacks, in a file until the block ends; a full disk never stops the run."""
    formatter = _formatter(format, date_format, brief=False)
    # opened here: loguru would take braces in the path for a pattern
    with contextlib.closing(LogFile(path)) as file:
        sink = logger.add(file.write, level=level, format=formatter, catch=True, diagnose=False, backtrace=True)
        try:
            yield file
        finally:
            _remove(sink)


@contextlib.contextmanager
def stdlib_logging(level: str) -> Iterator[None]:
    """Messages of the standard `logging` and Python's warnings go the way of all others until the block ends."""
    root = logging.getLogger()
    if any(isinstance(handler, _Intercept) for handler in root.handlers):
        yield  # a run inside a run
        return
    handler, before = _Intercept(), root.level
    root.addHandler(handler)
    root.setLevel(min(before, logging.getLevelName(level)) if before else logging.getLevelName(level))
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        root.removeHandler(handler)
        root.setLevel(before)


class _Intercept(logging.Handler):
    """Hands records of the standard library to loguru, under the name and line of their caller."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level: str | int = logger.level(record.levelname).name
        except ValueError:
            level = record.levelno

        def caller(row: Record) -> None:
            row["name"], row["line"], row["function"] = record.name, record.lineno, record.funcName

        logger.patch(caller).opt(exception=record.exc_info).log(level, "{}", record.getMessage())


def _formatter(format: str, date_format: str, *, brief: bool) -> Callable[[Record], str]:
    """A formatter; `brief` leaves out tracebacks of an AlchemyError, and of what is logged with `brief` set."""
    template = format.replace("{time:DATE}", f"{{time:{date_format}}}")

    def formatter(record: Record) -> str:
        error = record["exception"]
        if error is None or (brief and (record["extra"].get("brief") or isinstance(error.value, AlchemyError))):
            return template + "\n"
        return template + "\n{exception}\n"

    return formatter


# the number of loguru's own sink, which writes to stderr as long as no run has a console
_default = [0]


def _remove(sink: int) -> bool:
    """Removes a sink; False when somebody else has removed it."""
    try:
        logger.remove(sink)
    except ValueError:
        return False
    return True
