"""Open data files, plain or compressed, with errors that name the file."""

from __future__ import annotations

import bz2
import codecs
import contextlib
import difflib
import glob
import gzip
import io
import itertools
import lzma
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Any, cast

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.optional_packages import import_package

COMPRESSED = (".gz", ".xz", ".lzma", ".bz2", ".zst")
# raised when reading damaged files; zstandard's errors are not listed because it may not be installed
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)


def ending_of(path: str | Path) -> str:
    """Return the file extension in lower case, ignoring the extension of a compression format.

    >>> ending_of("a/News.CSV.gz"), ending_of("a.txt")
    ('.csv', '.txt')
    """
    name = Path(Path(path).name.lower())
    return Path(name.stem if name.suffix in COMPRESSED else name).suffix


def open_bytes(path: str | Path) -> IO[bytes]:
    """Open a file for reading; decompress `.gz`, `.xz`, `.bz2` and `.zst`."""
    path = check_file(path)
    try:
        match path.suffix.lower():
            case ".gz":
                return cast(IO[bytes], gzip.open(path, "rb"))
            case ".xz" | ".lzma":
                return cast(IO[bytes], lzma.open(path, "rb"))
            case ".bz2":
                return cast(IO[bytes], bz2.open(path, "rb"))
            case ".zst":
                return io.BufferedReader(_Zstd(import_package("zstandard", str(path)), open(path, "rb")))
            case _:
                return open(path, "rb")
    except OSError as error:
        raise _read_error(path, error) from error


def open_text(
    path: str | Path, *, encoding: str = "utf-8", newline: str | None = None, errors: str = "strict"
) -> IO[str]:
    """Open a text file; a byte order mark at its start is skipped."""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        encoding = "utf-8-sig"
    stream = open_bytes(path)
    try:
        return io.TextIOWrapper(stream, encoding=encoding, newline=newline, errors=errors)
    except LookupError as error:
        stream.close()
        raise AlchemyError(f"{path}: unknown encoding {encoding!r}", hint="try 'utf-8' or 'gb18030'") from error


def read_lines(path: str | Path, *, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """Yield `(number, text)` for every line, counting from 1, without line endings.

    If a line cannot be decoded, all lines before it are yielded first.
    """
    number = 0
    with open_text(path, encoding=encoding) as file:
        lines = iter(file)
        while True:
            try:
                with readable(path, number + 1, encoding):
                    line = next(lines, None)
            except AlchemyError as error:
                if isinstance(error.__cause__, UnicodeError):  # a block failed to decode; its first lines may be fine
                    yield from _read_valid_lines(path, encoding, number)
                raise
            if line is None:
                return
            number += 1
            yield number, line.removesuffix("\n")


def lines_of(path: Path, encoding: str) -> list[str]:
    """Return all lines of a file, including text after the last newline; much faster than `read_lines`.

    A lone carriage return does not end a line, because that would misalign the two sides of parallel text.
    """
    with readable(path, 1, encoding), open_text(path, encoding=encoding, newline="\n") as file:
        lines = file.read().replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _read_valid_lines(path: str | Path, encoding: str, done: int) -> Iterator[tuple[int, str]]:
    """Yield the lines after the first `done`, up to the first one that cannot be decoded."""
    bad, _ = _find_undecodable(path, encoding) or (0, "")
    with open_text(path, encoding=encoding, errors="replace") as file:
        for number, line in itertools.islice(enumerate(file, 1), done, max(bad - 1, done)):
            yield number, line.removesuffix("\n")


class _Zstd(io.RawIOBase):
    """A decompressing reader for zstandard; unlike the package's reader, it detects a truncated last frame."""

    def __init__(self, zstandard: Any, source: IO[bytes]) -> None:
        self.source, self.zstandard = source, zstandard
        self.frame: Any = None
        self.ready = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self.ready:
            packed = self.frame.unused_data if self.frame is not None and self.frame.eof else b""
            packed = packed or self.source.read(2**16)
            if not packed:
                if self.frame is not None and not self.frame.eof:
                    raise EOFError("the last frame is truncated")
                return 0
            if self.frame is None or self.frame.eof:
                self.frame = self.zstandard.ZstdDecompressor().decompressobj()
            self.ready = memoryview(self.frame.decompress(packed))
        count = min(len(buffer), len(self.ready))
        buffer[:count], self.ready = self.ready[:count], self.ready[count:]
        return count

    def close(self) -> None:
        self.source.close()
        super().close()


class readable:
    """A context manager that converts read and decoding errors into errors that name the file and line."""

    def __init__(self, path: str | Path, line: int, encoding: str = "") -> None:
        self.path, self.line, self.encoding = path, line, encoding

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, UnicodeError):
            line, what = _find_undecodable(self.path, self.encoding) or (self.line, str(error))
            raise AlchemyError(
                f"is not valid {self.encoding}: {what}",
                where=f"{self.path}:{line}",
                hint=_suggest_encoding(self.path) or "set the right encoding, or check that the file is text",
            ) from error
        if error is not None and (isinstance(error, DAMAGED) or type(error).__name__ == "ZstdError"):
            raise _read_error(self.path, error) from error


