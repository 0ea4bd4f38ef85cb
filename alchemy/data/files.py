"""Files of data, plain or compressed, opened with errors that name the file."""

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
# what reading a damaged file raises, beside the errors of zstandard, which may not be installed
DAMAGED = (OSError, EOFError, zlib.error, lzma.LZMAError)


def ending_of(path: str | Path) -> str:
    """The ending that says how a file is written, in lower case and without that of its compression.

    >>> ending_of("a/News.CSV.gz"), ending_of("a.txt")
    ('.csv', '.txt')
    """
    name = Path(Path(path).name.lower())
    return Path(name.stem if name.suffix in COMPRESSED else name).suffix


def open_bytes(path: str | Path) -> IO[bytes]:
    """Opens a file for reading and unpacks `.gz`, `.xz`, `.bz2` and `.zst` on the way."""
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
        raise _unreadable(path, error) from error


def open_text(
    path: str | Path, *, encoding: str = "utf-8", newline: str | None = None, errors: str = "strict"
) -> IO[str]:
    """Opens a text file; a byte order mark at its start is not part of the text."""
    if encoding.lower().replace("_", "-") in ("utf-8", "utf8"):
        encoding = "utf-8-sig"
    stream = open_bytes(path)
    try:
        return io.TextIOWrapper(stream, encoding=encoding, newline=newline, errors=errors)
    except LookupError as error:
        stream.close()
        raise AlchemyError(f"{path}: there is no encoding {encoding!r}", hint="try 'utf-8' or 'gb18030'") from error


def read_lines(path: str | Path, *, encoding: str = "utf-8") -> Iterator[tuple[int, str]]:
    """`(number, text)` of every line, from 1, without the line end; those before a line that is no text come first."""
    number = 0
    with open_text(path, encoding=encoding) as file:
        lines = iter(file)
        while True:
            try:
                with readable(path, number + 1, encoding):
                    line = next(lines, None)
            except AlchemyError as error:
                if isinstance(error.__cause__, UnicodeError):  # of a whole block, in which good lines may come first
                    yield from _good_lines(path, encoding, number)
                raise
            if line is None:
                return
            number += 1
            yield number, line.removesuffix("\n")


def lines_of(path: Path, encoding: str) -> list[str]:
    """All lines of a file at once, many times faster than one by one; the text after the last line end counts.

    A lone carriage return does not end a line: one inside a text would shift the lines of one side against the other.
    """
    with readable(path, 1, encoding), open_text(path, encoding=encoding, newline="\n") as file:
        lines = file.read().replace("\r\n", "\n").split("\n")
    return lines if lines[-1] else lines[:-1]


def _good_lines(path: str | Path, encoding: str, done: int) -> Iterator[tuple[int, str]]:
    """The lines behind the first `done` that can be decoded, up to the first that cannot."""
    bad, _ = _undecodable(path, encoding) or (0, "")
    with open_text(path, encoding=encoding, errors="replace") as file:
        for number, line in itertools.islice(enumerate(file, 1), done, max(bad - 1, done)):
            yield number, line.removesuffix("\n")


class _Zstd(io.RawIOBase):
    """Unpacks zstandard frames, one after the other; unlike the package's reader it notices when the last is cut."""

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
                    raise EOFError("the last frame is cut")
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
    """Inside, trouble with the bytes of a file becomes an error that names file and line."""

    def __init__(self, path: str | Path, line: int, encoding: str = "") -> None:
        self.path, self.line, self.encoding = path, line, encoding

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if isinstance(error, UnicodeError):
            line, what = _undecodable(self.path, self.encoding) or (self.line, str(error))
            raise AlchemyError(
                f"is not {self.encoding} text: {what}",
                where=f"{self.path}:{line}",
                hint=_encoding_of(self.path) or "give the right encoding, or check that the file is text",
            ) from error
        if error is not None and (isinstance(error, DAMAGED) or type(error).__name__ == "ZstdError"):
            raise _unreadable(self.path, error) from error


