"""Open a model, read inputs and predict them in order: shared by `predict`, `generate` and `score`."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from io import BufferedReader
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from alchemy.errors import AlchemyError
from alchemy.files import is_same

if TYPE_CHECKING:
    from alchemy.cli.target import Trained
    from alchemy.predictor import Predictor

T = TypeVar("T")
TEXTS = ("text", "pair")
Lines = Iterator[tuple[str, str]]  # location and text of each line


class InputRow(NamedTuple):
    """An input: its location, the row that receives the prediction, and the model input if it differs from the row."""

    where: str
    row: dict[str, Any]
    item: Any = None


# -- model
@contextlib.contextmanager
def open_predictor(target: Trained, args: argparse.Namespace, batch_size: int = 0) -> Iterator[Predictor]:
    """Open the model of a record or a config; log warnings to standard error."""
    from alchemy.launch.device import alloc
    from alchemy.plugins.log_sinks import console_log
    from alchemy.predictor import Predictor
    from alchemy.progress import Terminal

    if not batch_size and args.batch_size < 1:
        raise AlchemyError("--batch-size must be at least 1")
    options = {"device": alloc(args.device)[0]["device"], "batch_size": batch_size or args.batch_size}
    with (
        console_log(Terminal(stderr=True), "DEBUG" if args.debug else "WARNING"),
        Predictor(target.document, weights=target.model_path, **options) as predictor,
    ):
        yield predictor


def predict_inputs(
    predictor: Predictor, inputs: Iterable[InputRow], *, skip_blank: bool = False
) -> Iterator[tuple[InputRow, dict[str, Any]]]:
    """Yield each input with its prediction, in order; with `skip_blank`, blank text gets an empty prediction.

    Keeps only a window of inputs in memory. If an input is invalid, the predictions before it are still yielded.
    """
    from alchemy.data.tables import is_blank

    waiting: deque[tuple[InputRow, bool]] = deque()

    def pending() -> Iterator[tuple[str, Any]]:
        for entry in inputs:
            blank = skip_blank and any(is_blank(entry.row[name]) for name in TEXTS if name in entry.row)
            waiting.append((entry, blank))
            if not blank:
                yield entry.where, entry.row if entry.item is None else entry.item

    def pop_blank() -> Iterator[tuple[InputRow, dict[str, Any]]]:
        while waiting and waiting[0][1]:
            yield waiting.popleft()[0], {}

    try:
        for prediction in predictor.predict_located(pending()):
            yield from pop_blank()
            yield waiting.popleft()[0], prediction
    except AlchemyError:
        yield from pop_blank()
        raise
    yield from pop_blank()


def show_progress(rows: Iterable[T], what: str = "rows", total: int | None = None) -> Iterator[T]:
    """Yield the rows and show a progress bar on standard error."""
    from alchemy.progress import Bar, Terminal

    with Bar(what, total, Terminal(stderr=True)) as progress:
        for row in rows:
            yield row
            progress.step()
        progress.finish()


# -- files and lines
def check_files(read: Iterable[str], write: str) -> None:
    """Raise an error if an input file is missing or is also the output file."""
    from alchemy.data.files import check_file

    for name in read:
        if is_same(check_file(name), write):
            raise AlchemyError(f"{write} is both input and output", hint="use a different output file")


def read_blocks(name: str, about: str = "one sentence per line") -> Iterator[Lines]:
    """Yield blocks of lines with their locations: a whole file, or standard input as it arrives."""
    from alchemy.data.files import read_lines

    if name != "-":
        yield ((f"{name}:{number}", line) for number, line in read_lines(name))
        return
    if sys.stdin.isatty():
        print(f"{about}; end with Ctrl-D", file=sys.stderr)
    try:
        yield from _read_stdin()
    except OSError as error:
        raise AlchemyError(f"cannot read standard input: {error.strerror}") from error


def _read_stdin() -> Iterator[Lines]:
    """Yield the complete lines that have arrived on standard input since the last block."""
    rest, number = b"", 0
    read = cast(BufferedReader, sys.stdin.buffer).read1  # returns the available bytes without waiting for more
    for block in iter(lambda: read(2**16), b""):
        *whole, rest = (rest + block).split(b"\n")
        yield map(_decode, whole, range(number + 1, number + 1 + len(whole)))
        number += len(whole)
    if rest:
        yield iter([_decode(rest, number + 1)])


def _decode(line: bytes, number: int) -> tuple[str, str]:
    where = f"stdin:{number}"
    try:
        return where, line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        hint = "convert it to UTF-8 first: `iconv -f gb18030 -t utf-8`"
        raise AlchemyError(f"is not valid utf-8: {error.reason}", where=where, hint=hint) from error
