"""File layout of a corpus: `NAME.bin` (ids), `NAME.idx` (offsets) and `NAME.json` (manifest, written last)."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any, Literal

import numpy as np

from alchemy.annotations import find_mismatches
from alchemy.errors import AlchemyError
from alchemy.files import hash_text, write_json

FORMAT = 1
IDS, OFFSETS, MANIFEST, TOKENIZER = ".bin", ".idx", ".json", ".tokenizer"
REBUILD = "the file was truncated or modified; build the corpus again"
DTYPES = (np.uint8, np.uint16, np.uint32)


@dataclasses.dataclass(frozen=True)
class Manifest:
    """The contents of a corpus, and the files and options it was built from."""

    sentences: int
    tokens: int
    dtype: Literal["uint8", "uint16", "uint32"]
    longest: int
    unknown: int  # number of tokens that are not in the vocabulary
    vocabulary: int  # size of the vocabulary; all ids are smaller
    pad: int | None
    bos: int | None
    eos: int | None
    unk: int | None
    tokenizer: dict[str, str]  # its digest and its folder, next to the corpus; empty if another program wrote the ids
    sources: list[dict[str, Any]]  # path, bytes, sha256, lines
    options: dict[str, Any]
    files: dict[str, str] = dataclasses.field(
        default_factory=dict
    )  # the sha256 of .bin and .idx; empty for old corpora
    format: int = FORMAT

    @property
    def digest(self) -> str:
        """A hash of everything that determines the ids, independent of where the files are."""
        sources = [source["sha256"] for source in self.sources]
        return hash_text(json.dumps([self.tokens, self.sentences, self.tokenizer.get("digest"), sources, self.options]))

    def write(self, path: Path) -> None:
        write_json(path, dataclasses.asdict(self))


def corpus_path(name: str | Path, suffix: str) -> Path:
    """Return the path of a corpus file; names may contain dots, as in `train.en`."""
    return Path(f"{name}{suffix}")


def smallest_dtype(size: int) -> np.dtype[Any]:
    """Return the smallest dtype that can hold the ids of a vocabulary.

    >>> [smallest_dtype(size).name for size in (256, 257, 65537)]
    ['uint8', 'uint16', 'uint32']
    """
    return np.dtype(next(kind for kind in DTYPES if size - 1 <= np.iinfo(kind).max))


def read_manifest(name: str | Path) -> Manifest:
    """Read the manifest of a corpus and check the sizes of its files."""
    path = corpus_path(name, MANIFEST)
    try:
        fields = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        text = f"corpus {str(name)!r} not found: {path} is missing"
        raise AlchemyError(text, hint=_suggest_corpus(Path(name))) from None
    except (OSError, ValueError) as error:
        raise AlchemyError(f"cannot read {path}: {error}", hint="build the corpus again") from error
    if not isinstance(fields, dict) or fields.get("format") != FORMAT:
        found = fields.get("format") if isinstance(fields, dict) else None
        raise AlchemyError(f"{path} has the format {found!r}, expected {FORMAT}", hint="build the corpus again")
    try:
        manifest = Manifest(**fields)
    except TypeError as error:
        raise AlchemyError(f"{path} is not a corpus manifest: {error}", hint="build the corpus again") from None
    for key, value in fields.items():
        for text, _ in find_mismatches(key, value, Manifest.__annotations__[key]):
            raise AlchemyError(f"{path} is not a corpus manifest: {text}", hint="build the corpus again")
    tables = [("sources", source, {"path", "sha256", "lines"}) for source in manifest.sources]
    tables += [("tokenizer", manifest.tokenizer, {"digest", "folder"})] if manifest.tokenizer else []
    for key, table, names in tables:
        if not table.keys() >= names:
            text = f"{path} is not a corpus manifest: {key} must contain {', '.join(sorted(names))}"
            raise AlchemyError(text, hint="build the corpus again")
    _check_sizes(name, manifest)
    return manifest


def _check_sizes(name: str | Path, manifest: Manifest) -> None:
    wanted = {
        IDS: manifest.tokens * np.dtype(manifest.dtype).itemsize,
        OFFSETS: (manifest.sentences + 1) * np.dtype(np.uint64).itemsize,
    }
    for suffix, size in wanted.items():
        path = corpus_path(name, suffix)
        found = path.stat().st_size if path.is_file() else None
        if found != size:
            what = "is missing" if found is None else f"has {found:,} bytes, expected {size:,}"
            raise AlchemyError(f"{path} {what}", hint=REBUILD)
    with open(corpus_path(name, OFFSETS), "rb") as file:
        file.seek(-8, os.SEEK_END)
        last = int.from_bytes(file.read(8), "little")
    if last != manifest.tokens:
        raise AlchemyError(
            f"{corpus_path(name, OFFSETS)} ends with {last:,}, expected {manifest.tokens:,}", hint=REBUILD
        )


def _suggest_corpus(name: Path) -> str:
    existing = sorted(path.name.removesuffix(MANIFEST) for path in name.parent.glob(f"*{MANIFEST}"))
    return f"available: {', '.join(existing[:8])}" if existing else "build one with `alchemy data build`"


def map_file(path: Path, dtype: np.dtype[Any] | str, count: int) -> np.ndarray:
    """Memory-map the first `count` numbers of a file."""
    if not count:  # an empty file cannot be mapped
        return np.empty(0, dtype)
    # return a plain array, because slicing an np.memmap is three times slower
    return np.asarray(np.memmap(path, dtype=dtype, mode="r", shape=(count,)))
