"""Builds corpora: several processes encode the pieces of files, one joins what they wrote."""

from __future__ import annotations

import contextlib
import functools
import glob
import itertools
import json
import os
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from alchemy.data.corpus.encoder import EncodedPart, Symbols, Task, encode_piece, settle_part, spread
from alchemy.data.corpus.layout import IDS, MANIFEST, OFFSETS, TOKENIZER, Manifest, beside, read_manifest, smallest
from alchemy.data.corpus.merge_parts import join_parts, put_in_place
from alchemy.data.corpus.recipe import BPE_SIZE, Recipe
from alchemy.data.corpus.text_sources import source_of
from alchemy.data.files import expand
from alchemy.errors import AlchemyError
from alchemy.files import hash_file, lock_file
from alchemy.text.base import Tokenizer, check_ours, load_tokenizer


def build(
    recipe: Recipe, *, workers: int = 1, force: bool = False, tell: Callable[[EncodedPart], None] = lambda part: None
) -> dict[str, Manifest]:
    """Builds the corpora of a recipe, each with its tokenizer beside it; no name is there before its files are whole.

    The bytes do not depend on the number of workers. `tell` is called after each piece. Corpora that are there and were
    made of the same files in the same way are left as they are.
    """
    files = {side: _files(paths) for side, paths in recipe.sides.items()}
    try:
        recipe.out.parent.mkdir(parents=True, exist_ok=True)
        _check_free(recipe, files)
        with _reserved(recipe), _workshop(recipe.out) as folder:
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


def _check_free(recipe: Recipe, files: Mapping[str, list[Path]]) -> None:
    """What would be replaced must be a corpus, or the rest of one: neither a source nor a file of somebody else."""
    sources = {path.resolve() for paths in files.values() for path in paths}
    for side in files:
        name = recipe.name(side)
        check_ours(name.with_name(f"{name.name}{TOKENIZER}").resolve())
        for suffix in (IDS, OFFSETS, MANIFEST):
            path = beside(name, suffix)
            if path.resolve() in sources:
                raise AlchemyError(f"{path} would be replaced by the corpus made of it", hint="give another name")
            if path.exists() and not (_is_manifest(beside(name, MANIFEST)) or _lock_of(name).exists()):
                raise AlchemyError(f"{path} is there, and no part of a corpus", hint="give another name, or remove it")


def _is_manifest(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        fields = json.loads(path.read_bytes())
        return isinstance(fields, dict) and {"format", "sentences", "tokens"} <= fields.keys()
    return False


def _lock_of(name: Path) -> Path:
    """Stays behind: it also says that what lies under the name comes from a build."""
    return name.with_name(f".{name.name}.lock")


@contextlib.contextmanager
def _reserved(recipe: Recipe) -> Iterator[None]:
    """Nobody else builds a corpus of these names meanwhile."""
    with contextlib.ExitStack() as stack:
        for name in sorted({recipe.out, *map(recipe.name, recipe.sides)}):
            if not stack.enter_context(lock_file(_lock_of(name))):
                hint = "wait for it, or build under another name"
                raise AlchemyError(f"another process is building {name}", hint=hint)
        yield


def _up_to_date(recipe: Recipe, files: Mapping[str, list[Path]]) -> dict[str, Manifest]:
    """The corpora that are there already; none when a single one of them would come out otherwise."""
    found = {}
    for side, paths in files.items():
        if not beside(recipe.name(side), MANIFEST).exists():
            return {}
        name = recipe.name(side)
        try:
            manifest = found[side] = read_manifest(name)
            tokenizer = load_tokenizer(name.with_name(manifest.tokenizer["folder"]))
        except AlchemyError:  # damaged, or of another version: it is built again
            return {}
        if manifest.options != recipe.options(side) or tokenizer.digest != manifest.tokenizer["digest"]:
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
    recipe: Recipe, files: Mapping[str, list[Path]], folder: Path, workers: int, tell: Callable[[EncodedPart], None]
) -> dict[str, Manifest]:
    tokenizers, before = _known(recipe, files), _stamps(files)
    learnt = {side: Symbols() for side in map(recipe.group, files)}  # by those that share a vocabulary
    parts: list[EncodedPart] = []
    encode = functools.partial(encode_piece, recipe, folder, tokenizers)
    for part, symbols in spread(encode, _tasks(recipe, files), workers):
        if symbols is not None:
            learnt[recipe.group(part.side)].learn(symbols).tofile(part.path(folder, ".sym"))
        parts.append(part)
        tell(part)
    parts.sort()
    _check_aligned(files, parts)
    if not tokenizers:
        tokenizers, tables = _vocabularies(recipe, learnt)
        for _ in spread(functools.partial(settle_part, recipe, folder, tokenizers, tables), parts, workers):
            pass
    manifests = {}
    for side in files:
        own = [part for part in parts if part.side == side]
        manifests[side] = join_parts(recipe, side, files[side], own, tokenizers[side], folder)
    _check_unchanged(before, _stamps(files))
    for side in files:  # from here on there is no old corpus under the name
        beside(recipe.name(side), MANIFEST).unlink(missing_ok=True)
    for side, manifest in manifests.items():
        put_in_place(recipe, side, manifest, tokenizers[side], folder)
    return manifests


