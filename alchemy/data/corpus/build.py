"""Build corpora: several processes encode pieces of the files, one process joins the results."""

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

from alchemy.data.corpus.encoder import EncodedPart, Symbols, Task, encode_piece, finalize_part, run_parallel
from alchemy.data.corpus.layout import (
    IDS,
    MANIFEST,
    OFFSETS,
    TOKENIZER,
    Manifest,
    corpus_path,
    read_manifest,
    smallest_dtype,
)
from alchemy.data.corpus.merge_parts import join_parts, publish
from alchemy.data.corpus.recipe import BPE_SIZE, Recipe
from alchemy.data.corpus.text_sources import get_reader
from alchemy.data.files import expand
from alchemy.errors import AlchemyError
from alchemy.files import hash_file, lock_file
from alchemy.text.base import Tokenizer, check_replaceable, load_tokenizer


def build(
    recipe: Recipe, *, workers: int = 1, force: bool = False, on_part: Callable[[EncodedPart], None] = lambda part: None
) -> dict[str, Manifest]:
    """Build the corpora of a recipe, each with its tokenizer; a corpus appears under its name only when it is complete.

    The result does not depend on the number of workers. `on_part` is called after each piece. Existing corpora that
    were built from the same files with the same options are kept, unless `force` is set.
    """
    files = {side: _find_files(paths) for side, paths in recipe.sides.items()}
    try:
        recipe.out.parent.mkdir(parents=True, exist_ok=True)
        _check_output(recipe, files)
        with _lock(recipe), _temporary_folder(recipe.out) as folder:
            existing = {} if force else _find_up_to_date(recipe, files)
            return existing or _build(recipe, files, folder, workers, on_part)
    except OSError as error:
        hint = "no files were left behind; check the free disk space and your write permission"
        raise AlchemyError(f"cannot build {recipe.out}: {error}", hint=hint) from error


def _find_files(paths: Sequence[str | Path]) -> list[Path]:
    files = expand(list(paths))
    for path in files:
        if not path.is_file() and str(path) != os.devnull:  # the file is read twice, once to hash it
            raise AlchemyError(f"{str(path)!r} is not a regular file", hint="save the data to a file first")
    return files


def _check_output(recipe: Recipe, files: Mapping[str, list[Path]]) -> None:
    """Raise if the build would replace a source file, or a file that does not belong to a corpus."""
    sources = {path.resolve() for paths in files.values() for path in paths}
    for side in files:
        name = recipe.name(side)
        check_replaceable(name.with_name(f"{name.name}{TOKENIZER}").resolve())
        for suffix in (IDS, OFFSETS, MANIFEST):
            path = corpus_path(name, suffix)
            if path.resolve() in sources:
                raise AlchemyError(f"{path} is a source file that the corpus would replace", hint="choose another name")
            if path.exists() and not (_is_manifest(corpus_path(name, MANIFEST)) or _lock_of(name).exists()):
                text = f"{path} already exists and does not belong to a corpus"
                raise AlchemyError(text, hint="choose another name, or remove it")


def _is_manifest(path: Path) -> bool:
    with contextlib.suppress(OSError, ValueError):
        fields = json.loads(path.read_bytes())
        return isinstance(fields, dict) and {"format", "sentences", "tokens"} <= fields.keys()
    return False


def _lock_of(name: Path) -> Path:
    """Return the lock file of a corpus. It is never removed, because it also marks the files of an incomplete build."""
    return name.with_name(f".{name.name}.lock")


@contextlib.contextmanager
def _lock(recipe: Recipe) -> Iterator[None]:
    """Prevent other processes from building corpora with the same names."""
    with contextlib.ExitStack() as stack:
        for name in sorted({recipe.out, *map(recipe.name, recipe.sides)}):
            if not stack.enter_context(lock_file(_lock_of(name))):
                hint = "wait for it to finish, or choose another name"
                raise AlchemyError(f"another process is building {name}", hint=hint)
        yield


