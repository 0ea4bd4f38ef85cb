"""Lossless byte-level BPE, trained and applied with the tokenizers package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

from alchemy.constraints import PositiveInt
from alchemy.errors import AlchemyError
from alchemy.optional_packages import import_package
from alchemy.text.backend import BackendTokenizer, Rust, utf8_error
from alchemy.text.base import Tokenizer, read_content
from alchemy.text.vocab import SPECIALS


@Tokenizer.register()
class BPE(BackendTokenizer):
    """Byte-level BPE. Decoding restores any text exactly, or in lower case if it was trained with `lower`.

    `file` is a tokenizer.json created by `train`.
    """

    packages = ("tokenizers",)
    FILES: ClassVar[Mapping[str, str]] = {"file": "tokenizer.json"}

    def __init__(
        self, *, file: str | Path | bytes, specials: Mapping[str, str] | None = None, multiple: PositiveInt = 1
    ) -> None:
        self.content, self.specials = read_content(file), dict(SPECIALS if specials is None else specials)
        inner = parse_tokenizer_json(self.content, type(self).__name__)
        super().__init__(Rust(inner), _special_ids(inner, self.specials), multiple)

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
        """Learn at most `size` symbols: special tokens, the 256 bytes, and merges of them."""
        inner = _new_tokenizer(lower)
        symbols = list(dict.fromkeys((SPECIALS if specials is None else specials).values()))
        if size < 256 + len(symbols):
            raise AlchemyError(f"size = {size} leaves no room for 256 bytes and {len(symbols)} special symbols")
        tokenizers = import_package("tokenizers", cls.__name__)
        trainer = tokenizers.trainers.BpeTrainer(
            vocab_size=size,
            min_frequency=min_frequency,
            special_tokens=symbols,
            initial_alphabet=sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        try:
            inner.train_from_iterator(lines, trainer)
        except UnicodeEncodeError as error:
            raise utf8_error(cls.__name__, error.object) from error
        return cls(file=inner.to_str(pretty=True).encode(), specials=specials, multiple=multiple)


def parse_tokenizer_json(content: bytes, needed_by: str) -> Any:
    """Parse the content of a tokenizer.json."""
    tokenizers = import_package("tokenizers", needed_by)
    try:
        return tokenizers.Tokenizer.from_str(content.decode())
    except Exception as error:  # tokenizers raises plain Exceptions
        raise AlchemyError(f"{needed_by} cannot read its tokenizer.json: {error}") from error


def _new_tokenizer(lower: bool) -> Any:
    tokenizers = import_package("tokenizers", "BPE")
    inner = tokenizers.Tokenizer(tokenizers.models.BPE())
    inner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = tokenizers.decoders.ByteLevel()
    if lower:
        inner.normalizer = tokenizers.normalizers.Lowercase()
    return inner


def _special_ids(inner: Any, specials: Mapping[str, str]) -> dict[str, int]:
    places = {role: inner.token_to_id(symbol) for role, symbol in specials.items()}
    missing = [specials[role] for role, place in places.items() if place is None]
    if missing:
        hint = "set `specials` to their spellings; for tokenizers of other programs, use alchemy.text.Folder"
        raise AlchemyError(f"special symbols missing from the BPE file: {', '.join(missing)}", hint=hint)
    return places
