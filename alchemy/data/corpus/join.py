"""The end of a build: parts become one file, and files a corpus under its name."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from alchemy.data.corpus.encoder import Part, file_of, lengths_of
from alchemy.data.corpus.layout import IDS, MANIFEST, OFFSETS, TOKENIZER, Manifest, beside, smallest
from alchemy.data.corpus.recipe import Recipe
from alchemy.errors import AlchemyError
from alchemy.files import hash_file, sync_folder


def joined(
    recipe: Recipe,
    side: str,
    files: Sequence[Path],
    parts: Sequence[Part],
    tokenizer: Any,
    folder: Path,
    hashes: Mapping[Path, str],
) -> Manifest:
    """The parts of a side as one file of ids and one of offsets, still in the workshop."""
    total = longest = unknown = 0
    sums = {IDS: hashlib.sha256(), OFFSETS: hashlib.sha256()}
    kind = smallest(tokenizer.size)
    with _synced(folder / f"{side}{IDS}") as ids, _synced(folder / f"{side}{OFFSETS}") as offsets:
        _write(np.zeros(1, np.uint64), offsets, sums[OFFSETS])
        for part in parts:
            lengths = lengths_of(folder, part.number) + recipe.eos
            found = np.fromfile(file_of(folder, part.number, ".ids"), kind)
            _write(found, ids, sums[IDS])
            _write((lengths.cumsum() + total).astype(np.uint64), offsets, sums[OFFSETS])
            total += len(found)
            longest = max(longest, int(lengths.max(initial=0)))
            unknown += int((found == tokenizer.unk).sum()) if tokenizer.unk is not None else 0
            for suffix in (".ids", ".len"):
                file_of(folder, part.number, suffix).unlink()
    return Manifest(
        sentences=sum(part.sentences for part in parts),
        tokens=total,
        dtype=kind.name,
        longest=longest,
        unknown=unknown,
        vocabulary=tokenizer.size,
        pad=tokenizer.pad,
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        unk=tokenizer.unk,
        tokenizer={"digest": tokenizer.digest, "folder": f"{recipe.name(side).name}{TOKENIZER}"},
        sources=_sources(files, parts, hashes),
        options=recipe.options(side),
        files={ending: digest.hexdigest() for ending, digest in sums.items()},
    )


def _write(numbers: np.ndarray, file: Any, digest: Any) -> None:
    numbers.tofile(file)
    digest.update(numbers.data)


def _sources(files: Sequence[Path], parts: Sequence[Part], hashes: Mapping[Path, str]) -> list[dict[str, Any]]:
    lines = Counter(dict.fromkeys(range(len(files)), 0))
    for part in parts:
        lines[part.source] += part.sentences
    return [
        {"path": str(path), "bytes": path.stat().st_size, "sha256": hashes[path], "lines": lines[number]}
        for number, path in enumerate(files)
    ]


@contextlib.contextmanager
def _synced(path: Path) -> Iterator[Any]:
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def put_in_place(recipe: Recipe, side: str, manifest: Manifest, tokenizer: Any, folder: Path) -> None:
    name = recipe.name(side)
    tokenizer.save(name.with_name(manifest.tokenizer["folder"]))
    for suffix in (IDS, OFFSETS):
        (folder / f"{side}{suffix}").replace(beside(name, suffix))
    sync_folder(name.parent)
    manifest.write(beside(name, MANIFEST))


class Hashes:
    """The hashes of all files, computed beside the encoding."""

    def __init__(self, files: Mapping[str, Sequence[Path]]) -> None:
        self._found: dict[Path, str] = {}
        self._error: OSError | None = None
        self._paths = list(dict.fromkeys(path for paths in files.values() for path in paths))
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            for path in self._paths:
                self._found[path] = hash_file(path)
        except OSError as error:
            self._error = error

    def wait(self) -> dict[Path, str]:
        self._thread.join()
        if self._error is not None:
            raise AlchemyError(f"a source cannot be read: {self._error}") from self._error
        return self._found
