"""The contract of a format: a trained model as files of another program, which must say what the model says."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import ClassVar, Generic, NamedTuple, TypeVar

from torch import nn

from alchemy.errors import AlchemyError
from alchemy.export import EXPORTERS
from alchemy.registry import resolve

Sample = TypeVar("Sample")  # what an export is checked on
Watch = Callable[[Sequence[Sequence[Sample]]], Iterable[Sequence[Sample]]]  # sees the blocks of a check go by


class Agreement(NamedTuple):
    """Of how many sentences both write the same text, another with the same score, or leave it to the model's search.

    Of those that are left only the score is compared. BLEU is there where int8 was compared by it.
    """

    lines: int
    same: int
    ties: int = 0
    left: int = 0
    bleu: float | None = None
    own_bleu: float | None = None

    def __str__(self) -> str:
        parts = [f"the same text for {self.same} of {self.lines} sentences"]
        parts += [f"another with the same score for {self.ties}"] * bool(self.ties)
        parts += [f"{self.left} left to the model's own search"] * bool(self.left)
        if self.bleu is not None:
            parts.append(f"BLEU {self.bleu:.2f}, the model's {self.own_bleu:.2f}")
        return ", ".join(parts)


class Exporter(ABC, Generic[Sample]):
    """A format, for one task and the network that it has trained; EXPORTERS names those that there are.

    The constructor raises an AlchemyError where the format cannot hold them, or its program is not installed.
    `alchemy.export.export_folder.export` calls the rest: `write`, then `check` of what was written.
    """

    name: ClassVar[str]  # of `--format`, of the folder in a record, and of the version in the manifest
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
        """A hash of all that decides an export: where it differs, an export is made again."""

    @abstractmethod
    def samples(self, lines: str = "", references: str = "") -> list[Sample]:
        """What an export is checked on: the first lines of files, or without them what the dev split begins with."""

    @abstractmethod
    def write(self, folder: Path) -> None:
        """Writes the export into an empty folder."""

    @abstractmethod
    def check(self, folder: Path, samples: Sequence[Sample], watch: Watch[Sample]) -> Agreement:
        """Loads what was written, and compares what it says with what the model says; AlchemyError if they differ."""


def exporter_of(name: str) -> type[Exporter[object]]:
    """The class of a format.

    >>> exporter_of("ctranslate2").precisions
    ('float32', 'int8')
    """
    if name not in EXPORTERS:
        raise AlchemyError(f"there is no format {name!r}", hint=f"one of {', '.join(EXPORTERS)}")
    found: type[Exporter[object]] = resolve(EXPORTERS[name])
    return found
