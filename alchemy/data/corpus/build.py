"""Builds corpora: several processes encode the pieces of files, one joins what they wrote."""

from __future__ import annotations

import contextlib
import functools
import glob
import os
import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from alchemy.data.corpus.crew import Crew
from alchemy.data.corpus.encoder import Encoder, Learner, Part, lengths_of
from alchemy.data.corpus.layout import IDS, MANIFEST, OFFSETS, Manifest, beside, read_manifest, smallest
from alchemy.data.corpus.sources import Piece, source_of
from alchemy.data.files import expand
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.files import hash_file, locked, sync_folder
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
            value = getattr(self, name)
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
        learnt = {name: getattr(self, name) for name in ("tokenizer", "lower", "min_frequency", "size", "multiple")}
        alike = [other for other in self.sides if self.group(other) == self.group(side)]
        return options | learnt | {"with": [other for other in alike if other != side]}


def build(
    recipe: Recipe, *, workers: int = 1, force: bool = False, tell: Callable[[Part], None] = lambda part: None
) -> dict[str, Manifest]:
    """Builds the corpora of a recipe, each with its tokenizer beside it; no name is there before its files are whole.

    The bytes do not depend on the number of workers. `tell` is called after each piece. Corpora that are there and were
    made of the same files in the same way are left as they are.
    """
    files = {side: _files(paths) for side, paths in recipe.sides.items()}
    try:
        recipe.out.parent.mkdir(parents=True, exist_ok=True)
        with locked(recipe.out.with_name(f".{recipe.out.name}.lock")) as free:
            if not free:
                hint = "wait for it, or build under another name"
                raise AlchemyError(f"another process is building {recipe.out}", hint=hint)
            with _workshop(recipe.out) as folder:
                known = {} if force else _up_to_date(recipe, files)
                return known or _built(recipe, files, folder, workers, tell)
    except OSError as error:
        hint = "nothing was left behind; is there room, and may you write there?"
        raise AlchemyError(f"{recipe.out} cannot be built: {error}", hint=hint) from error


def _files(paths: Sequence[str | Path]) -> list[Path]:
    files = expand(list(paths))
    for path in files:
        if not path.is_file() and str(path) != os.devnull:  # it is read twice: once for its hash
            raise AlchemyError(f"{str(path)!r} is no file that can be read again", hint="write it to a file first")
    return files


def _up_to_date(recipe: Recipe, files: Mapping[str, list[Path]]) -> dict[str, Manifest]:
    """The corpora that are there already; none when a single one of them would come out otherwise."""
    found = {}
    for side, paths in files.items():
        if not beside(recipe.name(side), MANIFEST).exists():
            return {}
        with contextlib.suppress(AlchemyError):  # damaged, or of another version: it is built again
            found[side] = read_manifest(recipe.name(side))
        if side not in found or found[side].options != recipe.options(side):
            return {}
        if [source["sha256"] for source in found[side].sources] != [hash_file(path) for path in paths]:
            return {}
    return found


@contextlib.contextmanager
def _workshop(out: Path) -> Iterator[Path]:
    """A folder for what is unfinished. Those of builds that were killed are cleared away first.

    Each has a name of its own: a process that has outlived its build must not write into the next.
    """
    prefix = f".{out.name}.building-"
    for leftover in out.parent.glob(f"{glob.escape(prefix)}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _built(
    recipe: Recipe, files: Mapping[str, list[Path]], folder: Path, workers: int, tell: Callable[[Part], None]
) -> dict[str, Manifest]:
    tokenizers = _known(recipe, files)
    make = functools.partial(Encoder, folder, tokenizers or _learners(recipe), eos=recipe.eos, field=recipe.field)
    with Crew(workers, make) as crew:
        hashes = _Hashes(files)  # its thread begins after the processes: a fork keeps no thread
        parts: dict[int, Part] = {}
        for number, part in crew.work("encode", _pieces(recipe, files)):
            parts[number] = part
            tell(part)
        ordered = [parts[number] for number in sorted(parts)]
        _check_aligned(files, ordered)
        if not tokenizers:
            tokenizers = _vocabularies(recipe, crew.each("learnt"))
            crew.each("settle", [tokenizers] * workers)
    manifests = {}
    for side in files:
        own = [part for part in ordered if part.side == side]
        manifests[side] = _joined(recipe, side, files[side], own, tokenizers[side], folder, hashes.wait())
    for side in files:  # from here on there is no old corpus under the name
        beside(recipe.name(side), MANIFEST).unlink(missing_ok=True)
    for side, manifest in manifests.items():
        _put_in_place(recipe, side, manifest, tokenizers[side], folder)
    return manifests


