"""Send a signal to the own process when it passes a place for the n-th time."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

seen: Counter[str] = Counter()  # number of passes by place
_bombs: dict[tuple[str, int], int] = {}


def plant(bombs: list[list[Any]]) -> None:
    """Set `[place, n, signal]`: send the signal at the n-th pass of a place, counted from 1."""
    _bombs.update({(place, count): number for place, count, number in bombs})


def passing(place: str) -> None:
    seen[place] += 1
    number = _bombs.get((place, seen[place]))
    if number is not None:
        os.kill(os.getpid(), number)
        time.sleep(0.01)  # a handler runs between two instructions of the main thread
        passing("twice")


def wire() -> None:
    """Make low-level operations places too: each disk operation, link, row, and removal."""
    from alchemy.checkpoint import files, keeper, links
    from alchemy.records.folder import Record
    from alchemy.records.metrics_file import MetricsFile

    for name in ("make_folder", "open", "write", "sync", "rename", "sync_folder"):
        _wrap(files.Disk, name, "disk")
    _wrap(keeper, "link", "link")
    _wrap(links, "link_files", "swap")
    _wrap(keeper, "remove_others", "remove")
    _wrap(MetricsFile, "log", "row")
    _wrap(Record, "finish", "finish")


def wire_files(folder: str) -> None:
    """Make every file that is opened for writing, created, renamed or linked below a folder a place, `file`."""

    def hear(event: str, args: tuple[Any, ...]) -> None:
        writes = event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        changes = writes or event in ("os.mkdir", "os.rename", "os.link", "os.remove")
        if changes and isinstance(args[0], str | os.PathLike) and str(args[0]).startswith(folder):
            passing("file")

    sys.addaudithook(hear)


def _wrap(owner: Any, name: str, place: str) -> None:
    inner: Callable[..., Any] = getattr(owner, name)

    @functools.wraps(inner)
    def outer(*args: Any, **kwargs: Any) -> Any:
        passing(place)
        return inner(*args, **kwargs)

    setattr(owner, name, outer)