def _find_up_to_date(recipe: Recipe, files: Mapping[str, list[Path]]) -> dict[str, Manifest]:
    """Return the existing corpora, or an empty dict if any of them is missing or outdated."""
    found = {}
    for side, paths in files.items():
        if not corpus_path(recipe.name(side), MANIFEST).exists():
            return {}
        name = recipe.name(side)
        try:
            manifest = found[side] = read_manifest(name)
            tokenizer = load_tokenizer(name.with_name(manifest.tokenizer["folder"]))
        except AlchemyError:  # damaged or from another version: rebuild
            return {}
        if manifest.options != recipe.options(side) or tokenizer.digest != manifest.tokenizer["digest"]:
            return {}
        if [source["sha256"] for source in found[side].sources] != [hash_file(path) for path in paths]:
            return {}
    return found


@contextlib.contextmanager
def _temporary_folder(out: Path) -> Iterator[Path]:
    """Create a folder for unfinished files, after removing the folders of killed builds.

    Each build has its own folder, so a leftover process from an earlier build cannot write to this one.
    """
    prefix = f".{out.name}.building-"
    for leftover in out.parent.glob(f"{glob.escape(prefix)}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    folder = Path(tempfile.mkdtemp(prefix=prefix, dir=out.parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _build(
    recipe: Recipe, files: Mapping[str, list[Path]], folder: Path, workers: int, on_part: Callable[[EncodedPart], None]
) -> dict[str, Manifest]:
    tokenizers, before = _prepare_tokenizers(recipe, files), _stat_files(files)
    learned = {side: Symbols() for side in map(recipe.group, files)}  # one per group of sides that share a vocabulary
    parts: list[EncodedPart] = []
    encode = functools.partial(encode_piece, recipe, folder, tokenizers)
    for part, symbols in run_parallel(encode, _iter_tasks(recipe, files), workers):
        if symbols is not None:
            learned[recipe.group(part.side)].learn(symbols).tofile(part.path(folder, ".sym"))
        parts.append(part)
        on_part(part)
    parts.sort()
    _check_aligned(files, parts)
    if not tokenizers:
        tokenizers, tables = _build_vocabularies(recipe, learned)
        for _ in run_parallel(functools.partial(finalize_part, recipe, folder, tokenizers, tables), parts, workers):
            pass
    manifests = {}
    for side in files:
        own = [part for part in parts if part.side == side]
        manifests[side] = join_parts(recipe, side, files[side], own, tokenizers[side], folder)
    _check_unchanged(before, _stat_files(files))
    for side in files:  # from here on, the old corpus is no longer valid
        corpus_path(recipe.name(side), MANIFEST).unlink(missing_ok=True)
    for side, manifest in manifests.items():
        publish(recipe, side, manifest, tokenizers[side], folder)
    return manifests


def _stat_files(files: Mapping[str, list[Path]]) -> dict[Path, tuple[int, ...]]:
    stats = {path: path.stat() for paths in files.values() for path in paths}
    return {path: (stat.st_size, stat.st_ino, stat.st_mtime_ns, stat.st_ctime_ns) for path, stat in stats.items()}


def _check_unchanged(before: Mapping[Path, tuple[int, ...]], after: Mapping[Path, tuple[int, ...]]) -> None:
    """Raise if a file changed while it was being read, because its pieces and its hash would not match."""
    changed = [str(path) for path in before if before[path] != after[path]]
    if changed:
        raise AlchemyError(
            f"{changed[0]} changed while it was being read", hint="build again when the file is complete"
        )


def _iter_tasks(recipe: Recipe, files: Mapping[str, list[Path]]) -> Iterator[Task]:
    numbers = itertools.count()
    for side, paths in files.items():
        for source, path in enumerate(paths):
            for piece in get_reader(path, recipe.field, strict=len(files) > 1).cut(path):
                yield Task(next(numbers), side, source, piece)


