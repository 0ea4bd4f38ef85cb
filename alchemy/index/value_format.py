"""Format numbers, durations, times and counts for people."""

from __future__ import annotations

import datetime
import math
from collections.abc import Sequence

LARGEST = 1e150  # the variance of larger numbers overflows


def to_finite(value: float) -> float | None:
    """Return a number whose mean and variance can be computed; None instead of NaN, infinity and absurd values.

    >>> to_finite(0.5), to_finite(float("nan")), to_finite(-1e300)
    (0.5, None, None)
    """
    return value if abs(value) < LARGEST else None


def format_number(value: float, digits: int = 4) -> str:
    """
    >>> format_number(0.91234567), format_number(3.0), format_number(1e-05), format_number(12345678.0)
    ('0.9123', '3', '1e-05', '12345678')
    """
    if math.isfinite(value) and value == int(value) and abs(value) < 1e15:
        return str(int(value))
    return f"{value:.{digits}g}"


def format_count(number: int, noun: str, several: str = "") -> str:
    """
    >>> format_count(1, "run"), format_count(1200, "run"), format_count(2, "process", "processes")
    ('1 run', '1,200 runs', '2 processes')
    """
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def format_names(names: Sequence[str], most: int) -> str:
    """
    >>> format_names(["a", "b"], 3), format_names(list("abcdef"), 3)
    ('a, b', 'a, b, c and 3 more')
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def format_duration(seconds: float | None) -> str:
    """
    >>> format_duration(42.0), format_duration(3700.0), format_duration(200000.0)
    ('42 s', '1 h 01 min', '2 d 7 h')
    """
    if seconds is None:
        return ""
    whole = int(seconds)
    if whole < 120:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"


def format_time(seconds: float | None) -> str:
    """Format seconds since the epoch for a table, in local time."""
    return "" if seconds is None else datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")


def format_iso(seconds: float) -> str:
    """Format seconds since the epoch for JSON, as an ISO 8601 time with its offset."""
    return datetime.datetime.fromtimestamp(seconds).astimezone().isoformat(timespec="seconds")


def parse_iso(text: object) -> float | None:
    """Return an ISO 8601 time in seconds since the epoch; None if it is not valid.

    >>> parse_iso("1970-01-01T00:01:00+00:00"), parse_iso("yesterday"), parse_iso(None)
    (60.0, None, None)
    """
    try:
        return datetime.datetime.fromisoformat(str(text)).astimezone().timestamp()
    except (ValueError, OverflowError, OSError):
        return None
