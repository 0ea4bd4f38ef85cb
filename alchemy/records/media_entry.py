"""A media entry: what a run logged, encoded for files and viewers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

FORMAT = 1  # of media.jsonl
PICTURES = ("image", "images", "figure")  # kinds whose data is a PNG file
KINDS = (*PICTURES, "histogram", "text", "table", "attention", "confusion", "embedding")


class Encoded(NamedTuple):
    """The content of a file, the suffix of its name, and a short description; a histogram has only the description."""

    data: bytes
    suffix: str
    info: dict[str, Any]


class Moment(NamedTuple):
    """When an entry was logged; `seconds` is the run time.

    `at` is the update of the run if the caller has given the entry another number, such as that of samples.
    """

    update: int
    epoch: int
    seconds: float
    at: int | None = None


class MediaEntry(NamedTuple):
    """An encoded entry, as sinks receive it."""

    kind: str
    name: str
    moment: Moment
    data: bytes
    suffix: str
    info: Mapping[str, Any]


Sink = Callable[[MediaEntry], None]
