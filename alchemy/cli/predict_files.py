"""Read the rows of a table, the lines of a text file or the sequences of a FASTA file for `alchemy predict`."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from alchemy.cli.predict_inputs import TEXTS, InputRow
from alchemy.errors import AlchemyError

if TYPE_CHECKING:
    from alchemy.config.tree import Document

ENDINGS = (".csv", ".tsv", ".jsonl", ".ndjson", ".txt")

LocatedRows = Iterator[tuple[int, Any]]  # (line, row or the exception that it caused)


def file_inputs(args: argparse.Namespace, document: Document, *, as_rows: bool) -> Iterator[InputRow]:
    """Return the inputs in a file; `document` is the config of the trained model.

    A missing column raises an error before the first prediction, except with `as_rows`, which needs no text column.
    """
    from alchemy.data.files import check_file, ending_of
    from alchemy.pipeline.processors.proteins import FASTA

    path, pipes = check_file(args.files[0]), [] if as_rows else _trained_pipes(document)
    endings = ENDINGS + (FASTA if any(map(_reads_proteins, pipes)) else ())
    if ending_of(path) not in endings:
        hint = f"use {', '.join(endings[:-1])} or {endings[-1]}"
        raise AlchemyError(f"unknown file extension: {path.name!r}", hint=hint)
    with _hint_options():
        if ending_of(path) == ".txt":
            rows = _read_text_lines(path, args)
        elif ending_of(path) in FASTA:
            rows = _read_sequences(path, args)
        else:
            rows = _read_rows(path, args, _trained_columns(pipes), as_rows)
    return _to_inputs(path, rows, args)


# -- training data
def _trained_pipes(document: Document) -> list[Mapping[str, Any]]:
    """Return the pipes of the splits, those that prediction uses first."""
    splits = document.table("task").table("datasets")
    return [pipe for split in ("test", "dev", "train") for pipe in splits.table(split).get("pipes") or ()]


def _reads_proteins(pipe: Mapping[str, Any]) -> bool:
    return str(pipe.get("type", "")).endswith(".Proteins")


def _trained_columns(pipes: list[Mapping[str, Any]]) -> dict[str, str]:
    """Return the text columns of the training data, keyed by field."""
    for pipe in pipes:
        if _reads_proteins(pipe):
            return {"text": name} if isinstance(name := pipe.get("sequence", "sequence"), str) else {}
        if str(pipe.get("type", "")).endswith(".TextClassification"):
            return {field: name for field in TEXTS if isinstance(name := pipe.get(field), str) and name}
    return {}


# -- rows
def _read_text_lines(path: Path, args: argparse.Namespace) -> LocatedRows:
    from alchemy.data.files import read_lines

    _refuse_columns(path, args, "a text file")
    return ((number, {"text": line}) for number, line in read_lines(path, encoding=args.encoding))


def _read_sequences(path: Path, args: argparse.Namespace) -> LocatedRows:
    """Return the entries of a FASTA file as rows with `id`, the first word of the header, and `sequence`."""
    from alchemy.pipeline.processors.proteins import open_fasta

    _refuse_columns(path, args, "a FASTA file")
    args.column = "sequence"
    table = open_fasta(path, "|", args.encoding)
    name, lines = table.cell("id"), table.cell("sequence")
    return (
        (line, row if isinstance(row, Exception) else {"id": name(row), "sequence": "".join(lines(row))})
        for line, row in table.rows
    )


def _refuse_columns(path: Path, args: argparse.Namespace, kind: str) -> None:
    if args.column or args.pair:
        raise AlchemyError(f"{path} is {kind} without columns", hint="--column applies to csv, tsv and jsonl")


def _read_rows(path: Path, args: argparse.Namespace, columns: dict[str, str], as_rows: bool) -> LocatedRows:
    from alchemy.data.tables import TableFormat, open_table

    table = open_table(path, TableFormat(encoding=args.encoding))
    names = table.names or ()
    text, pair = columns.get("text", "text"), columns.get("pair", "")
    if not args.column and text != "text" and names and (text in names or "text" not in names):
        args.column = text
        args.pair = args.pair or [pair] * bool(pair)
    if not table.keyed and not as_rows:  # JSON objects may have different keys: each is checked when it is read
        for column in (args.column or "text", *args.pair):
            table.cell(column)
    return ((line, dict(zip(names, row, strict=True)) if isinstance(row, list) else row) for line, row in table.rows)


# -- inputs
def _to_inputs(path: Path, rows: LocatedRows, args: argparse.Namespace) -> Iterator[InputRow]:
    line = 0
    with _hint_options():
        for line, row in rows:
            where = f"{path}:{line}"
            if isinstance(row, Exception):
                raise AlchemyError(str(row), where=where) from row
            yield InputRow(where, row, _item(row, args, where))
    if not line:
        raise AlchemyError(f"{path} has no rows", hint="is the file empty?")


def _item(row: dict[str, Any], args: argparse.Namespace, where: str) -> dict[str, Any]:
    """Return the input fields: the whole row, or the columns named by options."""
    columns = {"text": args.column, "pair": next(iter(args.pair), "")}
    named = {field: column for field, column in columns.items() if column}
    absent = [column for column in named.values() if column not in row]
    if absent:
        raise AlchemyError(f"no column {absent[0]!r}", where=where, hint=f"available: {', '.join(row)}")
    fields = {} if args.column else row
    return {**fields, **{field: row[column] for field, column in named.items()}}


@contextlib.contextmanager
def _hint_options() -> Iterator[None]:
    """Rewrite the hint of a file error to name a command-line option instead of a config key."""
    try:
        yield
    except AlchemyError as error:
        row, hint = error.problem, error.problem.hint
        if isinstance(error.__cause__, UnicodeError):
            hint = re.sub(r'set encoding = "(.+)"', r"pass --encoding \1", hint)
            hint += "" if "--encoding" in hint else ": --encoding NAME"
        elif "no column" in row.message:
            hint += "; use --column to name the text column"
        raise AlchemyError(row.message, where=row.where, section=row.section, hint=hint) from error.__cause__