# -- tokenizers


def _prepare_tokenizers(recipe: Recipe, files: Mapping[str, list[Path]]) -> dict[str, Tokenizer]:
    """Load or train the tokenizers; return an empty dict if their vocabularies are built during encoding."""
    if isinstance(recipe.tokenizer, Mapping):
        loaded = {side: load_tokenizer(recipe.tokenizer[side]) for side in recipe.sides}
        for side, tokenizer in loaded.items():
            if recipe.eos and tokenizer.eos is None:
                hint = "build with --no-eos"
                raise AlchemyError(f"{recipe.tokenizer[side]} has no end-of-sentence token", hint=hint)
        return loaded
    if recipe.tokenizer != "bpe":
        return {}
    from alchemy.text import BPE

    trained: dict[str, Tokenizer] = {}
    for side in files:
        group = recipe.group(side)
        if group not in trained:
            sides = [other for other in files if recipe.group(other) == group]
            lines = (line for other in sides for line in _read_lines(recipe, files[other]))
            trained[group] = BPE.train(
                lines,
                size=recipe.size or BPE_SIZE,
                min_frequency=recipe.min_frequency,
                lower=recipe.lower,
                multiple=recipe.multiple,
            )
    return {side: trained[recipe.group(side)] for side in files}


def _read_lines(recipe: Recipe, paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        source = get_reader(path, recipe.field)
        for piece in source.cut(path):
            yield from source.read(piece)


def _build_vocabularies(
    recipe: Recipe, learned: Mapping[str, Symbols]
) -> tuple[dict[str, Tokenizer], dict[str, np.ndarray]]:
    """Return the tokenizer of each side, and the id of each counted symbol."""
    from alchemy.text import Characters, Words

    made: dict[str, Tokenizer] = {}
    tables: dict[str, np.ndarray] = {}
    for group, symbols in learned.items():
        tokenizer = (Words if recipe.tokenizer == "words" else Characters).from_counts(
            dict(zip(symbols.numbers, symbols.counts.tolist(), strict=True)),
            min_frequency=recipe.min_frequency,
            size=recipe.size,
            multiple=recipe.multiple,
            lower=recipe.lower,
        )
        ids = map(tokenizer.vocab.ids.__getitem__, symbols.numbers)
        made[group], tables[group] = tokenizer, np.fromiter(ids, smallest_dtype(tokenizer.size), len(symbols.numbers))
    groups = {side: recipe.group(side) for side in recipe.sides}
    return {side: made[group] for side, group in groups.items()}, {side: tables[g] for side, g in groups.items()}


def _check_aligned(files: Mapping[str, list[Path]], parts: Sequence[EncodedPart]) -> None:
    """Raise if the sides have different numbers of sentences.

    If they have the same number of files, each pair of files is compared, so differences cannot cancel out.
    """
    counts: Counter[tuple[str, int | None]] = Counter()
    for part in parts:
        counts[part.side, part.source] += part.sentences
        counts[part.side, None] += part.sentences
    names: dict[tuple[str, int | None], object] = {(side, None): side for side in files}
    for side, paths in files.items():
        if not counts[side, None]:
            text = f"no sentences in {', '.join(map(str, paths))}"
            raise AlchemyError(text, hint="check that the file is not empty and is the right one")
        names |= {(side, number): path for number, path in enumerate(paths)}
    same = len({len(paths) for paths in files.values()}) == 1
    first, *others = files
    for side, number in itertools.product(others, [*(range(len(files[first])) if same else ()), None]):
        pair = sorted([(first, number), (side, number)], key=counts.__getitem__)
        (fewer, low), (more, high) = [(names[key], counts[key]) for key in pair]
        if low != high:
            raise AlchemyError(
                f"{fewer} has {low:,} lines, but {more} has {high:,}: line {low + 1:,} of {more} has no counterpart",
                hint="files of parallel text must have the same number of lines",
            )
