"""Interface for export formats."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

from torch import nn

from alchemy.errors import AlchemyError
from alchemy.export import EXPORTERS
from alchemy.registry import resolve

Sample = TypeVar("Sample")  # input for the check of an export
Watch = Callable[[Sequence[Sequence[Sample]]], Iterable[Sequence[Sample]]]  # wraps the blocks of a check


class Agreement(NamedTuple):
    """How well an export matches the model, as sentence counts.

    `same` counts identical outputs, `ties` outputs with equal scores, and `left` outputs that the model's own search
    generates, so only their scores were compared. `bleu` is set for int8.
    """

    lines: int
    same: int
    ties: int = 0
    left: int = 0
    bleu: float | None = None
    own_bleu: float | None = None

    def __str__(self) -> str:
        parts = [f"the same text for {self.same} of {self.lines} sentences"]
        parts += [f"a different text with the same score for {self.ties}"] * bool(self.ties)
        parts += [f"{self.left} handled by the model's own search"] * bool(self.left)
        if self.bleu is not None:
            parts.append(f"BLEU {self.bleu:.2f}, the model's {self.own_bleu:.2f}")
        return ", ".join(parts)


class Exporter(ABC, Generic[Sample]):
    """Base class for export formats; exports one task and its trained network. EXPORTERS lists the formats.

    The constructor raises an AlchemyError if the format does not support the network or its package is not installed.
    `alchemy.export.export_folder.export` calls `write`, then `check`.
    """

    name: ClassVar[str]  # used in `--format`, the folder in a record, and the manifest
    precisions: ClassVar[tuple[str, ...]]  # the first is the default

    @abstractmethod
    def __init__(self, task: object, network: nn.Module, precision: str) -> None:
        self.precision = precision

    @property
    @abstractmethod
    def version(self) -> str:
        """The version of the program that reads the format."""

    @abstractmethod
    def digest(self) -> str:
        """Return a hash of everything that determines an export; if it differs, the model is exported again."""

    @abstractmethod
    def samples(self, lines: str = "", references: str = "") -> list[Sample]:
        """Return samples for the check: the first lines of the given files, or the first samples of the dev split."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Write the export to an empty folder."""

    @abstractmethod
    def check(self, folder: Path, samples: Sequence[Sample], watch: Watch[Sample]) -> Agreement:
        """Load the export and compare its output with the model's output; raise an AlchemyError if they differ."""


def find_exporter(name: str) -> type[Exporter[object]]:
    """Return the exporter class of a format.

    >>> find_exporter("ctranslate2").precisions
    ('float32', 'int8')
    """
    if name not in EXPORTERS:
        raise AlchemyError(f"unknown format {name!r}", hint=f"available: {', '.join(EXPORTERS)}")
    exporter: type[Exporter[object]] = resolve(EXPORTERS[name])
    return exporter