def _suggest_encoding(path: str | Path) -> str:
    """Suggest an encoding based on the first bytes of a file, if possible."""
    with contextlib.suppress(AlchemyError, *DAMAGED), open_bytes(path) as file:
        start = file.read(2**16)
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return 'the file is UTF-16; set encoding = "utf-16"'
        with contextlib.suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder("gb18030")().decode(start)
            chinese = sum("\u4e00" <= char <= "\u9fff" for char in text)
            if 2 * chinese > sum(ord(char) > 127 for char in text):
                return 'the file looks like Chinese text in GBK; set encoding = "gbk"'
    return ""


def _find_undecodable(path: str | Path, encoding: str) -> tuple[int, str] | None:
    """Return the line number of the first bytes that cannot be decoded, and the reason.

    Text is decoded in blocks that extend past the current line, so the bytes are read again to find the line.
    """
    line = 1
    with contextlib.suppress(AlchemyError, *DAMAGED, LookupError, UnicodeError), open_bytes(path) as file:
        # translates all three kinds of line endings, as text mode does
        decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=True)
        while True:
            block, state = file.read(2**16), decoder.getstate()
            try:
                line += decoder.decode(block, final=not block).count("\n")
            except UnicodeDecodeError as error:
                decoder.setstate(state)
                good = error.start - (len(error.object) - len(block))  # the error may start in the previous block
                line += decoder.decode(block[: max(good, 0)]).count("\n")
                return line, f"{error.reason} (byte 0x{error.object[error.start]:02x})"
            if not block:
                return None
    return None


def check_file(path: object) -> Path:
    """Return `path` as a Path; raise an error if it is not a readable file."""
    if not isinstance(path, str | os.PathLike):
        raise AlchemyError(f"expected a file name, got {path!r}", hint="set 'datapipe' to a list of paths")
    path = _expand_user(path)
    if path.is_dir():
        raise AlchemyError(f"expected a file, but {str(path)!r} is a folder", hint=f"try '{path}/*'")
    if not path.exists():
        raise AlchemyError(f"file not found: {str(path)!r}", hint=_suggest_file(path))
    if not os.access(path, os.R_OK):
        raise AlchemyError(f"no permission to read {str(path)!r}", hint="change the permissions of the file")
    return path


def expand(paths: object) -> list[Path]:
    """Return the files that match a path, a pattern such as `data/*.jsonl`, or a list of these, in order."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if not isinstance(paths, Sequence):
        raise AlchemyError(f"expected a list of files, got {paths!r}", hint='write datapipe = ["train.jsonl"]')
    files: list[Path] = []
    for path in paths:
        path = _expand_user(path) if isinstance(path, str | os.PathLike) else path
        pattern = glob.has_magic(str(path)) and not os.path.exists(path)  # a folder may be named `run[1]`
        found = sorted(glob.glob(str(path), recursive=True)) if pattern else []
        files += [check_file(name) for name in found if not os.path.isdir(name)] or [check_file(path)]
    return files


def _expand_user(path: str | os.PathLike[str]) -> Path:
    """Replace a leading `~` with the home folder, unless the path exists unexpanded."""
    return Path(path if os.path.exists(path) else os.path.expanduser(path))


def _suggest_file(path: Path) -> str:
    if not path.parent.is_dir():
        return f"the folder {str(path.parent)!r} does not exist either; the current folder is {os.getcwd()!r}"
    names = [entry.name for entry in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
    return did_you_mean(path.name, names) if close else "relative paths are resolved against the current folder"


def _read_error(path: str | Path, error: BaseException) -> AlchemyError:
    hint = "the file may be damaged, or its extension may be wrong"
    return AlchemyError(f"cannot read {str(path)!r}: {error}", hint=hint)
