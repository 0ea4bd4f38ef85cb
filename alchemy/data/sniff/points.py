"""Tables of numbers with a label: which columns are inputs, their mean and spread, and the opener that reads them."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean, pstdev
from typing import Any

from alchemy.data.messages import in_short
from alchemy.data.sniff.columns import (
    FEW,
    ColumnStats,
    check_label,
    count_labels,
    describe_columns,
    find_label,
    is_id,
    named_column,
)
from alchemy.data.sniff.finding import (
    Finding,
    Hints,
    layout_keys,
    merge_keys,
    note_balance,
    note_size,
    tell_format,
    tell_labels,
)
from alchemy.data.sniff.layout import SniffedTable, sniff_table
from alchemy.errors import AlchemyError

OPENERS = {"csv": "CsvOpener", "tsv": "TsvOpener", "jsonl": "JsonlOpener", "parquet": "ParquetOpener"}


@dataclass
class Points(Finding):
    """What was found in tables of numbers; `shared` are the arguments of the template's ReadPoint."""

    opener: dict[str, Any] = field(default_factory=dict)


def looks_numeric(table: SniffedTable, label: str = "") -> bool:
    """Whether all columns are numbers, or all but the label; ids are passed over.

    A column of words is the label if the user says so, or if it repeats its words.
    """
    columns = describe_columns(table)
    counted = [column for column in columns if not is_id(column) and column.distinct]
    words = [column for column in counted if column.kind != "number"]
    if len(counted) < 2 or len(words) > 1:
        return False
    if label and words:
        return named_column(columns, label, "--label", table.path) == words[0]
    return not words or (words[0].is_text and words[0].distinct <= len(table.rows) * FEW)


def sniff_points(paths: Mapping[str, list[Path]], asked: Hints) -> Points:
    """What the files of each split are, for a classification of rows of numbers."""
    tables = {split: sniff_table(files[0], asked.encoding) for split, files in paths.items()}
    train = tables["train"]
    columns = describe_columns(train)
    label = _label(train, columns, asked)
    inputs = [column for column in columns if column != label and _is_input(train, column)]
    if not inputs:
        raise AlchemyError(f"{train.path} has no column of numbers", hint=f"it has {in_short(train.names)}")
    counts = {split: _count_labels(table, label, inputs) for split, table in tables.items()}
    kind = check_label(train.path, label, counts["train"], len(train.rows), told=True)
    if kind != "single":
        text = f"{train.path}: column {label.name!r} has {len(counts['train']):,} values in {len(train.rows):,} rows"
        raise AlchemyError(f"{text}, and --kind points learns classes", hint="name another column with --label")
    openers = {split: _opener(table) for split, table in tables.items()}
    for split, opener in openers.items():
        if opener != openers["train"]:
            text = f"{tables[split].path} is written in another way than {train.path}"
            raise AlchemyError(text, hint="write all splits in the same format, encoding and order of columns")
    found = Points({}, _read_keys(train, inputs, label, counts), merge_keys(paths, {split: {} for split in tables}))
    found.opener = openers["train"]
    found.sizes = {split: len(table.rows) for split, table in tables.items()}
    found.large = {split for split, table in tables.items() if not table.whole}
    found.shown = _show(train, inputs, label, counts["train"])
    found.notes = [*note_size(found.sizes["train"]), *note_balance(counts["train"])]
    found.notes += _note_columns(train, columns, [*inputs, label])
    for split, labels in counts.items():
        if unseen := sorted(labels.keys() - counts["train"].keys()):
            found.notes.append(f"{split} has labels that the training data lacks and cannot teach: {in_short(unseen)}")
    return found


def _label(table: SniffedTable, columns: Sequence[ColumnStats], asked: Hints) -> ColumnStats:
    """The column of labels: the one that the user names, else one of words, else a number that is called so."""
    if asked.label:
        return named_column(columns, asked.label, "--label", table.path)
    words = [column for column in columns if column.is_text]
    found = find_label(words or columns, [], len(table.rows))
    if found is None:
        hint = f"it has {in_short(table.names)}; name the column of the classes with --label"
        raise AlchemyError(f"{table.path} has no column of labels", hint=hint)
    return found


