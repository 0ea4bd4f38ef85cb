"""Detect numeric tables with a label: their input columns with mean and standard deviation, and the opener to use."""

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
    get_column,
    is_id,
)
from alchemy.data.sniff.finding import (
    Finding,
    Hints,
    describe_format,
    format_labels,
    layout_keys,
    merge_keys,
    note_balance,
    note_size,
)
from alchemy.data.sniff.layout import SniffedTable, sniff_table
from alchemy.errors import AlchemyError

OPENERS = {"csv": "CsvOpener", "tsv": "TsvOpener", "jsonl": "JsonlOpener", "parquet": "ParquetOpener"}


@dataclass
class Points(Finding):
    """The result for numeric tables; `shared` contains the arguments of the template's ReadPoint."""

    opener: dict[str, Any] = field(default_factory=dict)


def looks_numeric(table: SniffedTable, label: str = "") -> bool:
    """Return whether all columns, except ids and possibly the label, are numbers.

    A text column is the label if the user chose it or if its values repeat.
    """
    columns = describe_columns(table)
    counted = [column for column in columns if not is_id(column) and column.distinct]
    others = [column for column in counted if column.kind != "number"]
    if len(counted) < 2 or len(others) > 1:
        return False
    if label and others:
        return get_column(columns, label, "--label", table.path) == others[0]
    return not others or (others[0].is_text and others[0].distinct <= len(table.rows) * FEW)


def sniff_points(paths: Mapping[str, list[Path]], asked: Hints) -> Points:
    """Detect the config keys for classifying rows of numbers."""
    tables = {split: sniff_table(files[0], asked.encoding) for split, files in paths.items()}
    train = tables["train"]
    columns = describe_columns(train)
    label = _find_label(train, columns, asked)
    inputs = [column for column in columns if column != label and _is_input(train, column)]
    if not inputs:
        hint = f"available columns: {in_short(train.names)}"
        raise AlchemyError(f"{train.path} has no usable numeric column", hint=hint)
    counts = {split: _count_labels(table, label, inputs) for split, table in tables.items()}
    kind = check_label(train.path, label, counts["train"], len(train.rows), explicit=True)
    if kind != "single":
        text = f"{train.path}: column {label.name!r} has {len(counts['train']):,} values in {len(train.rows):,} rows"
        hint = "choose another column with --label"
        raise AlchemyError(f"{text}, but --kind points is for classification", hint=hint)
    openers = {split: _opener_keys(table) for split, table in tables.items()}
    for split, opener in openers.items():
        if opener != openers["train"]:
            text = f"{tables[split].path} has a different format than {train.path}"
            raise AlchemyError(text, hint="use the same format, encoding and column order for all splits")
    found = Points({}, _read_keys(train, inputs, label, counts), merge_keys(paths, {split: {} for split in tables}))
    found.opener = openers["train"]
    found.sizes = {split: len(table.rows) for split, table in tables.items()}
    found.large = {split for split, table in tables.items() if not table.whole}
    found.shown = _describe(train, inputs, label, counts["train"])
    found.notes = [*note_size(found.sizes["train"]), *note_balance(counts["train"])]
    found.notes += _note_columns(train, columns, [*inputs, label])
    for split, labels in counts.items():
        if unseen := sorted(labels.keys() - counts["train"].keys()):
            found.notes.append(f"{split} has labels that are missing from the training data: {in_short(unseen)}")
    return found


def _find_label(table: SniffedTable, columns: Sequence[ColumnStats], asked: Hints) -> ColumnStats:
    """Return the label column: set by the user, or else a text column, or else a numeric column with a known name."""
    if asked.label:
        return get_column(columns, asked.label, "--label", table.path)
    texts = [column for column in columns if column.is_text]
    found = find_label(texts or columns, [], len(table.rows))
    if found is None:
        hint = f"available columns: {in_short(table.names)}; set the label column with --label"
        raise AlchemyError(f"{table.path} has no label column", hint=hint)
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
    """Count the labels of a split; raise if its columns differ from the training data."""
    for name, place in _places([*inputs, label]):
        if place >= len(table.names) or table.names[place] != name:
            text = f"{table.path} has no column {name!r} at the same position as in the training data"
            raise AlchemyError(text)
    labels = count_labels(table.column(label.place))
    if missing := len(table.rows) - sum(labels.values()):
        hint = "add the labels, or move these rows to another file for alchemy predict --file"
        raise AlchemyError(f"{table.path}: {missing:,} rows have no label in {label.name!r}", hint=hint)
    return labels


def _opener_keys(table: SniffedTable) -> dict[str, Any]:
    """Return the config of the pipe that reads the file into dicts, keyed by column name or number."""
    format = table.layout.format_of(table.path)
    if format not in OPENERS:
        text = f"{table.path} is a {format} file, which --kind points does not support"
        raise AlchemyError(text, hint=f"supported formats: {', '.join(OPENERS)}")
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
        "mean": [_round(fmean(values)) for values in cells],
        "std": [_round(pstdev(values)) for values in cells],
        "label": label.name,
        "labels": sorted({name for labels in counts.values() for name in labels}),
    }


def _round(number: float) -> float:
    return float(f"{number:.4g}")


def _describe(
    table: SniffedTable, inputs: Sequence[ColumnStats], label: ColumnStats, labels: Counter[str]
) -> list[str]:
    width = max(len(column.name) for column in (*inputs, label))
    lines = [f"{table.path}: {describe_format(table)}"]
    for column in inputs[:10]:
        cells = [float(cell) for cell in table.column(column.place)]
        lines.append(f"  {column.name:<{width}}  input  from {min(cells):g} to {max(cells):g}, mean {fmean(cells):.4g}")
    lines += [f"  .. and {len(inputs) - 10} more numeric columns"] if len(inputs) > 10 else []
    return [*lines, f"  {label.name:<{width}}  label  {format_labels(labels)}"]


def _note_columns(table: SniffedTable, columns: Sequence[ColumnStats], used: Sequence[ColumnStats]) -> list[str]:
    notes = []
    for column in columns:
        if column not in used:
            reason = (
                "an id"
                if is_id(column) or not column.name.strip()
                else f"{column.blank:,} cells are blank"
                if column.blank
                else ""
            )
            reason = reason or ("the same in all rows" if column.distinct < 2 else "not all numbers")
            notes.append(f"column {column.name!r} is not used: {reason}")
    if table.bad:
        line, text = table.bad[0]
        notes.append(f"{table.path}: {len(table.bad):,} bad rows are skipped, the first at line {line}: {text}")
    return notes
