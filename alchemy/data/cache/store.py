"""Samples in a folder: each field in files of its own, written one after the other, mapped when they are read."""

from __future__ import annotations

import contextlib
import os
from array import array
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

import numpy as np

from alchemy.data.cache.values import ABSENT, Decoder, Kind, Unkept, decoder, encode, kinds_of
from alchemy.data.corpus.layout import mapped

MOST_FIELDS = 64  # samples with more, and those that are no dicts, are kept as one value
MOST_SHAPES = 1000
ROWS = "rows.bin"
FLUSH = 8192  # rows that wait in memory
BUFFER = 2**18


class Unwritable(Exception):
    """The disk is full, or may not be written to."""


@contextlib.contextmanager
def writing() -> Iterator[None]:
    """Inside, trouble with the disk is told from trouble with the data."""
    try:
        yield
    except OSError as error:
        raise Unwritable(f"{error.strerror or error}: {error.filename or 'the cache'}") from error


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

    def _opened(self, *paths: Path) -> list[BinaryIO]:
        return [self.files.enter_context(open(path, "wb", buffering=BUFFER)) for path in paths]

    def _flush(self) -> None:
        self.rows.tofile(self.file)
        del self.rows[:]
        for column in self.columns.values():
            column.flush()

    def finish(self) -> dict[str, Any]:
        """Brings everything to the disk; what has to be known to read it again."""
        self._flush()
        for file in (self.file, *(file for column in self.columns.values() for file in column.files)):
            file.flush()
            os.fsync(file.fileno())
        return {
            "samples": self.count,
            "kinds": list(self.kinds),
            "shapes": list(self.shapes),
            "columns": list(self.columns),
            "files": {path.name: path.stat().st_size for path in sorted(self.folder.iterdir())},
        }


class _Column:
    """One field of all samples: bytes, where those of each sample end, and of what kind they are."""

    def __init__(self, files: list[BinaryIO], before: int) -> None:
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
        self.ends.tofile(self.files[1])
        self.codes.tofile(self.files[2])
        del self.ends[:], self.codes[:]


def column_files(folder: Path, number: int) -> list[Path]:
    return [folder / f"{number}.{ending}" for ending in ("bin", "idx", "kind")]


class Stored(Sequence[Any]):
    """Samples that stay on the disk until somebody looks at them. Workers, forked or spawned, map the files themselves.

    `views` gives arrays as read-only views of the file instead of copies.
    """

    def __init__(self, folder: Path, layout: dict[str, Any], *, views: bool = False) -> None:
        self.folder, self.layout, self.views = folder, layout, views
        self._open()

    def __getstate__(self) -> dict[str, Any]:
        return {"folder": self.folder, "layout": self.layout, "views": self.views}  # what is mapped does not travel

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()

    def _open(self) -> None:
        count, columns = self.layout["samples"], self.layout["columns"]
        kinds = kinds_of(self.layout["kinds"])
        self.alignments = [kind.alignment for kind in kinds]
        self.decoders: list[Decoder] = [decoder(kind, views=self.views) for kind in kinds]
        self.shapes: list[list[str] | None] = self.layout["shapes"]
        self.rows = mapped(self.folder / ROWS, "<u2", count)
        self.columns = {name: self._column(number, count) for number, name in enumerate(columns)}

    def _column(self, number: int, count: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        content, index, codes = column_files(self.folder, number)
        size = self.layout["files"][content.name]
        return mapped(content, "|u1", size), mapped(index, "<i8", count + 1), mapped(codes, "<u2", count)

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
