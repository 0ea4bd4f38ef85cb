"""Split text files into pieces that several processes can read in parallel."""

from __future__ import annotations

import codecs
import csv
import functools
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.data.files import COMPRESSED, check_file, ending_of, open_bytes, open_text, readable
from alchemy.errors import AlchemyError
from alchemy.optional_packages import import_package

PIECE_BYTES = 2**20  # large enough to keep the overhead per piece low, small enough to hold many in memory
ROWS = 8192  # rows of a table per piece
BLANK = "empty row: both sides of parallel text must have the same number of rows"


class Piece(NamedTuple):
    """A part of a file: a byte range, or data that has already been read."""

    path: Path
    begin: int = 0  # byte offset in a plain file; otherwise the number of preceding lines or rows
    end: int = 0
    data: bytes | list[str] | None = None  # the content, if the file can only be read sequentially

    @property
    def size(self) -> int:
        """The number of bytes of text, for the progress bar."""
        if self.data is None:
            return self.end - self.begin
        return len(self.data) if isinstance(self.data, bytes) else sum(map(len, self.data))


class _Reader(NamedTuple):
    """A pair of functions that split a file into pieces and read the sentences of a piece."""

    cut: Callable[[Path], Iterator[Piece]]
    read: Callable[[Piece], list[str]]


def get_reader(path: Path, field: str, strict: bool = False) -> _Reader:
    """Return the reader for a file extension: `.jsonl`, `.csv`, `.tsv` and `.parquet` have fields, others have lines.

    Empty rows are skipped. With `strict` they raise an error, because an empty row on one side of parallel text would
    misalign the rows below it.
    """
    match kind := ending_of(path):
        case ".jsonl" | ".ndjson":
            return _Reader(_split_lines, functools.partial(_read_json, field=field, strict=strict))
        case ".csv" | ".tsv":
            return _Reader(functools.partial(_split_rows, field=field, strict=strict, tab=kind == ".tsv"), _get_data)
        case ".parquet":
            return _Reader(functools.partial(_split_parquet, field=field), _get_data)
        case _:
            return _Reader(_split_lines, read_text)