def _pieces(recipe: Recipe, files: Mapping[str, list[Path]]) -> Iterator[tuple[str, int, Piece]]:
    for side, paths in files.items():
        for number, path in enumerate(paths):
            for piece in source_of(path, recipe.field).cut(path):
                yield side, number, piece


# -- tokenizers


def _learners(recipe: Recipe) -> dict[str, Learner]:
    groups = {recipe.group(side): Learner(str(recipe.tokenizer), recipe.lower) for side in recipe.sides}
    return {side: groups[recipe.group(side)] for side in recipe.sides}


def _known(recipe: Recipe, files: Mapping[str, list[Path]]) -> dict[str, Any]:
    """The tokenizers that are there before anything is encoded; none for those that encoding itself teaches."""
    if isinstance(recipe.tokenizer, Mapping):
        return {side: load_tokenizer(recipe.tokenizer[side]) for side in recipe.sides}
    if recipe.tokenizer != "bpe":
        return {}
    from alchemy.text import BPE

    trained: dict[str, Any] = {}
    for side in files:
        group = recipe.group(side)
        if group not in trained:
            alike = [other for other in files if recipe.group(other) == group]
            lines = (line for other in alike for line in _all_lines(recipe, files[other]))
            trained[group] = BPE.train(
                lines,
                size=recipe.size or BPE_SIZE,
                min_frequency=recipe.min_frequency,
                lower=recipe.lower,
                multiple=recipe.multiple,
            )
    return {side: trained[recipe.group(side)] for side in files}


def _all_lines(recipe: Recipe, paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        source = source_of(path, recipe.field)
        for piece in source.cut(path):
            yield from source.read(piece)


def _vocabularies(recipe: Recipe, learnt: Sequence[Mapping[str, Counter[str]]]) -> dict[str, Any]:
    """One tokenizer for each group of sides, of what all processes have counted."""
    from alchemy.text import Characters, Words

    kind: Any = Words if recipe.tokenizer == "words" else Characters
    made: dict[str, Any] = {}
    for side in recipe.sides:
        group = recipe.group(side)
        if group not in made:
            counts: Counter[str] = Counter()
            for process in learnt:
                counts.update(process[side])  # sides of a group share what they have learnt
            made[group] = kind.from_counts(
                counts,
                min_frequency=recipe.min_frequency,
                size=recipe.size,
                multiple=recipe.multiple,
                lower=recipe.lower,
            )
    return {side: made[recipe.group(side)] for side in recipe.sides}


# -- joining


def _check_aligned(files: Mapping[str, list[Path]], parts: Sequence[Part]) -> None:
    """Sides must have as many sentences, or none of them belongs to its neighbour."""
    counts = dict.fromkeys(files, 0)
    for part in parts:
        counts[part.side] += part.sentences
    empty = [side for side, count in counts.items() if not count]
    if empty:
        names = ", ".join(map(str, files[empty[0]]))
        raise AlchemyError(f"there is no sentence in {names}", hint="is the file empty, or the wrong one?")
    fewest, most = min(counts, key=counts.__getitem__), max(counts, key=counts.__getitem__)
    if counts[fewest] != counts[most]:
        raise AlchemyError(
            f"{fewest} has {counts[fewest]:,} lines and {most} {counts[most]:,}: "
            f"line {counts[fewest] + 1:,} of {most} has no partner",
            hint="the files of parallel text must have the same number of lines",
        )


def _joined(
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
    kind = smallest(tokenizer.size)
    with _synced(folder / f"{side}{IDS}") as ids, _synced(folder / f"{side}{OFFSETS}") as offsets:
        np.zeros(1, np.uint64).tofile(offsets)
        for part in parts:
            lengths, found = lengths_of(part.path) + recipe.eos, np.fromfile(part.path.with_suffix(".ids"), kind)
            found.tofile(ids)
            (lengths.cumsum() + total).astype(np.uint64).tofile(offsets)
            total += len(found)
            longest = max(longest, int(lengths.max(initial=0)))
            unknown += int((found == tokenizer.unk).sum()) if tokenizer.unk is not None else 0
            for suffix in (".ids", ".len"):
                part.path.with_suffix(suffix).unlink()
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
        tokenizer={"digest": tokenizer.digest, "folder": f"{recipe.name(side).name}.tokenizer"},
        sources=_sources(files, parts, hashes),
        options=recipe.options(side),
    )


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


def _put_in_place(recipe: Recipe, side: str, manifest: Manifest, tokenizer: Any, folder: Path) -> None:
    name = recipe.name(side)
    tokenizer.save(name.with_name(manifest.tokenizer["folder"]))
    for suffix in (IDS, OFFSETS):
        (folder / f"{side}{suffix}").replace(beside(name, suffix))
    sync_folder(name.parent)
    manifest.write(beside(name, MANIFEST))


class _Hashes:
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