def _encoding_of(path: str | Path) -> str:
    """The encoding that the first bytes of a file show, if any."""
    with contextlib.suppress(AlchemyError, *DAMAGED), open_bytes(path) as file:
        start = file.read(2**16)
        if start.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            return 'it is UTF-16: set encoding = "utf-16"'
        with contextlib.suppress(UnicodeDecodeError):
            text = codecs.getincrementaldecoder("gb18030")().decode(start)
            chinese = sum("\u4e00" <= char <= "\u9fff" for char in text)
            if 2 * chinese > sum(ord(char) > 127 for char in text):
                return 'it reads as Chinese in GBK: set encoding = "gbk"'
    return ""


def _undecodable(path: str | Path, encoding: str) -> tuple[int, str] | None:
    """The line of the first bytes that are no text, and what is wrong with them.

    Text is decoded in blocks, long before the line is asked for: only the bytes tell where it was.
    """
    line = 1
    with contextlib.suppress(AlchemyError, *DAMAGED, LookupError, UnicodeError), open_bytes(path) as file:
        # translates the three kinds of line ends, as reading text does
        decoder = io.IncrementalNewlineDecoder(codecs.getincrementaldecoder(encoding)(), translate=True)
        while True:
            block, state = file.read(2**16), decoder.getstate()
            try:
                line += decoder.decode(block, final=not block).count("\n")
            except UnicodeDecodeError as error:
                decoder.setstate(state)
                good = error.start - (len(error.object) - len(block))  # it may begin in the block before
                line += decoder.decode(block[: max(good, 0)]).count("\n")
                return line, f"{error.reason} (byte 0x{error.object[error.start]:02x})"
            if not block:
                return None
    return None


def check_file(path: object) -> Path:
    """The path of a file that exists; a clear error otherwise."""
    if not isinstance(path, str | os.PathLike):
        raise AlchemyError(f"a file name was expected, not {path!r}", hint="give a list of paths as 'datapipe'")
    path = _at_home(path)
    if path.is_dir():
        raise AlchemyError(f"{str(path)!r} is a folder, a file was expected", hint=f"try '{path}/*'")
    if not path.exists():
        raise AlchemyError(f"there is no file {str(path)!r}", hint=_near(path))
    if not os.access(path, os.R_OK):
        raise AlchemyError(f"{str(path)!r} may not be read", hint="mend its permissions")
    return path


def expand(paths: object) -> list[Path]:
    """The files that a path, a pattern such as `data/*.jsonl`, or a list of them names, in order."""
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    if not isinstance(paths, Sequence):
        raise AlchemyError(f"a list of files was expected, not {paths!r}", hint='write datapipe = ["train.jsonl"]')
    files: list[Path] = []
    for path in paths:
        path = _at_home(path) if isinstance(path, str | os.PathLike) else path
        pattern = glob.has_magic(str(path)) and not os.path.exists(path)  # `run[1]` may be what a folder is called
        found = sorted(glob.glob(str(path), recursive=True)) if pattern else []
        files += [check_file(name) for name in found if not os.path.isdir(name)] or [check_file(path)]
    return files


def _at_home(path: str | os.PathLike[str]) -> Path:
    """The path, with the folder of the user in the place of a leading `~`."""
    return Path(path if os.path.exists(path) else os.path.expanduser(path))


def _near(path: Path) -> str:
    if not path.parent.is_dir():
        return f"there is no folder {str(path.parent)!r} either, seen from {os.getcwd()!r}"
    names = [entry.name for entry in path.parent.iterdir()]
    close = difflib.get_close_matches(path.name, names, n=1, cutoff=0.8)
    return did_you_mean(path.name, names) if close else "relative paths are seen from the folder that you run in"


def _unreadable(path: str | Path, error: BaseException) -> AlchemyError:
    return AlchemyError(
        f"{str(path)!r} cannot be read: {error}", hint="it may be damaged or not of the kind its name says"
    )
