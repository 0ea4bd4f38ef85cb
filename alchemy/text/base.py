"""Tokenizer interface: encode, decode, save and load."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from alchemy.errors import AlchemyError
from alchemy.files import hash_text, open_to_read, read_table, replace_folder, write_atomic, write_json
from alchemy.registry import Registrable, add_location, build, construct, is_known

MANIFEST = "alchemy.json"
FORMAT = 1
ROLES = ("pad", "bos", "eos", "unk")
Located = tuple[list[int], list[tuple[int, int]]]  # ids and their character ranges [start, end)
Encoded = tuple[np.ndarray, np.ndarray]  # the concatenated ids of all lines, and the number of ids per line


class Tokenizer(Registrable):
    """Base class for tokenizers. Text is never parsed as a special token; callers add special tokens to the ids.

    A saved tokenizer is rebuilt from the keywords in `options()` and the files in `contents()`. `FILES` maps each
    constructor keyword that accepts a path to the name of the saved file.
    """

    FILES: ClassVar[Mapping[str, str]] = {}

    size: int  # ids are 0 .. size - 1
    pad: int | None = None  # None if there is no such token
    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    hidden: frozenset[int] = frozenset()  # ids that decode removes: special tokens except `unk`, and fillers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size} ids)"

    def encode(self, text: str) -> list[int]:
        """Return the ids of a string, without special tokens."""
        raise NotImplementedError

    def join(self, ids: list[int]) -> str:
        """Return the text of `ids`, which must not contain hidden ids."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """Return the constructor keywords that are not files, as JSON values."""
        raise NotImplementedError

    def contents(self) -> dict[str, bytes]:
        """Return the contents of the files to save, by file name."""
        raise NotImplementedError

    def id_of(self, symbol: str) -> int | None:
        """Return the id of the token spelled `symbol`, which may be a special token; None if there is no such token."""
        return None

    def template(self, pair: bool = False) -> str:
        """Return the template that adds special tokens to one text or a pair; by default, it adds none."""
        return "$A $B:1" if pair else "$A"

    def offsets(self, text: str) -> Located:
        """Return the ids of a text, and the character range `[start, end)` of each id."""
        raise AlchemyError(
            f"{type(self).__name__} does not support character offsets",
            hint="use Words, Characters, BPE, or Folder without a sentencepiece model",
        )

    def encode_lines(self, lines: Sequence[str]) -> Encoded:
        """Return the ids of all lines in one array, and the number of ids per line."""
        return flatten([self.encode(line) for line in lines])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of a list, array or tensor of ids. Special tokens are removed, except `unk`."""
        rows: list[int] = ids.tolist() if hasattr(ids, "tolist") else list(ids)
        wrong = next((row for row in rows if not 0 <= row < self.size), None)
        if wrong is not None:
            raise AlchemyError(
                f"{type(self).__name__} has no id {wrong}; valid ids are 0 to {self.size - 1}",
                hint="remove values that are not tokens, such as -100 for ignored labels",
            )
        return self.join([row for row in rows if row not in self.hidden])

    def spell(self, ids: Iterable[int]) -> list[str]:
        """Return a readable text for each id; special tokens are shown by their roles, such as `<eos>`."""
        roles = {self.pad: "<pad>", self.bos: "<bos>", self.eos: "<eos>", self.unk: "<unk>"}
        return [roles.get(row) or self.decode([row]) or f"<{row}>" for row in ids]

    @cached_property
    def digest(self) -> str:
        """A hash of everything that determines the ids; it is the same on every machine."""
        return hash_text(json.dumps([_import_path(type(self)), self.options(), _hash_contents(self.contents())]))

    def save(self, folder: str | Path) -> None:
        """Save to a folder for `load_tokenizer`. An existing tokenizer in the folder is replaced atomically."""
        target = Path(folder).resolve()
        check_replaceable(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(target, self._write)

    def _write(self, folder: Path) -> None:
        contents = self.contents()
        manifest = {
            "format": FORMAT,
            "type": _import_path(type(self)),
            "options": self.options(),
            "files": _hash_contents(contents),
        }
        folder.mkdir()
        for name, content in contents.items():
            write_atomic(folder / name, content)
        write_json(folder / MANIFEST, manifest)


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """Load a tokenizer from a folder. A folder that alchemy did not write is read by `Folder`."""
    folder = Path(folder)
    if not folder.is_dir():
        raise AlchemyError(f"there is no folder {str(folder)!r}", hint="tokenizer.save(folder) creates it")
    if not (folder / MANIFEST).is_file():
        return build(Tokenizer, {"type": "alchemy.text.Folder", "path": str(folder)})
    manifest = _read_manifest(folder)
    _check_hashes(folder, manifest["files"])
    if not is_known(str(manifest["type"])):
        text = f"{manifest['type']} is not a tokenizer from alchemy or this project"
        hint = "import its module first, if you trust the source of the folder"
        raise AlchemyError(text, where=str(folder / MANIFEST), hint=hint)
    try:
        cls: Any = Tokenizer.resolve_registered_module(manifest["type"])
        files = {key: folder / name for key, name in cls.FILES.items()}
        return construct(cls, {**manifest["options"], **files})
    except AlchemyError as error:
        raise add_location(error, str(folder / MANIFEST), "") from error


def flatten(rows: Sequence[Sequence[int]]) -> Encoded:
    """Concatenate lists of ids into one array, and return it with their lengths.

    >>> flatten([[5, 6], [], [7]])
    (array([5, 6, 7], dtype=int32), array([2, 0, 1]))
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths


def _import_path(cls: type) -> str:
    """Return the import path of a class, through its package if the package re-exports it, since modules may move."""
    package = cls.__module__.rpartition(".")[0]
    short = bool(package) and getattr(importlib.import_module(package), cls.__name__, None) is cls
    return f"{package if short else cls.__module__}.{cls.__qualname__}"


def read_content(file: str | Path | bytes) -> bytes:
    """Return the bytes of a file; bytes are returned unchanged."""
    if isinstance(file, bytes):
        return file
    try:
        with open_to_read(file) as opened:
            return opened.read()
    except OSError as error:
        raise AlchemyError(f"cannot read {str(file)!r}: {error.strerror or error}") from error


def _hash_contents(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = read_table(path)
        format, _ = manifest["format"], manifest["type"]
        manifest |= {key: dict(manifest[key]) for key in ("options", "files")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AlchemyError(
            f"not a tokenizer manifest: {error!r}", where=str(path), hint="save the tokenizer again"
        ) from error
    if format != FORMAT:
        hint = "load it with the version of alchemy that wrote it"
        raise AlchemyError(f"unknown format {format!r}, expected {FORMAT}", where=str(path), hint=hint)
    return manifest


def _check_hashes(folder: Path, hashes: Mapping[str, str]) -> None:
    for name, digest in hashes.items():
        if hashlib.sha256(read_content(folder / name)).hexdigest() != digest:
            hint = "save the tokenizer again, or create a new one from the file"
            raise AlchemyError(f"{name} was changed after it was saved", where=str(folder), hint=hint)


def check_replaceable(target: Path) -> None:
    """Raise an error if a folder contains anything but a tokenizer, since saving replaces the whole folder."""
    if not target.exists():
        return
    known = {MANIFEST, *_read_manifest(target)["files"]} if (target / MANIFEST).is_file() else set()
    others = sorted(path.name for path in target.iterdir() if path.name not in known) if target.is_dir() else ["a file"]
    if others:
        raise AlchemyError(
            f"refusing to replace {str(target)!r} with a tokenizer: it contains {', '.join(others[:3])}",
            hint="save the tokenizer to a separate folder",
        )
