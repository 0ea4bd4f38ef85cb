"""Finish a build: join the parts and move the files to their final names."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np

from alchemy.data.corpus.encoder import EncodedPart
from alchemy.data.corpus.layout import IDS, MANIFEST, OFFSETS, TOKENIZER, Manifest, corpus_path, smallest_dtype
from alchemy.data.corpus.recipe import Recipe
from alchemy.files import hash_file, sync_folder
from alchemy.text.base import Tokenizer


def join_parts(
    recipe: Recipe, side: str, files: Sequence[Path], parts: Sequence[EncodedPart], tokenizer: Tokenizer, folder: Path
) -> Manifest:
    """Join the parts of a side into one file of ids and one file of offsets, both in the temporary folder."""
    total = longest = unknown = 0
    sums = {IDS: hashlib.sha256(), OFFSETS: hashlib.sha256()}
    lines = Counter(dict.fromkeys(range(len(files)), 0))
    kind = smallest_dtype(tokenizer.size)
    with _open_synced(folder / f"{side}{IDS}") as ids, _open_synced(folder / f"{side}{OFFSETS}") as offsets:
        _write(np.zeros(1, np.uint64), offsets, sums[OFFSETS])
        for part in parts:
            lengths = part.lengths(folder) + recipe.eos
            found = np.fromfile(part.path(folder, ".ids"), kind)
            _write(found, ids, sums[IDS])
            _write((lengths.cumsum() + total).astype(np.uint64), offsets, sums[OFFSETS])
            total += len(found)
            longest = max(longest, int(lengths.max(initial=0)))
            unknown += int((found == tokenizer.unk).sum()) if tokenizer.unk is not None else 0
            lines[part.source] += part.sentences
            for suffix in (".ids", ".len"):
                part.path(folder, suffix).unlink()
    return Manifest(
        sentences=lines.total(),
        tokens=total,
        dtype=kind.name,  # type: ignore[arg-type]
        longest=longest,
        unknown=unknown,
        vocabulary=tokenizer.size,
        pad=tokenizer.pad,
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        unk=tokenizer.unk,
        tokenizer={"digest": tokenizer.digest, "folder": f"{recipe.name(side).name}{TOKENIZER}"},
        sources=[
            {"path": str(path), "bytes": path.stat().st_size, "sha256": hash_file(path), "lines": lines[number]}
            for number, path in enumerate(files)
        ],
        options=recipe.options(side),
        files={ending: digest.hexdigest() for ending, digest in sums.items()},
    )


def _write(numbers: np.ndarray, file: IO[bytes], digest: Any) -> None:
    numbers.tofile(file)
    digest.update(numbers.data)


@contextlib.contextmanager
def _open_synced(path: Path) -> Iterator[IO[bytes]]:
    with open(path, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def publish(recipe: Recipe, side: str, manifest: Manifest, tokenizer: Tokenizer, folder: Path) -> None:
    """Move the files of a side to their final names, the manifest last."""
    name = recipe.name(side)
    manifest.write(folder / f"{side}{MANIFEST}")
    tokenizer.save(name.with_name(manifest.tokenizer["folder"]))
    for suffix in (IDS, OFFSETS):
        (folder / f"{side}{suffix}").replace(corpus_path(name, suffix))
    sync_folder(name.parent)
    (folder / f"{side}{MANIFEST}").replace(corpus_path(name, MANIFEST))  # makes the corpus valid
    sync_folder(name.parent)
