"""Samples in a folder: each field in files of its own, written one after the other, mapped when they are read."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import json
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from alchemy.data.cache.values import ABSENT, Decoder, Kind, Unkept, decoder, encode, kinds_of
from alchemy.data.corpus.layout import mapped
from alchemy.errors import AlchemyError
from alchemy.files import hash_text

MOST_FIELDS = 64  # samples with more, and those that are no dicts, are kept as one value
MOST_SHAPES = 1000
ROWS = "rows.bin"
FLUSH = 8192  # rows that wait in memory
BUFFER = 2**18
LONG = ("list", "array", "tensor")  # flavours of what has a length


class Unwritable(Exception):
    """The disk is full, or may not be written to."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Inside, trouble with the disk is told from trouble with the data."""
    try:
        yield
    except OSError as error:
        raise Unwritable(f"{error.strerror or error}: {error.filename or 'the cache'}") from error


class Gone(Exception):
    """What was kept was removed, or made anew, before it could be opened."""


class _File(contextlib.AbstractContextManager["_File"]):
    """A file that is written from its start to its end, and the hash of what it holds."""

    def __init__(self, path: Path) -> None:
        self.path, self.file = path, open(path, "wb", buffering=BUFFER)  # noqa: SIM115 closed by __exit__
        self.hash = hashlib.blake2b(digest_size=16)

    def __exit__(self, *error: object) -> None:
        self.file.close()

    def write(self, content: bytes) -> None:
        self.hash.update(content)
        self.file.write(content)

    def finish(self) -> list[Any]:
        """On the disk; what it is known by: its hash and its stamp."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return [self.hash.hexdigest(), *stamp(self.path)]


def stamp(path: Path) -> list[int]:
    """What no program can leave as it was when it writes to a file, its size in front."""
    found = path.stat()
    return [found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns]


def is_as_written(path: Path, known: list[Any]) -> bool:
    """Whether a file holds what was written, by its hash."""
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, functools.partial(hashlib.blake2b, digest_size=16))
        return bool(digest.hexdigest() == known[0])


class Writer:
    """Writes samples into a folder; memory does not grow with their number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.kinds: dict[Kind, int] = {ABSENT: 0}
        self.shapes: dict[tuple[str, ...] | None, int] = {None: 0}
        self.columns: dict[str | None, _Column] = {}
        self.rows = array("H")
        self.count = 0
        self.files = contextlib.ExitStack()
        (self.file,) = self._opened(folder / ROWS)

    def __enter__(self) -> Writer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):  # the disk may be full: the first error has told so
            self.files.close()

    def add(self, sample: Any) -> None:
        shape = self._shape(sample)
        values = {None: sample} if shape is None else sample
        for name in values:
            if name not in self.columns:
                self.columns[name] = _Column(self._opened(*column_files(self.folder, len(self.columns))), self.count)
        for name, column in self.columns.items():
            if name in values:
                try:
                    kind, content = encode(values[name])
                except Unkept as error:
                    where = "" if name is None else f", field {name!r}"
                    raise Unkept(f"{error} cannot be written (sample {self.count}{where})") from None
                column.add(self.kinds.setdefault(kind, len(self.kinds)), content, kind.alignment)
            else:
                column.add(0, b"", 1)
        self.rows.append(self.shapes.setdefault(shape, len(self.shapes)))
        self.count += 1
        if len(self.rows) >= FLUSH:
            self._flush()

    def _shape(self, sample: Any) -> tuple[str, ...] | None:
        """The names of a sample's fields; None where it has none, or there are too many to keep apart."""
        if type(sample) is not dict or not all(type(name) is str for name in sample):
            return None
        shape = tuple(sample)
        known = shape in self.shapes
        fields = self.columns.keys() | sample.keys()
        return shape if known or (len(fields) <= MOST_FIELDS and len(self.shapes) < MOST_SHAPES) else None

    def _opened(self, *paths: Path) -> list[_File]:
        return [self.files.enter_context(_File(path)) for path in paths]

    def _flush(self) -> None:
        self.file.write(self.rows.tobytes())
        del self.rows[:]
        for column in self.columns.values():
            column.flush()

    def finish(self) -> dict[str, Any]:
        """Brings everything to the disk; what has to be known to read it again."""
        self._flush()
        files = (self.file, *(file for column in self.columns.values() for file in column.files))
        return {
            "samples": self.count,
            "kinds": list(self.kinds),
            "shapes": list(self.shapes),
            "columns": list(self.columns),
            "files": {file.path.name: file.finish() for file in files},
        }


class _Column:
    """One field of all samples: bytes, where those of each sample end, and of what kind they are."""

    def __init__(self, files: list[_File], before: int) -> None:
        self.files = files
        self.ends, self.codes = array("q", [0]), array("H")
        self.end = 0
        for begin in range(0, before, FLUSH):  # samples that have no such field
            self.ends.extend([0] * min(FLUSH, before - begin))
            self.codes.extend([0] * min(FLUSH, before - begin))
            self.flush()

    def add(self, code: int, content: bytes, alignment: int) -> None:
        filler = -self.end % alignment if content else 0
        self.files[0].write(bytes(filler) + content if filler else content)
        self.end += filler + len(content)
        self.ends.append(self.end)
        self.codes.append(code)

    def flush(self) -> None:
        self.files[1].write(self.ends.tobytes())
        self.files[2].write(self.codes.tobytes())
        del self.ends[:], self.codes[:]


