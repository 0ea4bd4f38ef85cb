"""`alchemy predict`: what a trained model says, about texts that it is asked or about the data of its config."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.options import Command, add_launch, add_overrides, add_target
from alchemy.cli.predict_inputs import (
    TEXTS,
    InputRow,
    check_files,
    open_predictor,
    predict_inputs,
    read_blocks,
    show_progress,
)
from alchemy.errors import AlchemyError, printable

if TYPE_CHECKING:
    from alchemy.config.tree import Document
    from alchemy.pipeline.output import PredictionFile

FORMATS = ["jsonl", "csv"]
ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")

EXAMPLES = """examples:
  alchemy predict latest --text "a fine day" --text "rain"
  alchemy predict latest --text "is it raining?" --pair "take an umbrella"
  alchemy predict latest --file in.csv --column title --out out.csv
  tail -f chat.log | alchemy predict latest -
  alchemy predict latest --out predictions.jsonl
  alchemy predict records/demo/2026-01-31_12-00-00.000000 --split dev --format csv --out dev.csv"""


def _arguments(parser: argparse.ArgumentParser) -> None:
    add_target(parser)
    add = parser.add_argument
    add("stdin", nargs="?", metavar="-", help="answer each line that comes in, at once")
    add("--out", default="", metavar="FILE", help="where to write (default: results/ of the new record)")
    add("--format", choices=FORMATS, default=None, help="default: by the ending of FILE, else jsonl")
    add("--split", default=None, metavar="NAME", help="the split to predict (default: inference, else test)")
    add_overrides(parser)
    add_launch(parser)
    about = "no record is made, and without --out the answers are printed, one line of JSON each"
    # --file of a run asks for a record, of which there is none here; --no-file stays
    asked = parser.add_argument_group("questions", about, conflict_handler="resolve")
    add = asked.add_argument
    add("--text", action="append", default=[], metavar="TEXT", help="a text to answer; may be repeated")
    add("--pair", action="append", default=[], metavar="TEXT", help="the second text of each; with --file its column")
    add("--file", dest="source", metavar="FILE", help="answer each row of a csv, tsv or jsonl, each line of a txt file")
    add(
        "--column",
        default="",
        metavar="NAME",
        help="the column of the texts in FILE (default: as in training, else text)",
    )
    add("--encoding", default="utf-8", metavar="NAME", help="of FILE (default: utf-8)")
    add("--batch-size", type=int, default=32, metavar="N", help="texts that are answered together (default: 32)")


def _main(args: argparse.Namespace) -> int:
    if args.stdin not in (None, "-"):
        raise AlchemyError(f"{args.stdin!r} has no option in front of it", hint="write --text before each text")
    suffix = _choose_format(args.out, args.format)
    if args.source == "-":
        args.source, args.stdin = None, "-"
    if args.text or args.source or args.stdin:
        return _answer(args, suffix)
    if args.pair or args.column:
        raise AlchemyError("there is nothing to ask", hint="give --text, or --file")
    return _predict_split(args, suffix)


def _predict_split(args: argparse.Namespace, suffix: str) -> int:
    """Writes what the model says about the data of its config, in a run of its own."""
    from alchemy.cli.derived_config import derive_prediction
    from alchemy.cli.target import open_target, start_derived

    target = open_target(args)
    derived = derive_prediction(target.document, target.model_path, args.split)

    def job(*words: Any, **options: Any) -> Any:
        from alchemy.runner import run_task  # here: a wrong config is told before torch is imported

        return run_task(*words, out=args.out, suffix=suffix, **options)

    return start_derived(target, derived, args, "predictions", run_task_fn=job)


def _refuse_if_unclear(args: argparse.Namespace, suffix: str) -> None:
    """Options that do not go together are told before the model is loaded."""
    if sum(map(bool, (args.text, args.source, args.stdin, args.split))) > 1:
        raise AlchemyError("--text, --file, - and --split exclude each other", hint="ask about one of them at a time")
    if suffix == "csv" and not args.out:
        raise AlchemyError("csv is written to a file", hint="give --out FILE.csv, or leave out --format")
    check_files([args.source] if args.source else [], args.out)
    if args.source and len(args.pair) > 1:
        raise AlchemyError(f"{len(args.pair)} --pair", hint="with --file it names the one column of the second texts")
    if (not args.source and args.column) or (args.stdin and args.pair):
        hint = 'lines that are JSON have fields: {"text": "..", "pair": ".."}' if args.stdin else ""
        raise AlchemyError("only a file has columns", hint=hint)


def _answer(args: argparse.Namespace, suffix: str) -> int:
    """Prints or writes what the model says about texts."""
    from alchemy.cli.derived_config import describe_weights
    from alchemy.cli.target import open_target
    from alchemy.pipeline.output import PredictionFile
    from alchemy.predict_inputs import takes_rows

    _refuse_if_unclear(args, suffix)
    target = open_target(args, quiet=True)
    whole = takes_rows(target.document)
    if args.source:
        asked: Iterable[Iterator[InputRow]] = [_of_file(args, {} if whole else _own_columns(target.document), whole)]
    else:
        asked = _of_lines() if args.stdin else [_of_texts(args.text, args.pair)]
    # a bar would stand between the lines that are printed on a terminal
    seen = bool(args.source) and (bool(args.out) or not sys.stdout.isatty())
    file = PredictionFile(args.out) if args.out else None
    with open_predictor(target, args) as predictor, _rows_wanted(whole and bool(args.text)):
        if target.model_path is not None:
            print(f"model: {describe_weights(target.model_path, target.document)}", file=sys.stderr)
        for questions in asked:
            told = map(_as_row, questions) if whole else questions
            rows = itertools.starmap(_with_row if whole else _with_answer, predict_inputs(predictor, told))
            _write(show_progress(rows) if seen else rows, file)
    if file is not None:
        print(f"{file.rows} answers are in {file.path}", file=sys.stderr)
    return 0


@contextlib.contextmanager
def _rows_wanted(asked_texts: bool) -> Iterator[None]:
    """Says what to do where a model that takes rows was asked about texts, and could not make a row of one."""
    try:
        yield
    except AlchemyError as error:
        if not asked_texts:
            raise
        hint = "this model takes rows: give a table with --file, or lines of JSON on standard input"
        row = error.problem
        raise AlchemyError(row.message, where=row.where, section=row.section, hint=hint) from error


def _write(rows: Iterator[dict[str, Any]], file: PredictionFile | None) -> None:
    """Adds rows to a file, or prints them, each as soon as it is there."""
    from alchemy.pipeline.output_rows import to_json

    if file is None:
        for row in rows:
            print(printable(to_json(row)), flush=True)
        return
    held: list[dict[str, Any]] = []
    try:
        for row in rows:
            held.append(row)
            if len(held) == 1024:
                file.write(held)
                held = []
    finally:  # where a row is wrong, those before it are written
        if held:
            file.write(held)


def _choose_format(out: str, asked: str | None) -> str:
    """The format of the file; its name and `--format` must agree.

    >>> _choose_format("a.csv", None), _choose_format("", None)
    ('csv', 'jsonl')
    """
    ending = out.rpartition(".")[2] if "." in out else ""
    if out and (ending not in FORMATS or asked not in (None, ending)):
        raise AlchemyError(f"{out} does not end in .{asked or 'jsonl or .csv'}", hint="its ending tells the format")
    return asked or ending or "jsonl"


# -- what is asked
def _of_texts(texts: list[str], pairs: list[str]) -> Iterator[InputRow]:
    """The texts of the command line, each with its pair where there are pairs."""
    if not pairs:
        return (InputRow(f"--text {place}", {"text": text}, text) for place, text in enumerate(texts, 1))
    if len(pairs) != len(texts):
        raise AlchemyError(f"{len(texts)} --text and {len(pairs)} --pair", hint="give each text its pair")
    both = enumerate(zip(texts, pairs), 1)
    return (InputRow(f"--text {place}", dict(zip(TEXTS, two)), two) for place, two in both)


def _own_columns(document: Document) -> dict[str, str]:
    """The columns of the texts that the model was trained on, by field, where they have names."""
    splits = document.table("task").table("datasets")
    for split in ("test", "dev", "train"):
        for pipe in splits.table(split).get("pipes") or ():
            if str(pipe.get("type", "")).endswith(".TextClassification"):
                return {field: name for field in TEXTS if isinstance(name := pipe.get(field), str) and name}
    return {}


def _of_file(args: argparse.Namespace, own: dict[str, str], whole: bool) -> Iterator[InputRow]:
    """The rows of a table, by the ending of its name, or the lines of a text; `own` are the columns of the training.

    A missing column is an error before the first answer, except with `whole` rows, which need no column of texts.
    """
    from alchemy.data.files import check_file, ending_of

    path = check_file(args.source)
    if ending_of(path) not in ENDINGS:
        hint = f"name it {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}"
        raise AlchemyError(f"the ending of {path.name!r} does not say how it is written", hint=hint)
    with _options_named():
        rows = _lines(path, args) if ending_of(path) == ".txt" else _rows(path, args, own, whole)
    return _asked_of(path, rows, args)


@contextlib.contextmanager
def _options_named() -> Iterator[None]:
    """Lets an error about a file name the option that helps, in place of the key of a config."""
    try:
        yield
    except AlchemyError as error:
        row, hint = error.problem, error.problem.hint
        if isinstance(error.__cause__, UnicodeError):
            hint = re.sub(r'set encoding = "(.+)"', r"give --encoding \1", hint)
            hint += "" if "--encoding" in hint else ": --encoding NAME"
        elif row.message.startswith("there is no column"):
            hint += "; --column names the column of the texts"
        raise AlchemyError(row.message, where=row.where, section=row.section, hint=hint) from error.__cause__


def _asked_of(path: Path, rows: Iterator[tuple[int, Any]], args: argparse.Namespace) -> Iterator[InputRow]:
    line = 0
    with _options_named():
        for line, row in rows:
            where = f"{path}:{line}"
            if isinstance(row, Exception):
                raise AlchemyError(str(row), where=where) from row
            yield InputRow(where, row, _item(row, args, where))
    if not line:
        raise AlchemyError(f"{path} has no rows", hint="is the file empty?")


def _lines(path: Path, args: argparse.Namespace) -> Iterator[tuple[int, Any]]:
    from alchemy.data.files import read_lines

    if args.column or args.pair:
        raise AlchemyError(f"{path} has lines, and no columns", hint="--column is for csv, tsv and jsonl")
    return ((number, {"text": line}) for number, line in read_lines(path, encoding=args.encoding))


def _rows(path: Path, args: argparse.Namespace, own: dict[str, str], whole: bool) -> Iterator[tuple[int, Any]]:
    from alchemy.data.tables import TableFormat, open_table

    table = open_table(path, TableFormat(encoding=args.encoding))
    names = table.names or ()
    text, pair = own.get("text", "text"), own.get("pair", "")
    if not args.column and text != "text" and names and (text in names or "text" not in names):
        args.column = text
        args.pair = args.pair or [pair] * bool(pair)
    if not table.keyed and not whole:  # objects differ, each is told by its line
        for column in (args.column or "text", *args.pair):
            table.cell(column)
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


def _of_lines() -> Iterator[Iterator[InputRow]]:
    """What the lines of standard input ask, in blocks as they come in."""
    return (itertools.starmap(_asked, lines) for lines in read_blocks("-", "a text a line"))


def _asked(where: str, text: str) -> InputRow:
    """A line that is a JSON object has the fields of a question; any other is a text."""
    try:
        row = json.loads(text) if text.startswith("{") else None
    except ValueError:
        row = None
    return InputRow(where, {"text": text}, text) if row is None else InputRow(where, row)


def _as_row(question: InputRow) -> InputRow:
    """A text by itself is a row of one field."""
    return question._replace(item=None) if isinstance(question.item, str | tuple) else question


def _with_row(question: InputRow, answer: dict[str, Any]) -> dict[str, Any]:
    """A row and the answer to it; what the row has stays, as the label that the pipes make a number of."""
    if "pred" in question.row and "pred" in answer:
        hint = "give what is there another name, or take it out"
        raise AlchemyError("the answer has 'pred', and so has the row", where=question.where, hint=hint)
    return question.row | {key: value for key, value in answer.items() if key not in question.row}


def _with_answer(question: InputRow, answer: dict[str, Any]) -> dict[str, Any]:
    """What was asked and what was answered; a column that the answer would replace is an error, not a loss."""
    from alchemy.pipeline.output_rows import to_json

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


COMMAND = Command(_arguments, _main, EXAMPLES)
