"""Read label lists, convert labels to ids and save them in the record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.context import sym_tbl
from alchemy.data.files import check_file, read_lines
from alchemy.data.messages import in_short, shorten
from alchemy.data.tables import BadRow
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.files import write_json
from alchemy.records.labels import labels_file, read_names


class LabelNames:
    """The labels of a dataset; the id of a label is its position. With `by = "index"`, files contain ids, not names.

    Without a list, every label is accepted and has no id.
    """

    def __init__(self, names: Sequence[str] = (), by: str = "name") -> None:
        self.names, self.by = list(names), by
        self.index = {name: number for number, name in enumerate(names)}
        self.written = {str(number): number for number in range(len(names))} if by == "index" else self.index

    def number(self, cell: object) -> int:
        text = name_of(cell)
        if text in self.written:
            return self.written[text]
        if self.by == "index":
            raise BadRow(f"label {shorten(text)} is not an index from 0 to {len(self.names) - 1}")
        raise BadRow(f"unknown label {shorten(text)}, expected {in_short(self.names)}{self._hint(text)}")

    def single(self, cell: object) -> dict[str, Any]:
        if not self.names:
            return {"label": name_of(cell)}
        number = self.number(cell)
        return {"label": self.names[number], "label_id": number}

    def several(self, cells: Sequence[object]) -> dict[str, Any]:
        if not self.names:
            return {"labels": list(map(name_of, cells))}
        numbers = list(map(self.number, cells))
        return {"labels": [self.names[number] for number in numbers], "label_ids": numbers}

    def numbers(self, field: str, names: Sequence[str]) -> dict[str, list[int]]:
        """Return a field with the ids of several labels, or no field if the labels have no ids."""
        if not self.names:
            return {}
        try:
            return {field: [self.index[name] for name in names]}
        except KeyError:
            return {field: list(map(self.number, names))}  # raises a detailed error

    def _hint(self, text: str) -> str:
        if text.isdecimal():
            return '; if the file has indices, set label_by = "index"'
        near = did_you_mean(text[:100], self.names)
        return f"; {near}" if near else ""


def read_labels(labels: list[str] | str | None, by: str = "name", *, what: str = "labels") -> LabelNames:
    """Return the labels from a list, a file with one label per line, or the JSON file of a record."""
    if labels is None:
        return LabelNames()
    if isinstance(labels, str | Path):
        file = check_file(labels)
        labels = _names_in(file) if file.suffix != ".json" else read_names(file)
    if not isinstance(labels, Iterable):
        hint = f'set {what} = ["good", "bad"], or the path of a file with one name per line'
        raise AlchemyError(f"{what} is {labels!r}, expected a list of names", hint=hint)
    names = [str(name).strip() for name in labels]  # names in files and rows are stripped too
    if not all(names) or not names or len(set(names)) < len(names):
        twice = next((name for name in names if name and names.count(name) > 1), None)
        empty = f"{what} has an empty name" if names else f"{what} is an empty list"
        raise AlchemyError(empty if twice is None else f"{what} has a duplicate: {twice!r}")
    return LabelNames(names, by)


def keep_labels(names: Sequence[str], field: str) -> None:
    """Save the label names for a field's ids in the current run's record."""
    record = sym_tbl().record_dir
    if record is None or not names:
        return
    file = labels_file(record, field)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, list(names))
    elif (there := read_names(file)) != list(names):
        text = "the labels of {!r} are {}, but {} has {}: the same id may mean a different label"
        logger.warning(text, field, in_short(names), file, in_short(there))


def name_of(cell: object) -> str:
    """Return a label as a string; JSON files may contain integers."""
    if isinstance(cell, bool) or not isinstance(cell, str | int):
        raise BadRow(f"the label is {shorten(cell)}, expected a string")
    if not (name := str(cell).strip()):
        raise BadRow("the label is empty")
    return name


def target_of(cell: Any) -> float:
    """Return the regression target in a cell."""
    try:
        number = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f"the label is {shorten(cell)}, expected a finite number")
    return number


def hot(label_ids: Sequence[int], *, size: int) -> list[float]:
    """Convert label ids to a multi-hot vector, as a multi-label loss expects.

    >>> hot([0, 2], size=4)
    [1.0, 0.0, 1.0, 0.0]
    """
    whole = isinstance(label_ids, Iterable) and all(
        isinstance(number, Integral) and not isinstance(number, bool) and 0 <= number < size for number in label_ids
    )
    if not whole:
        text = f"hot: the labels are {shorten(label_ids)}, expected a list of integers from 0 to {size - 1}"
        raise AlchemyError(text, hint="pass the field with the label ids, and the number of labels as size")
    chosen = set(label_ids)
    return [float(number in chosen) for number in range(size)]


def _names_in(path: Path) -> list[str]:
    """Read one name per line; raise on empty lines and duplicates, which would shift the ids of later labels."""
    seen: dict[str, int] = {}
    lines = [(number, line.strip()) for number, line in read_lines(path)]
    while lines and not lines[-1][1]:
        lines.pop()
    for number, name in lines:
        if not name or name in seen:
            what = f"duplicate label {name!r}, first on line {seen[name]}" if name else "the line is empty"
            raise AlchemyError(what, where=f"{path}:{number}", hint="a label file has one name per line")
        seen[name] = number
    if not seen:
        raise AlchemyError(f"{path} has no labels", hint="a label file has one name per line")
    return list(seen)
