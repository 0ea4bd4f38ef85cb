"""The files and options a corpus is built from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.text.base import load_tokenizer

KINDS = ("words", "characters", "bpe")
BPE_SIZE = 8000  # default number of symbols


@dataclass(frozen=True)
class Recipe:
    """The files and options a corpus is built from.

    `sides` maps each language to its files; a single corpus is `{"": files}`. `tokenizer` is the kind to train on the
    files (words, characters or bpe), or the folder of an existing tokenizer for each side.
    """

    out: Path
    sides: Mapping[str, Sequence[str | Path]]
    tokenizer: str | Mapping[str, str | Path] = "words"
    joined: bool = False  # one vocabulary for all sides
    lower: bool = False
    min_frequency: int = 1
    size: int | None = None
    multiple: int = 1
    eos: bool = True
    field: str = "text"

    def __post_init__(self) -> None:
        if isinstance(self.tokenizer, str) and self.tokenizer not in KINDS:
            hint = did_you_mean(self.tokenizer, KINDS) or f"choose {', '.join(KINDS)}, or the folder of a tokenizer"
            raise AlchemyError(f"unknown tokenizer {self.tokenizer!r}", hint=hint)
        for name in ("min_frequency", "multiple", "size"):
            value = vars(self)[name]
            if value is not None and value < 1:
                raise AlchemyError(f"{name} must be at least 1, got {value}")
        if not self.sides:
            raise AlchemyError("no files to build a corpus from", hint="pass at least one file")
        if not self.out.name or self.out.name == "..":
            raise AlchemyError(f"{str(self.out)!r} is not a valid corpus name", hint="use a name such as corpus/train")

    def name(self, side: str) -> Path:
        """Return the path of a side's corpus, such as `train.en`."""
        return self.out.with_name(f"{self.out.name}.{side}") if side else self.out

    def group(self, side: str) -> str:
        """Return the group of a side; sides in the same group share a vocabulary."""
        return "" if self.joined else side

    def options(self, side: str) -> dict[str, Any]:
        """Return the options that determine the ids of a side; an existing tokenizer is identified by its digest."""
        options: dict[str, Any] = {"eos": self.eos, "field": self.field}
        if isinstance(self.tokenizer, Mapping):
            return options | {"tokenizer": load_tokenizer(self.tokenizer[side]).digest}
        trained = {name: vars(self)[name] for name in ("tokenizer", "lower", "min_frequency", "size", "multiple")}
        same_group = [other for other in self.sides if self.group(other) == self.group(side)]
        return options | trained | {"with": [other for other in same_group if other != side]}