def _stamps(files: Mapping[str, list[Path]]) -> dict[Path, tuple[int, ...]]:
    stats = {path: path.stat() for paths in files.values() for path in paths}
    return {path: (stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in stats.items()}


def _check_unchanged(before: Mapping[Path, tuple[int, ...]], after: Mapping[Path, tuple[int, ...]]) -> None:
    """What was read in pieces must be one text, and that of the hash."""
    changed = [str(path) for path in before if before[path] != after[path]]
    if changed:
        raise AlchemyError(f"{changed[0]} has changed while it was read", hint="build again when it is complete")


def _tasks(recipe: Recipe, files: Mapping[str, list[Path]]) -> Iterator[Task]:
    numbers = itertools.count()
    for side, paths in files.items():
        for source, path in enumerate(paths):
            for piece in source_of(path, recipe.field, strict=len(files) > 1).cut(path):
                yield Task(next(numbers), side, source, piece)


# -- tokenizers


def _known(recipe: Recipe, files: Mapping[str, list[Path]]) -> dict[str, Tokenizer]:
    """The tokenizers that are there before anything is encoded; none for those that encoding itself teaches."""
    if isinstance(recipe.tokenizer, Mapping):
        loaded = {side: load_tokenizer(recipe.tokenizer[side]) for side in recipe.sides}
        for side, tokenizer in loaded.items():
            if recipe.eos and tokenizer.eos is None:
                hint = "build without: --no-eos"
                raise AlchemyError(f"{recipe.tokenizer[side]} has no token for the end of a sentence", hint=hint)
        return loaded
    if recipe.tokenizer != "bpe":
        return {}
    from alchemy.text import BPE

    trained: dict[str, Tokenizer] = {}
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


def _vocabularies(recipe: Recipe, learnt: Mapping[str, Symbols]) -> tuple[dict[str, Tokenizer], dict[str, np.ndarray]]:
    """The tokenizer of each side, and the id of each symbol that was counted."""
    from alchemy.text import Characters, Words

    made: dict[str, Tokenizer] = {}
    tables: dict[str, np.ndarray] = {}
    for group, symbols in learnt.items():
        tokenizer = (Words if recipe.tokenizer == "words" else Characters).from_counts(
            dict(zip(symbols.numbers, symbols.counts.tolist(), strict=True)),
            min_frequency=recipe.min_frequency,
            size=recipe.size,
            multiple=recipe.multiple,
            lower=recipe.lower,
        )
        ids = map(tokenizer.vocab.ids.__getitem__, symbols.numbers)
        made[group], tables[group] = tokenizer, np.fromiter(ids, smallest(tokenizer.size), len(symbols.numbers))
    groups = {side: recipe.group(side) for side in recipe.sides}
    return {side: made[group] for side, group in groups.items()}, {side: tables[g] for side, g in groups.items()}


def _check_aligned(files: Mapping[str, list[Path]], parts: Sequence[EncodedPart]) -> None:
    """Sides must have as many sentences, or none of them belongs to its neighbor.

    File by file, where the sides have as many: what is too much in one must not be made up for by the next.
    """
    counts: Counter[tuple[str, int | None]] = Counter()
    for part in parts:
        counts[part.side, part.source] += part.sentences
        counts[part.side, None] += part.sentences
    names: dict[tuple[str, int | None], object] = {(side, None): side for side in files}
    for side, paths in files.items():
        if not counts[side, None]:
            text = f"there is no sentence in {', '.join(map(str, paths))}"
            raise AlchemyError(text, hint="is the file empty, or the wrong one?")
        names |= {(side, number): path for number, path in enumerate(paths)}
    same = len({len(paths) for paths in files.values()}) == 1
    first, *others = files
    for side, number in itertools.product(others, [*(range(len(files[first])) if same else ()), None]):
        pair = sorted([(first, number), (side, number)], key=counts.__getitem__)
        (fewer, low), (more, high) = [(names[key], counts[key]) for key in pair]
        if low != high:
            raise AlchemyError(
                f"{fewer} has {low:,} lines and {more} {high:,}: line {low + 1:,} of {more} has no partner",
                hint="the files of parallel text must have the same number of lines",
            )