def column_files(folder: Path, number: int) -> list[Path]:
    return [folder / f"{number}.{ending}" for ending in ("bin", "idx", "kind")]


class Stored(Sequence[Any]):
    """Samples that stay on the disk until somebody looks at them. Workers, forked or spawned, map the files themselves.

    `views` gives arrays as read-only views of the file instead of copies. Raises Gone where the files are not there any
    more, or are others, when they are mapped: at once, and in spawned workers when the first sample is asked for.
    """

    def __init__(self, folder: Path, layout: dict[str, Any], *, views: bool = False) -> None:
        self.folder, self.layout, self.views = folder, layout, views
        self.kinds = kinds_of(layout["kinds"])
        self.shapes: list[list[str] | None] = layout["shapes"]
        self.alignments = [kind.alignment for kind in self.kinds]
        _ = self.rows, self.columns

    def __getstate__(self) -> dict[str, Any]:
        mapped = ("rows", "columns", "decoders")  # these do not travel
        return {name: value for name, value in vars(self).items() if name not in mapped}

    @functools.cached_property
    def decoders(self) -> list[Decoder]:
        return [decoder(kind, views=self.views) for kind in self.kinds]

    @functools.cached_property
    def rows(self) -> np.ndarray:
        return self._mapped(self.folder / ROWS, "<u2", len(self))

    @functools.cached_property
    def columns(self) -> dict[str | None, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        return {name: self._column(number) for number, name in enumerate(self.layout["columns"])}

    def _column(self, number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        content, index, codes = column_files(self.folder, number)
        size, count = self.layout["files"][content.name][1], len(self)
        return (
            self._mapped(content, "|u1", size),
            self._mapped(index, "<i8", count + 1),
            self._mapped(codes, "<u2", count),
        )

    def _mapped(self, path: Path, dtype: str, count: int) -> np.ndarray:
        try:
            found = mapped(path, dtype, count)
            if stamp(path)[:3] != self.layout["files"][path.name][1:4]:
                raise Gone(f"{path} is another file now")
        except (OSError, ValueError) as error:
            raise Gone(str(error)) from error
        return found

    @property
    def digest(self) -> str:
        """A hash of the samples: equal ones have the same, whoever has made them, and when."""
        files = {name: row[0] for name, row in self.layout["files"].items()}
        return hash_text(json.dumps([files, *(self.layout[name] for name in ("kinds", "shapes", "columns"))]))

    def lengths(self) -> dict[str, np.ndarray]:
        """The first axis of each field of numbers that every sample has; only those that are kept as JSON are read."""
        found = ((name, self._lengths(name)) for name in self.columns if name is not None)
        return {name: column for name, column in found if column is not None}

    def _lengths(self, name: str) -> np.ndarray | None:
        _, ends, codes = self.columns[name]
        kinds = {code: self.kinds[code] for code in np.unique(codes).tolist()}
        if not all((kind.flavour in LONG and kind.axes) or kind.flavour == "json" for kind in kinds.values()):
            return None
        sizes = np.array([np.dtype(kind.dtype or "u1").itemsize for kind in self.kinds])[codes]
        room = np.diff(ends)
        filler = np.where(room > 0, -ends[:-1] % np.array(self.alignments)[codes], 0)
        found = (room - filler) // sizes
        for row in np.flatnonzero(np.isin(codes, [code for code, kind in kinds.items() if not _is_flat(kind)])):
            length = _first_axis(self._cell(name, int(row)))
            if length is None:  # texts, which nobody pads
                return None
            found[row] = length
        return found

    def __len__(self) -> int:
        count: int = self.layout["samples"]
        return count

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        row = index + len(self) if index < 0 else index
        if not 0 <= row < len(self):
            raise IndexError(f"sample {index} of {len(self)}")
        shape = self.shapes[self.rows[row]]
        return self._cell(None, row) if shape is None else {name: self._cell(name, row) for name in shape}

    def _cell(self, name: str | None, row: int) -> Any:
        content, ends, codes = self.columns[name]
        code = codes[row]
        begin, end = ends[row : row + 2].tolist()
        if begin < end:
            begin += -begin % self.alignments[code]
        return self.decoders[code](content, begin, end)


def _is_flat(kind: Kind) -> bool:
    """Whether the room that a value takes tells how long it is."""
    return kind.flavour != "json" and kind.axes == 1


def _first_axis(value: Any) -> int | None:
    from alchemy.data.rows import as_array

    with contextlib.suppress(AlchemyError):  # whoever pads it says what is wrong with it
        array = as_array(value)
        return len(array) if array is not None and array.ndim else None
    return None
