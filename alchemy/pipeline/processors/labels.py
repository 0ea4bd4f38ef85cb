"""The labels that a data set knows, and the number of each."""

from __future__ import annotations

import json
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
from alchemy.files import write_atomic
from alchemy.records.labels import labels_file, read_names


class LabelNames:
    """The labels of a data set; the number of a label is its place. With `by = "index"` the files have these numbers.

    Without a list every label is taken as it is, and has no number.
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
        raise BadRow(f"there is no label {shorten(text)}, expected {in_short(self.names)}{self._hint(text)}")

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
        """A field with the numbers of many labels; no field where there are no numbers."""
        if not self.names:
            return {}
        try:
            return {field: [self.index[name] for name in names]}
        except KeyError:
            return {field: list(map(self.number, names))}  # tells what is wrong

    def _hint(self, text: str) -> str:
        if text.isdecimal():
            return '; if the file has indices, set label_by = "index"'
        near = did_you_mean(text[:100], self.names)
        return f"; {near}" if near else ""


def read_labels(labels: list[str] | str | None, by: str = "name", *, what: str = "labels") -> LabelNames:
    """The labels of a list, or of a file: one a line, or JSON as a record keeps it."""
    if labels is None:
        return LabelNames()
    if isinstance(labels, str | Path):
        file = check_file(labels)
        labels = _names_in(file) if file.suffix != ".json" else read_names(file)
    if not isinstance(labels, Iterable):
        hint = f'give {what} = ["good", "bad"], or the name of a file with one a line'
        raise AlchemyError(f"{what} is {labels!r}, expected a list of names", hint=hint)
    names = [str(name).strip() for name in labels]  # as those of a file, and of its rows
    if not all(names) or not names or len(set(names)) < len(names):
        twice = next((name for name in names if name and names.count(name) > 1), None)
        empty = f"{what} has an empty name" if names else f"{what} is an empty list"
        raise AlchemyError(empty if twice is None else f"{what} has {twice!r} twice")
    return LabelNames(names, by)


def keep_labels(names: Sequence[str], field: str) -> None:
    """Puts the names that the numbers of a field stand for into the record of the current run."""
    record = sym_tbl().record_dir
    if record is None or not names:
        return
    file = labels_file(record, field)
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(file, json.dumps(list(names), ensure_ascii=False, indent=1) + "\n")
    elif (there := read_names(file)) != list(names):
        text = "the labels of {!r} are {}, and {} has {}: the same number may stand for another label"
        logger.warning(text, field, in_short(names), file, in_short(there))


def name_of(cell: object) -> str:
    """A label as text: what csv has, and JSON may have."""
    if isinstance(cell, bool) or not isinstance(cell, str | int):
        raise BadRow(f"the label is {shorten(cell)}, expected a text")
    if not (name := str(cell).strip()):
        raise BadRow("the label is empty")
    return name


def target_of(cell: Any) -> float:
    """The target of a regression."""
    try:
        number = math.nan if isinstance(cell, bool) else float(cell)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise BadRow(f"the label is {shorten(cell)}, expected a finite number")
    return number


def hot(label_ids: Sequence[int], *, size: int) -> list[float]:
    """Numbers of labels as zeros and ones, the way a loss over many labels takes them.

    >>> hot([0, 2], size=4)
    [1.0, 0.0, 1.0, 0.0]
    """
    whole = isinstance(label_ids, Iterable) and all(
        isinstance(number, Integral) and not isinstance(number, bool) and 0 <= number < size for number in label_ids
    )
    if not whole:
        text = f"hot: the labels are {shorten(label_ids)}, expected a list of whole numbers from 0 to {size - 1}"
        raise AlchemyError(text, hint="give the field of the numbers, and the number of labels as size")
    chosen = set(label_ids)
    return [float(number in chosen) for number in range(size)]


def _names_in(path: Path) -> list[str]:
    """One name a line; an empty line or a name that was there before would shift the numbers of all others."""
    seen: dict[str, int] = {}
    lines = [(number, line.strip()) for number, line in read_lines(path)]
    while lines and not lines[-1][1]:
        lines.pop()
    for number, name in lines:
        if not name or name in seen:
            what = f"the label {name!r} stands in line {seen[name]} already" if name else "the line is empty"
            raise AlchemyError(what, where=f"{path}:{number}", hint="a file of labels has one name a line")
        seen[name] = number
    if not seen:
        raise AlchemyError(f"{path} has no labels", hint="a file of labels has one name a line")
    return list(seen)