def _is_input(table: SniffedTable, column: ColumnStats) -> bool:
    usable = column.kind == "number" and column.distinct > 1 and not column.blank
    return (
        usable
        and bool(column.name.strip())
        and not is_id(column)
        and all(math.isfinite(float(cell)) for cell in table.column(column.place))
    )


def _places(columns: Iterable[ColumnStats]) -> list[tuple[str, int]]:
    return [(column.name, column.place) for column in columns]


def _count_labels(table: SniffedTable, label: ColumnStats, inputs: Sequence[ColumnStats]) -> Counter[str]:
    """The labels of a split, which must have the columns of the training data where these stand."""
    for name, place in _places([*inputs, label]):
        if place >= len(table.names) or table.names[place] != name:
            raise AlchemyError(f"{table.path} has no column {name!r} where the training data has it")
    labels = count_labels(table.column(label.place))
    if missing := len(table.rows) - sum(labels.values()):
        hint = "fill them in, or take these rows out: alchemy predict --file answers them"
        raise AlchemyError(f"{table.path}: {missing:,} rows have no label in {label.name!r}", hint=hint)
    return labels


def _opener(table: SniffedTable) -> dict[str, Any]:
    """The pipe that reads the file: rows become dicts, named by the header or by their numbers."""
    format = table.layout.format_of(table.path)
    if format not in OPENERS:
        raise AlchemyError(f"{table.path} is {format}", hint=f"points are read from {', '.join(OPENERS)}")
    keys = {name: value for name, value in layout_keys(table).items() if name != "format"}
    if not table.keyed and not table.layout.header:
        keys |= {"header": False, "fields": table.names}
    return {"type": OPENERS[format], **keys, **({"bad": "skip"} if table.bad else {})}


def _read_keys(
    train: SniffedTable, inputs: Sequence[ColumnStats], label: ColumnStats, counts: Mapping[str, Counter[str]]
) -> dict[str, Any]:
    cells = [[float(cell) for cell in train.column(column.place)] for column in inputs]
    return {
        "columns": [column.name for column in inputs],
        "mean": [_rounded(fmean(values)) for values in cells],
        "std": [_rounded(pstdev(values)) for values in cells],
        "label": label.name,
        "labels": sorted({name for labels in counts.values() for name in labels}),
    }


def _rounded(number: float) -> float:
    return float(f"{number:.4g}")


def _show(table: SniffedTable, inputs: Sequence[ColumnStats], label: ColumnStats, labels: Counter[str]) -> list[str]:
    width = max(len(column.name) for column in (*inputs, label))
    lines = [f"{table.path}: {tell_format(table)}"]
    for column in inputs[:10]:
        cells = [float(cell) for cell in table.column(column.place)]
        lines.append(f"  {column.name:<{width}}  input  from {min(cells):g} to {max(cells):g}, mean {fmean(cells):.4g}")
    lines += [f"  .. and {len(inputs) - 10} more columns of numbers"] if len(inputs) > 10 else []
    return [*lines, f"  {label.name:<{width}}  label  {tell_labels(labels)}"]


def _note_columns(table: SniffedTable, columns: Sequence[ColumnStats], used: Sequence[ColumnStats]) -> list[str]:
    notes = []
    for column in columns:
        if column not in used:
            why = (
                "an id"
                if is_id(column) or not column.name.strip()
                else f"{column.blank:,} cells are blank"
                if column.blank
                else ""
            )
            why = why or ("the same in all rows" if column.distinct < 2 else "not all numbers")
            notes.append(f"column {column.name!r} is not used: {why}")
    if table.bad:
        line, text = table.bad[0]
        notes.append(f"{table.path}: {len(table.bad):,} bad rows are skipped, the first at line {line}: {text}")
    return notes
