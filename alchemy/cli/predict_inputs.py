"""What `predict`, `generate` and `score` share: a model that is open, lines as they come in, and answers in order."""

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
Lines = Iterator[tuple[str, str]]  # the place of each, and its text


class Question(NamedTuple):
    """The place that an error names, the row that the answer is added to, and what is asked, if not the row."""

    where: str
    row: dict[str, Any]
    item: Any = None


# -- the model
@contextlib.contextmanager
def open_predictor(target: Trained, args: argparse.Namespace, batch_size: int = 0) -> Iterator[Predictor]:
    """The model of a record or a config; what it logs is told on standard error, if it is a warning."""
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
    predictor: Predictor, questions: Iterable[Question], *, skip_blank: bool = False
) -> Iterator[tuple[Question, dict[str, Any]]]:
    """Each question with its answer, in order; with `skip_blank` a text without words is not asked about, and has none.

    At most a window of them is held. Where one is wrong, those before it have their answers.
    """
    from alchemy.data.tables import is_blank

    waiting: deque[tuple[Question, bool]] = deque()

    def asked() -> Iterator[tuple[str, Any]]:
        for question in questions:
            blank = skip_blank and any(is_blank(question.row[name]) for name in TEXTS if name in question.row)
            waiting.append((question, blank))
            if not blank:
                yield question.where, question.row if question.item is None else question.item

    def blank() -> Iterator[tuple[Question, dict[str, Any]]]:
        while waiting and waiting[0][1]:
            yield waiting.popleft()[0], {}

    try:
        for answer in predictor.predict_located(asked()):
            yield from blank()
            yield waiting.popleft()[0], answer
    except AlchemyError:
        yield from blank()
        raise
    yield from blank()


def show_progress(rows: Iterable[T], what: str = "rows", total: int | None = None) -> Iterator[T]:
    """The rows, counted by a bar on standard error."""
    from alchemy.progress import Bar, Terminal

    with Bar(what, total, Terminal(stderr=True)) as progress:
        for row in rows:
            yield row
            progress.step()
        progress.finish()


# -- files and lines
def check_files(read: Iterable[str], write: str) -> None:
    """Tells before a model is loaded, and before anything is written, what cannot be read, or would be lost."""
    from alchemy.data.files import check_file

    for name in read:
        if is_same(check_file(name), write):
            raise AlchemyError(f"{write} would be written while it is read", hint="give the output another name")


def blocks(name: str, about: str = "a sentence a line") -> Iterator[Lines]:
    """Lines with their places: all of a file, or of standard input those that are there, as soon as they are there."""
    from alchemy.data.files import read_lines

    if name != "-":
        yield ((f"{name}:{number}", line) for number, line in read_lines(name))
        return
    if sys.stdin.isatty():
        print(f"{about}, Ctrl-D ends", file=sys.stderr)
    try:
        yield from _coming_lines()
    except OSError as error:
        raise AlchemyError(f"standard input cannot be read: {error.strerror}") from error


def _coming_lines() -> Iterator[Lines]:
    """The lines of standard input, each time all those that have come in since the last."""
    rest, number = b"", 0
    read = cast(BufferedReader, sys.stdin.buffer).read1  # as much as there is, without waiting for more
    for block in iter(lambda: read(2**16), b""):
        *whole, rest = (rest + block).split(b"\n")
        yield map(_decoded, whole, range(number + 1, number + 1 + len(whole)))
        number += len(whole)
    if rest:
        yield iter([_decoded(rest, number + 1)])


def _decoded(line: bytes, number: int) -> tuple[str, str]:
    where = f"stdin:{number}"
    try:
        return where, line.decode("utf-8-sig" if number == 1 else "utf-8").removesuffix("\r")
    except UnicodeDecodeError as error:
        hint = "turn it into UTF-8 first: `iconv -f gb18030 -t utf-8`"
        raise AlchemyError(f"is not utf-8 text: {error.reason}", where=where, hint=hint) from error
