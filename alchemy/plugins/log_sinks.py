"""Log sinks: console, file, and the bridge from standard `logging`."""

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
MAX_WAITING = 2**20  # bytes kept for a retry
STYLES = {"WARNING": "yellow", "ERROR": "bold red", "CRITICAL": "bold red", "DEBUG": "dim"}


@contextlib.contextmanager
def console_log(console: Console, level: str, format: str = CONSOLE_FORMAT) -> Iterator[None]:
    """Log to the console instead of loguru's default sink, until the block ends."""

    def write(message: Message) -> None:
        # Text, not markup: a message may contain "[/x]"
        style = STYLES.get(message.record["level"].name, "")
        console.print(Text(hide(message).rstrip("\n"), style=style), soft_wrap=True)

    had_default = _remove(_default[0])  # sinks added by a project are kept
    sink = logger.add(
        write, level=level, format=_make_formatter(format, DATE_FORMAT, brief=True), catch=True, diagnose=False
    )
    try:
        yield
    finally:
        _remove(sink)
        if had_default:
            _default[0] = logger.add(sys.stderr)


@contextlib.contextmanager
def plain_console(console: Console) -> Iterator[None]:
    """Log to the console without BasicSetup; replaces loguru's default sink, which prints the values of variables."""
    # removing the default sink is the only way to find out whether it exists
    if not _remove(_default[0]):
        yield  # the program has configured its own logging
        return
    _default[0] = logger.add(sys.stderr)
    with console_log(console, "INFO"):
        yield


class LogFile:
    """A log file that never raises an error. Lines that could not be written are retried with the next line."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file, self._using = open_to_append(path), threading.Lock()
        self._waiting, self._dropped, self._error = b"", 0, ""

    def write(self, message: str) -> None:
        line = hide(message).encode("utf-8", "backslashreplace")
        with self._using:
            if len(self._waiting) < MAX_WAITING:
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
                sys.stderr.write(f"{self.path} cannot be written; the run continues without it: {error}\n")
            self._error = str(error)

    def reopen(self) -> None:
        """Recreate the file and its content if it was deleted."""
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
    """Log to a file, with full tracebacks, until the block ends. A full disk does not stop the run."""
    formatter = _make_formatter(format, date_format, brief=False)
    # opened here, because loguru would treat braces in the path as a pattern
    with contextlib.closing(LogFile(path)) as file:
        sink = logger.add(file.write, level=level, format=formatter, catch=True, diagnose=False, backtrace=True)
        try:
            yield file
        finally:
            _remove(sink)


@contextlib.contextmanager
def stdlib_logging(level: str) -> Iterator[None]:
    """Forward standard `logging` messages and Python warnings to loguru until the block ends."""
    root = logging.getLogger()
    if any(isinstance(handler, _Intercept) for handler in root.handlers):
        yield  # a nested run
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
    """Handler that forwards standard log records to loguru, with the name and line of their caller."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            level: str | int = logger.level(record.levelname).name
        except ValueError:
            level = record.levelno

        def caller(row: Record) -> None:
            row["name"], row["line"], row["function"] = record.name, record.lineno, record.funcName

        logger.patch(caller).opt(exception=record.exc_info).log(level, "{}", record.getMessage())


def _make_formatter(format: str, date_format: str, *, brief: bool) -> Callable[[Record], str]:
    """Return a formatter. `brief` omits tracebacks of an AlchemyError and of messages logged with `brief` set."""
    template = format.replace("{time:DATE}", f"{{time:{date_format}}}")

    def formatter(record: Record) -> str:
        error = record["exception"]
        if error is None or (brief and (record["extra"].get("brief") or isinstance(error.value, AlchemyError))):
            return template + "\n"
        return template + "\n{exception}\n"

    return formatter


# the id of loguru's default sink, which writes to stderr while no run has a console
_default = [0]


def _remove(sink: int) -> bool:
    """Remove a sink; return False if it was already removed."""
    try:
        logger.remove(sink)
    except ValueError:
        return False
    return True
