"""Capture log messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from loguru import logger


@contextmanager
def warned(level: str = "WARNING") -> Iterator[list[str]]:
    """Collect the messages at `level` or above, one line each."""
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line).strip()), level=level, format="{message}")
    try:
        yield lines
    finally:
        logger.remove(sink)