def has_lines(path: Path) -> bool:
    """Return whether each line of a file is a sentence, so that line numbers are sentence numbers."""
    return ending_of(path) not in (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")


def text_bytes(path: Path) -> int | None:
    """Return the size of the text in a file; None if it is unknown before reading."""
    return None if path.suffix.lower() in (*COMPRESSED, ".parquet") else path.stat().st_size


# -- files of lines


def _split_lines(path: Path) -> Iterator[Piece]:
    check_file(path)
    return _split_compressed(path) if path.suffix.lower() in COMPRESSED else _split_plain(path)


def _split_plain(path: Path) -> Iterator[Piece]:
    """Yield byte ranges that begin and end at line boundaries, without reading their content."""
    with open(path, "rb") as file:
        end, size = 0, os.fstat(file.fileno()).st_size
        while end < size:
            begin = end
            file.seek(min(begin + PIECE_BYTES, size) - 1)
            if not file.readline():  # the file has been truncated, which the build reports at the end
                return
            end = file.tell()
            yield Piece(path, begin, end)


def _split_compressed(path: Path) -> Iterator[Piece]:
    line = 0
    with open_bytes(path) as file:
        while True:
            with readable(path, line + 1):
                data = file.read(PIECE_BYTES)
                data += file.readline() if data else b""
            if not data:
                return
            yield Piece(path, line, 0, data)
            line += data.count(b"\n")


def read_text(piece: Piece) -> list[str]:
    """Return the lines of a piece without line endings; only line feeds end a line, not other Unicode line breaks."""
    data = piece.data if isinstance(piece.data, bytes) else _bytes(piece)
    if piece.begin == 0:
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = _first_line(piece) + data.count(b"\n", 0, error.start)
        what = f"{error.reason} (byte 0x{data[error.start]:02x})"
        hint = "convert the file to UTF-8, e.g. with iconv"
        raise AlchemyError(f"is not valid utf-8: {what}", where=f"{piece.path}:{line}", hint=hint) from error
    lines = text.split("\n")
    if piece.begin == 0 and len(lines) == 1 and "\r" in text[:-1]:  # a file without a single line feed
        hint = f"convert them to line feeds: tr '\\r' '\\n' < {piece.path.name} > new-{piece.path.name}"
        raise AlchemyError("the lines end with carriage returns only", where=str(piece.path), hint=hint)
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _bytes(piece: Piece) -> bytes:
    with open(piece.path, "rb") as file:
        file.seek(piece.begin)
        return file.read(piece.end - piece.begin)


def _first_line(piece: Piece) -> int:
    """Return the 1-based number of a piece's first line. Counting lines is slow and only needed for errors."""
    if piece.data is not None:
        return piece.begin + 1
    with open(piece.path, "rb") as file:
        return file.read(piece.begin).count(b"\n") + 1


def _read_json(piece: Piece, field: str, strict: bool) -> list[str]:
    found = []
    for number, line in enumerate(read_text(piece)):
        try:
            if line.strip():
                found.append(_text(json.loads(line), field))
                if "\\u" in line:  # an escaped lone surrogate cannot be encoded
                    found[-1].encode()
            elif strict:
                raise ValueError(BLANK)
        except (ValueError, RecursionError) as error:
            where = f"{piece.path}:{_first_line(piece) + number}"
            raise AlchemyError(str(error), where=where, hint="fix the line") from error
    return found


def _text(row: Any, field: str) -> str:
    """Return a field as one line of text."""
    if not isinstance(row, dict) or field not in row:
        have = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
        raise ValueError(f"no field {field!r}, got {have}")
    if not isinstance(row[field], str):
        raise ValueError(f"{field} must be a string, got {row[field]!r}")
    return " ".join(row[field].splitlines())


# -- tables, which can only be read from the start


def _split_rows(path: Path, field: str, strict: bool, tab: bool) -> Iterator[Piece]:
    csv.field_size_limit(2**31 - 1)  # text may exceed csv's default limit
    quoting: Any = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if tab else {"strict": True}
    with open_text(path, newline="") as file, readable(path, 1, "utf-8"):
        reader = csv.reader(file, **quoting)
        texts: list[str] = []
        names, done, line = None, 0, 1
        while True:
            try:
                cells = next(reader, None)
                if cells and names is None:
                    names = cells
                    _text(dict.fromkeys(names, ""), field)  # raises if the field is missing
                    if names.count(field) > 1:
                        raise ValueError(f"{names.count(field)} columns are named {field!r}")
                elif cells and names is not None:
                    if len(cells) != len(names):
                        raise ValueError(f"expected {len(names)} cells ({', '.join(names)}), got {len(cells)}")
                    texts.append(_text(dict(zip(names, cells)), field))
                elif cells is not None and strict and names is not None:
                    raise ValueError(BLANK)
            except (ValueError, csv.Error) as error:
                raise AlchemyError(str(error), where=f"{path}:{line}", hint="fix the row") from error
            line = reader.line_num + 1
            if len(texts) == ROWS or (cells is None and texts):
                yield Piece(path, done, 0, texts)
                done, texts = done + len(texts), []
            if cells is None:
                return


def _split_parquet(path: Path, field: str) -> Iterator[Piece]:
    pyarrow = import_package("pyarrow", str(path))
    import_package("pyarrow.parquet", str(path))
    check_file(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if field not in file.schema_arrow.names:
                hint = f"available columns: {', '.join(file.schema_arrow.names)}"
                raise AlchemyError(f"{path} has no column {field!r}", hint=hint)
            done = 0
            for batch in file.iter_batches(batch_size=ROWS, columns=[field]):
                rows = batch.column(0).to_pylist()
                for number, row in enumerate(rows):
                    if not isinstance(row, str):
                        raise AlchemyError(f"{path}, row {done + number}: {field} must be a string, got {row!r}")
                yield Piece(path, done, 0, [" ".join(row.splitlines()) for row in rows])
                done += len(rows)
    except (OSError, pyarrow.ArrowException) as error:
        raise AlchemyError(f"{str(path)!r} is not a readable parquet file: {error}") from error


def _get_data(piece: Piece) -> list[str]:
    assert isinstance(piece.data, list)
    return piece.data
