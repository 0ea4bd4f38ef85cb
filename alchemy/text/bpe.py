"""Byte-pair encoding of any text without loss, trained and applied by the package tokenizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from alchemy.constraints import PositiveInt
from alchemy.errors import AlchemyError
from alchemy.optional_packages import import_package
from alchemy.text.backend import Backed, Rust, no_utf8
from alchemy.text.base import Tokenizer, content_of
from alchemy.text.vocab import SPECIALS


@Tokenizer.register()
class BPE(Backed):
    """Pairs of bytes, merged: every text has ids and comes back as it was, or in lower case if it was trained so.

    `file` is what `train` has made.
    """

    packages = ("tokenizers",)
    FILES: ClassVar[Mapping[str, str]] = {"file": "tokenizer.json"}

    def __init__(
        self, *, file: str | Path | bytes, specials: Mapping[str, str] | None = None, multiple: PositiveInt = 1
    ) -> None:
        self.content, self.specials = content_of(file), dict(SPECIALS if specials is None else specials)
        inner = read_inner(self.content, type(self).__name__)
        super().__init__(Rust(inner), _places(inner, self.specials), multiple)

    def options(self) -> dict[str, Any]:
        return {"specials": self.specials, "multiple": self.multiple}

    def contents(self) -> dict[str, bytes]:
        return {"tokenizer.json": self.content}

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        size: int = 8000,
        min_frequency: int = 2,
        lower: bool = False,
        specials: Mapping[str, str] | None = None,
        multiple: int = 1,
    ) -> Self:
        """Learns at most `size` symbols: the special ones, the 256 bytes, and merges of them."""
        inner = _learner(lower)
        spelt = list(dict.fromkeys((SPECIALS if specials is None else specials).values()))
        if size < 256 + len(spelt):
            raise AlchemyError(f"size = {size} leaves no room for 256 bytes and {len(spelt)} special symbols")
        tokenizers = import_package("tokenizers", cls.__name__)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=min_frequency,
            special_tokens=spelt,
            initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        try:
            inner.train_from_iterator(lines, trainer)
        except UnicodeEncodeError as error:
            raise no_utf8(cls.__name__, error.object) from error
        return cls(file=inner.to_str(pretty=True).encode(), specials=specials, multiple=multiple)


def read_inner(content: bytes, needed_by: str) -> Any:
    """What a tokenizer.json describes."""
    tokenizers = import_package("tokenizers", needed_by)
    try:
        return tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # the package raises bare ones
        raise AlchemyError(f"{needed_by} cannot read its tokenizer.json: {error}") from error


def _learner(lower: bool) -> Any:
    tokenizers = import_package("tokenizers", "BPE")
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    if lower:
        inner.normalizer = tokenizers.normalizers.Lowercase()
    return inner


def _places(inner: Any, specials: Mapping[str, str]) -> dict[str, int]:
    places = {role: inner.token_to_id(symbol) for role, symbol in specials.items()}
    missing = [specials[role] for role, place in places.items() if place is None]
    if missing:
        hint = "say in `specials` what they are called; alchemy.text.Folder reads tokenizers of other programs"
        raise AlchemyError(f"BPE finds no special symbol {', '.join(missing)} in its file", hint=hint)
    return places
