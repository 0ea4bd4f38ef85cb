"""What a corpus is to be built from, and how."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.text.base import load_tokenizer

KINDS = ("words", "characters", "bpe")
BPE_SIZE = 8000  # symbols, where nobody says how many


@dataclass(frozen=True)
class Recipe:
    """What a corpus is built from, and how.

    `sides` names the files of each language, or `{"": files}` of one corpus alone; `tokenizer` is a kind that is learnt
    from them (words, characters, bpe), or for each side the folder of one that is there.
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
            hint = did_you_mean(self.tokenizer, KINDS) or f"it may be {', '.join(KINDS)}, or the folder of one"
            raise AlchemyError(f"there is no tokenizer {self.tokenizer!r}", hint=hint)
        for name in ("min_frequency", "multiple", "size"):
            value = vars(self)[name]
            if value is not None and value < 1:
                raise AlchemyError(f"{name} must be at least 1, not {value}")
        if not self.sides:
            raise AlchemyError("there is nothing to build a corpus from", hint="name at least one file")
        if not self.out.name or self.out.name == "..":
            raise AlchemyError(f"{str(self.out)!r} is no name for a corpus", hint="give one, as corpus/train")

    def name(self, side: str) -> Path:
        """The name of a side's corpus: `train.en`."""
        return self.out.with_name(f"{self.out.name}.{side}") if side else self.out

    def group(self, side: str) -> str:
        """Sides of the same group share a vocabulary."""
        return "" if self.joined else side

    def options(self, side: str) -> dict[str, Any]:
        """What decides the ids of a side beside its files; a tokenizer that was there is known by its digest."""
        options: dict[str, Any] = {"eos": self.eos, "field": self.field}
        if isinstance(self.tokenizer, Mapping):
            return options | {"tokenizer": load_tokenizer(self.tokenizer[side]).digest}
        learnt = {name: vars(self)[name] for name in ("tokenizer", "lower", "min_frequency", "size", "multiple")}
        alike = [other for other in self.sides if self.group(other) == self.group(side)]
        return options | learnt | {"with": [other for other in alike if other != side]}
