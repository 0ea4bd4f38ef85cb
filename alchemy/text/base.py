"""The contract of tokenizers: text to ids, ids to text, and a folder that holds all that decides them."""

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
from alchemy.files import hash_text, open_to_read, read_table, replace_folder, write_atomic
from alchemy.registry import Registrable, add_location, build, construct, is_known

MANIFEST = "alchemy.json"
FORMAT = 1
ROLES = ("pad", "bos", "eos", "unk")
Located = tuple[list[int], list[tuple[int, int]]]  # ids, and the characters [start, end) that each stands for
Encoded = tuple[np.ndarray, np.ndarray]  # the ids of all lines, one after the other, and how many each line has


class Tokenizer(Registrable):
    """Text to ids and back. No text ever becomes a special token: these are added by whoever wants them.

    A tokenizer is made again from the keywords `options()` and the files `contents()`: `FILES` tells which keyword of
    the constructor takes the path of which file.
    """

    FILES: ClassVar[Mapping[str, str]] = {}

    size: int  # ids are 0 .. size - 1
    pad: int | None = None  # None: it has no such token
    bos: int | None = None
    eos: int | None = None
    unk: int | None = None
    hidden: frozenset[int] = frozenset()  # ids that decode leaves out: special tokens but `unk`, and fillers

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.size} ids)"

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without special tokens."""
        raise NotImplementedError

    def join(self, ids: list[int]) -> str:
        """The text of ids, none of which is hidden."""
        raise NotImplementedError

    def options(self) -> dict[str, Any]:
        """The keywords of the constructor that are no files, as JSON has them."""
        raise NotImplementedError

    def contents(self) -> dict[str, bytes]:
        """What it has read from files, by the names that they get in its folder."""
        raise NotImplementedError

    def id_of(self, symbol: str) -> int | None:
        """The id of a token by how it is spelt, special ones too; None where it has none."""
        return None

    def template(self, pair: bool = False) -> str:
        """Where the model that it was made for wants special tokens around a text, or two; by default nowhere."""
        return "$A $B:1" if pair else "$A"

    def offsets(self, text: str) -> Located:
        """The ids of a text, and for each the characters `[start, end)` of the text that it stands for."""
        raise AlchemyError(
            f"{type(self).__name__} cannot tell which characters of a text its tokens stand for",
            hint="Words, Characters, BPE can, and Folder without a model of sentencepiece",
        )

    def encode_lines(self, lines: Sequence[str]) -> Encoded:
        """The ids of many lines in one array, and the number of ids of each."""
        return flatten([self.encode(line) for line in lines])

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids: a list, an array or a tensor; special tokens are left out, but an unknown word is seen."""
        rows: list[int] = ids.tolist() if hasattr(ids, "tolist") else list(ids)
        wrong = next((row for row in rows if not 0 <= row < self.size), None)
        if wrong is not None:
            raise AlchemyError(
                f"{type(self).__name__} has no id {wrong}; its ids are 0 to {self.size - 1}",
                hint="leave out what is no token, such as the -100 of ignored labels",
            )
        return self.join([row for row in rows if row not in self.hidden])

    @cached_property
    def digest(self) -> str:
        """A hash of all that decides its ids: equal ones give equal ids, on every machine."""
        return hash_text(json.dumps([_dotted(type(self)), self.options(), _hashes(self.contents())]))

    def save(self, folder: str | Path) -> None:
        """Writes a folder that `load_tokenizer` reads; one that is there is replaced at once, never half."""
        target = Path(folder).resolve()
        check_ours(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        replace_folder(target, self._write)

    def _write(self, folder: Path) -> None:
        contents = self.contents()
        manifest = {
            "format": FORMAT,
            "type": _dotted(type(self)),
            "options": self.options(),
            "files": _hashes(contents),
        }
        folder.mkdir()
        for name, content in contents.items():
            write_atomic(folder / name, content)
        write_atomic(folder / MANIFEST, json.dumps(manifest, ensure_ascii=False, indent=1) + "\n")


def load_tokenizer(folder: str | Path) -> Tokenizer:
    """The tokenizer that was saved in a folder; one of another program there is read as `Folder` reads it."""
    folder = Path(folder)
    if not folder.is_dir():
        raise AlchemyError(f"there is no folder {str(folder)!r}", hint="tokenizer.save(folder) writes one")
    if not (folder / MANIFEST).is_file():
        return build(Tokenizer, {"type": "alchemy.text.Folder", "path": str(folder)})
    manifest = _manifest(folder)
    _check_whole(folder, manifest["files"])
    if not is_known(str(manifest["type"])):
        text = f"it is a {manifest['type']}, which is neither a tokenizer of alchemy nor of this project"
        hint = "import its module first, if you trust whoever made the folder"
        raise AlchemyError(text, where=str(folder / MANIFEST), hint=hint)
    try:
        cls: Any = Tokenizer.resolve_registered_module(manifest["type"])
        files = {key: folder / name for key, name in cls.FILES.items()}
        return construct(cls, {**manifest["options"], **files})
    except AlchemyError as error:
        raise add_location(error, str(folder / MANIFEST), "") from error


def flatten(rows: Sequence[Sequence[int]]) -> Encoded:
    """Lists of ids as one array and their lengths.

    >>> flatten([[5, 6], [], [7]])
    (array([5, 6, 7], dtype=int32), array([2, 0, 1]))
    """
    lengths = np.fromiter(map(len, rows), np.int64, len(rows))
    return np.fromiter(chain.from_iterable(rows), np.int32, int(lengths.sum())), lengths


def _dotted(cls: type) -> str:
    """The import path of a class: that of its package where the package hands it on, as it may move inside."""
    package = cls.__module__.rpartition(".")[0]
    short = bool(package) and getattr(importlib.import_module(package), cls.__name__, None) is cls
    return f"{package if short else cls.__module__}.{cls.__qualname__}"


def content_of(file: str | Path | bytes) -> bytes:
    """The bytes of a file; bytes are taken as they are."""
    if isinstance(file, bytes):
        return file
    try:
        with open_to_read(file) as opened:
            return opened.read()
    except OSError as error:
        raise AlchemyError(f"{str(file)!r} cannot be read: {error.strerror or error}") from error


def _hashes(contents: Mapping[str, bytes]) -> dict[str, str]:
    return {name: hashlib.sha256(content).hexdigest() for name, content in sorted(contents.items())}


def _manifest(folder: Path) -> dict[str, Any]:
    path = folder / MANIFEST
    try:
        manifest = read_table(path)
        found, _ = manifest["format"], manifest["type"]
        manifest |= {key: dict(manifest[key]) for key in ("options", "files")}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AlchemyError(
            f"it is no description of a tokenizer: {error!r}", where=str(path), hint="save the tokenizer again"
        ) from error
    if found != FORMAT:
        hint = "read it with the alchemy that wrote it"
        raise AlchemyError(f"format {found!r} is not known, only {FORMAT}", where=str(path), hint=hint)
    return manifest


def _check_whole(folder: Path, hashes: Mapping[str, str]) -> None:
    for name, digest in hashes.items():
        if hashlib.sha256(content_of(folder / name)).hexdigest() != digest:
            hint = "save the tokenizer again, or make one from the file by its type"
            raise AlchemyError(f"{name} is not as it was saved", where=str(folder), hint=hint)


def check_ours(target: Path) -> None:
    """A folder with anything else in it is not replaced: corpora may lie beside a tokenizer."""
    if not target.exists():
        return
    known = {MANIFEST, *_manifest(target)["files"]} if (target / MANIFEST).is_file() else set()
    others = sorted(path.name for path in target.iterdir() if path.name not in known) if target.is_dir() else ["a file"]
    if others:
        raise AlchemyError(
            f"{str(target)!r} is not replaced by a tokenizer: it holds {', '.join(others[:3])}",
            hint="save it to a folder of its own",
        )
