"""A corpus on the disk: `NAME.bin` (ids), `NAME.idx` (offsets), and `NAME.json`, which is written last."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from alchemy.annotations import find_mismatches
from alchemy.errors import AlchemyError
from alchemy.files import hash_text, write_atomic

FORMAT = 1
IDS, OFFSETS, MANIFEST, TOKENIZER = ".bin", ".idx", ".json", ".tokenizer"
AGAIN = "a copy was cut short, or it was changed: build the corpus again"
DTYPES = (np.uint8, np.uint16, np.uint32)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a corpus is made of, and of what."""

    sentences: int
    tokens: int
    dtype: Literal["uint8", "uint16", "uint32"]
    longest: int
    unknown: int  # tokens that the vocabulary does not have
    vocabulary: int  # ids are below this
    pad: int | None
    bos: int | None
    eos: int | None
    unk: int | None
    tokenizer: dict[str, str]  # digest, and folder beside the corpus; empty: ids of another program
    sources: list[dict[str, Any]]  # path, bytes, sha256, lines
    options: dict[str, Any]
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # the sha256 of .bin and .idx; empty: of old ones
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """A hash of what decides the ids: equal ones are the same corpus, wherever its files lie."""
        sources = [source["sha256"] for source in self.sources]
        return hash_text(json.dumps([self.tokens, self.sentences, self.tokenizer.get("digest"), sources, self.options]))

    def write(self, path: Path) -> None:
        write_atomic(path, json.dumps(dataclasses.asdict(self), ensure_ascii=False, indent=1) + "\n")


def beside(name: str | Path, suffix: str) -> Path:
    """One of the files of a corpus; names may have dots of their own: `train.en`."""
    return Path(f"{name}{suffix}")


def smallest(size: int) -> np.dtype[Any]:
    """The smallest kind of number that holds the ids of a vocabulary.

    >>> [smallest(size).name for size in (256, 257, 65537)]
    ['uint8', 'uint16', 'uint32']
    """
    return np.dtype(next(kind for kind in DTYPES if size - 1 <= np.iinfo(kind).max))


def read_manifest(name: str | Path) -> Manifest:
    """The manifest of a corpus whose files are as long as it says."""
    path = beside(name, MANIFEST)
    try:
        fields = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise AlchemyError(f"there is no corpus {str(name)!r}: {path} is missing", hint=_hint(Path(name))) from None
    except (OSError, ValueError) as error:
        raise AlchemyError(f"{path} cannot be read: {error}", hint="build the corpus again") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        found = fields.get("format") if isinstance(fields, dict) else None
        raise AlchemyError(f"{path} has the format {found!r}, expected {FORMAT}", hint="build the corpus again")
    try:
        manifest = Manifest(**fields)
    except TypeError as error:
        raise AlchemyError(f"{path} is no manifest of a corpus: {error}", hint="build the corpus again") from None
    for key, value in fields.items():
        for text, _ in find_mismatches(key, value, Manifest.__annotations__[key]):
            raise AlchemyError(f"{path} is no manifest of a corpus: {text}", hint="build the corpus again")
    tables = [("sources", source, {"path", "sha256", "lines"}) for source in manifest.sources]
    tables += [("tokenizer", manifest.tokenizer, {"digest", "folder"})] if manifest.tokenizer else []
    for key, table, names in tables:
        if not table.keys() >= names:
            text = f"{path} is no manifest of a corpus: {key} needs {', '.join(sorted(names))}"
            raise AlchemyError(text, hint="build the corpus again")
    _check_sizes(name, manifest)
    return manifest


def _check_sizes(name: str | Path, manifest: Manifest) -> None:
    wanted = {
        IDS: manifest.tokens * np.dtype(manifest.dtype).itemsize,
        OFFSETS: (manifest.sentences + 1) * np.dtype(np.uint64).itemsize,
    }
    for suffix, size in wanted.items():
        path = beside(name, suffix)
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            what = "is missing" if found is None else f"has {found:,} bytes, expected {size:,}"
            raise AlchemyError(f"{path} {what}", hint=AGAIN)
    with open(beside(name, OFFSETS), "rb") as file:
        file.seek(-8, os.SEEK_END)
        last = int.from_bytes(file.read(8), "little")
    if last != manifest.tokens:
        raise AlchemyError(f"{beside(name, OFFSETS)} ends with {last:,}, expected {manifest.tokens:,}", hint=AGAIN)


def _hint(name: Path) -> str:
    there = sorted(path.name.removesuffix(MANIFEST) for path in name.parent.glob(f"*{MANIFEST}"))
    return f"there are {', '.join(there[:8])}" if there else "make one with `alchemy data build`"


def mapped(path: Path, dtype: np.dtype[Any] | str, count: int) -> np.ndarray:
    """So many numbers of a file, read in place."""
    if not count:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    # a plain view: memmap's own class makes every slice of it three times as dear
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(count,)))
