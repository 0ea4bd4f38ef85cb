"""Where sentences come from: files cut into pieces that several processes can read at once."""

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

PIECE_BYTES = 2**20  # large enough that handing one over costs little, small enough for many of them in memory
ROWS = 8192  # of a table, in a piece
BLANK = "there is nothing in this row, and the sides of parallel text must have as many"


class Piece(NamedTuple):
    """A part of a file: a range of its bytes, or what had to be read on the way to it."""

    path: Path
    begin: int = 0  # of a plain file in bytes; else the number of lines or rows before it
    end: int = 0
    data: bytes | list[str] | None = None  # of a file that can only be read from its beginning

    @property
    def size(self) -> int:
        """Bytes of the text, for the progress."""
        if self.data is None:
            return self.end - self.begin
        return len(self.data) if isinstance(self.data, bytes) else sum(map(len, self.data))


class _Reader(NamedTuple):
    """How a kind of file is cut, and how a piece of it becomes sentences."""

    cut: Callable[[Path], Iterator[Piece]]
    read: Callable[[Piece], list[str]]


def source_of(path: Path, field: str, strict: bool = False) -> _Reader:
    """By the ending of a name: `.jsonl`, `.csv`, `.tsv` and `.parquet` have fields, anything else has lines.

    Empty rows are passed over; with `strict` they are errors: in one of two sides they would part the pairs below them.
    """
    match kind := ending_of(path):
        case ".jsonl" | ".ndjson":
            return _Reader(_lines, functools.partial(_read_json, field=field, strict=strict))
        case ".csv" | ".tsv":
            return _Reader(functools.partial(_rows, field=field, strict=strict, tab=kind == ".tsv"), _handed)
        case ".parquet":
            return _Reader(functools.partial(_columns, field=field), _handed)
        case _:
            return _Reader(_lines, read_text)


def has_lines(path: Path) -> bool:
    """Whether each line is a sentence, so that the number of one is that of the other."""
    return ending_of(path) not in (".jsonl", ".ndjson", ".csv", ".tsv", ".parquet")


def text_bytes(path: Path) -> int | None:
    """How much text a file has; None where only reading it tells."""
    return None if path.suffix.lower() in (*COMPRESSED, ".parquet") else path.stat().st_size


# -- files of lines


def _lines(path: Path) -> Iterator[Piece]:
    check_file(path)
    return _packed(path) if path.suffix.lower() in COMPRESSED else _ranges(path)


def _ranges(path: Path) -> Iterator[Piece]:
    """Ranges that begin and end with a line; nothing but their bounds is read here."""
    with open(path, "rb") as file:
        end, size = 0, os.fstat(file.fileno()).st_size
        while end < size:
            begin = end
            file.seek(min(begin + PIECE_BYTES, size) - 1)
            if not file.readline():  # it has become shorter meanwhile, which the build finds out in the end
                return
            end = file.tell()
            yield Piece(path, begin, end)


def _packed(path: Path) -> Iterator[Piece]:
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
    """The lines of a piece, without their ends; only a line feed ends a line, whatever else unicode calls one."""
    data = piece.data if isinstance(piece.data, bytes) else _bytes(piece)
    if piece.begin == 0:
        data = data.removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = _first_line(piece) + data.count(b"\n", 0, error.start)
        what = f"{error.reason} (byte 0x{data[error.start]:02x})"
        hint = "make it UTF-8, as with iconv"
        raise AlchemyError(f"is not utf-8 text: {what}", where=f"{piece.path}:{line}", hint=hint) from error
    lines = text.split("\n")
    if piece.begin == 0 and len(lines) == 1 and "\r" in text[:-1]:  # a file without a single line feed
        hint = f"end them with line feeds: tr '\\r' '\\n' < {piece.path.name} > new-{piece.path.name}"
        raise AlchemyError("its lines end with carriage returns alone", where=str(piece.path), hint=hint)
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines] if "\r" in text else lines


def _bytes(piece: Piece) -> bytes:
    with open(piece.path, "rb") as file:
        file.seek(piece.begin)
        return file.read(piece.end - piece.begin)


def _first_line(piece: Piece) -> int:
    """The number of its first line, from 1; of a range somebody has to count them, but only for an error."""
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
                if "\\u" in line:  # half of a pair, escaped, is no text that could be written
                    found[-1].encode()
            elif strict:
                raise ValueError(BLANK)
        except (ValueError, RecursionError) as error:
            where = f"{piece.path}:{_first_line(piece) + number}"
            raise AlchemyError(str(error), where=where, hint="mend the line") from error
    return found


def _text(row: Any, field: str) -> str:
    """A sentence is one line, whatever its text had in it."""
    if not isinstance(row, dict) or field not in row:
        have = ", ".join(map(repr, row)) if isinstance(row, dict) else type(row).__name__
        raise ValueError(f"there is no field {field!r}, only {have}")
    if not isinstance(row[field], str):
        raise ValueError(f"{field} is {row[field]!r}, not a text")
    return " ".join(row[field].splitlines())


# -- tables, which only their beginning explains


def _rows(path: Path, field: str, strict: bool, tab: bool) -> Iterator[Piece]:
    csv.field_size_limit(2**31 - 1)  # a text may be longer than what csv takes for a mistake
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
                    _text(dict.fromkeys(names, ""), field)  # says it where there is none
                    if names.count(field) > 1:
                        raise ValueError(f"there are {names.count(field)} columns {field!r}")
                elif cells and names is not None:
                    if len(cells) != len(names):
                        raise ValueError(f"{len(cells)} cells, expected {len(names)} ({', '.join(names)})")
                    texts.append(_text(dict(zip(names, cells)), field))
                elif cells is not None and strict and names is not None:
                    raise ValueError(BLANK)
            except (ValueError, csv.Error) as error:
                raise AlchemyError(str(error), where=f"{path}:{line}", hint="mend the row") from error
            line = reader.line_num + 1
            if len(texts) == ROWS or (cells is None and texts):
                yield Piece(path, done, 0, texts)
                done, texts = done + len(texts), []
            if cells is None:
                return


def _columns(path: Path, field: str) -> Iterator[Piece]:
    pyarrow = import_package("pyarrow", str(path))
    import_package("pyarrow.parquet", str(path))
    check_file(path)
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            if field not in file.schema_arrow.names:
                hint = f"it has {', '.join(file.schema_arrow.names)}"
                raise AlchemyError(f"{path} has no column {field!r}", hint=hint)
            done = 0
            for batch in file.iter_batches(batch_size=ROWS, columns=[field]):
                rows = batch.column(0).to_pylist()
                for number, row in enumerate(rows):
                    if not isinstance(row, str):
                        raise AlchemyError(f"{path}, row {done + number}: {field} is {row!r}, not a text")
                yield Piece(path, done, 0, [" ".join(row.splitlines()) for row in rows])
                done += len(rows)
    except (OSError, pyarrow.ArrowException) as error:
        raise AlchemyError(f"{str(path)!r} is not a readable parquet file: {error}") from error


def _handed(piece: Piece) -> list[str]:
    assert isinstance(piece.data, list)
    return piece.data
