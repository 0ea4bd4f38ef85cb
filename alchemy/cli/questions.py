"""What `predict` is asked about: texts of the command line, the rows of a file, or lines as they come in."""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple, cast

from alchemy.errors import AlchemyError

TEXTS = ("text", "pair")
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")


class Question(NamedTuple):
    """What is asked, the row that the answer is added to, and the place that an error names."""

    item: Any
    row: dict[str, Any]
    where: str


def of_texts(texts: list[str], pairs: list[str]) -> Iterator[Question]:
    """The texts of the command line, each with its pair where there are pairs."""
    if not pairs:
        return (Question(text, {"text": text}, f"--text {place}") for place, text in enumerate(texts, 1))
    if len(pairs) != len(texts):
        raise AlchemyError(f"{len(texts)} --text and {len(pairs)} --pair", hint="give each text its pair")
    both = enumerate(zip(texts, pairs), 1)
    return (Question(two, dict(zip(("text", "pair"), two)), f"--text {place}") for place, two in both)


def of_file(args: argparse.Namespace) -> Iterator[Question]:
    """The rows of a table, by the ending of its name, or the lines of a text; what is missing is told at once."""
    from alchemy.data.files import COMPRESSED, check_file

    path = check_file(args.source)
    plain = path.with_suffix("") if path.suffix.lower() in COMPRESSED else path
    if plain.suffix.lower() not in ENDINGS:
        hint = f"name it {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise AlchemyError(f"the ending of {path.name!r} does not say how it is written", hint=hint)
    rows = _lines(path, args) if plain.suffix.lower() == ".txt" else _rows(path, args)
    return _asked_of(path, rows, args)


def _asked_of(path: Path, rows: Iterator[tuple[int, Any]], args: argparse.Namespace) -> Iterator[Question]:
    line = 0
    for line, row in rows:
        where = f"{path}:{line}"
        if isinstance(row, Exception):
            raise AlchemyError(str(row), where=where) from row
        yield Question(_item(row, args, where), row, where)
    if not line:
        raise AlchemyError(f"{path} has no rows", hint="is the file empty?")


def _lines(path: Path, args: argparse.Namespace) -> Iterator[tuple[int, Any]]:
    from alchemy.data.files import read_lines

    if args.column or args.pair:
        raise AlchemyError(f"{path} has lines, and no columns", hint="--column is for csv, tsv and jsonl")
    return ((number, {"text": line}) for number, line in read_lines(path, encoding=args.encoding))


def _rows(path: Path, args: argparse.Namespace) -> Iterator[tuple[int, Any]]:
    from alchemy.pipeline.processors.tables import TableFormat, open_table

    table = open_table(path, TableFormat(encoding=args.encoding))
    if not table.keyed:  # objects differ, each is told by its line
        for column in (args.column or "text", *args.pair):
            table.cell(column)
    names = table.names or ()
    return ((line, dict(zip(names, row, strict=True)) if isinstance(row, list) else row) for line, row in table.rows)


def _item(row: dict[str, Any], args: argparse.Namespace, where: str) -> dict[str, Any]:
    """The fields that are asked about: all of the row, or those of the columns that were named."""
    columns = {"text": args.column, "pair": next(iter(args.pair), "")}
    named = {field: column for field, column in columns.items() if column}
    absent = [column for column in named.values() if column not in row]
    if absent:
        raise AlchemyError(f"there is no column {absent[0]!r}", where=where, hint=f"it has {', '.join(row)}")
    fields = {} if args.column else row
    return {**fields, **{field: row[column] for field, column in named.items()}}


def of_lines(read: Callable[[int], bytes]) -> Iterator[Iterator[Question]]:
    """What the lines ask, in blocks as they come in."""
    return (itertools.starmap(_asked, lines) for lines in coming_lines(read))


def coming_lines(read: Callable[[int], bytes]) -> Iterator[Iterator[tuple[str, str]]]:
    """Places and lines, as soon as they are there: each time all those that have come in since the last."""
    rest, number = b"", 0
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


def _asked(where: str, text: str) -> Question:
    """A line that is a JSON object has the fields of a question; any other is a text."""
    try:
        row = json.loads(text) if text.startswith("{") else None
    except ValueError:
        row = None
    return Question(row, row, where) if row is not None else Question(text, {"text": text}, where)


def answered(predictor: Any, questions: Iterable[Question]) -> Iterator[dict[str, Any]]:
    """The row of each question with the answer added; at most a window of them is held."""
    waiting: deque[Question] = deque()

    def asked() -> Iterator[tuple[str, Any]]:
        for question in questions:
            waiting.append(question)
            yield question.where, question.item

    for answer in predictor.answers(asked()):
        yield _row(waiting.popleft(), answer)


def _row(question: Question, answer: dict[str, Any]) -> dict[str, Any]:
    """What was asked and what was answered; a column that the answer would replace is an error, not a loss."""
    from alchemy.pipeline.rows import to_json

    row = question.row
    # the text that was asked about stands in the row already, under the name that it has there
    added = {key: value for key, value in answer.items() if key in row or key not in TEXTS}
    # other fields of a question may come back as they are, but `pred` is never one of them
    same = row.keys() & added.keys() - {*TEXTS}
    lost = [key for key in same if key == "pred" or to_json(row[key]) != to_json(added[key])]
    if lost:
        hint = "give what is there another name, or take it out"
        raise AlchemyError(f"the answer has {min(lost)!r}, and so has the row", where=question.where, hint=hint)
    return row | added


def stdin() -> Callable[[int], bytes]:
    """What reads standard input: as much as there is, without waiting for more."""
    return cast(BufferedReader, sys.stdin.buffer).read1
