"""A table of records in Python: shown in notebooks, or converted to a data frame."""

from __future__ import annotations

import datetime
import html
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from alchemy.errors import printable
from alchemy.index.filters import TIME_FIELDS
from alchemy.index.listing import Listing
from alchemy.index.value_format import format_number
from alchemy.optional_packages import import_package

if TYPE_CHECKING:
    import pandas
    import polars

Value = float | str | datetime.datetime | None


class RecordTable:
    """Columns of fields, config keys and metrics; each row is a record, or runs that differ only in their seed."""

    def __init__(self, columns: Sequence[str], rows: Sequence[Sequence[Value]]) -> None:
        self.columns, self._rows = list(columns), [list(row) for row in rows]

    @classmethod
    def from_listing(cls, listing: Listing) -> RecordTable:
        """Convert a listing: means and standard deviations become separate columns, times become datetimes in UTC."""
        spread = {name for name in listing.columns for line in listing.lines if line.cells[name].deviation is not None}
        folded = any(len(line.runs) > 1 for line in listing.lines) and "runs" not in listing.columns
        columns = [part for name in listing.columns for part in ((name, f"{name} std") if name in spread else (name,))]
        rows: list[list[Value]] = []
        for line in listing.lines:
            row: list[Value] = []
            for name in listing.columns:
                cell = line.cells[name]
                row += [_convert(name, cell.value), cell.deviation] if name in spread else [_convert(name, cell.value)]
            rows.append([*row, float(len(line.runs))] if folded else row)
        return cls([*columns, "runs"] if folded else columns, rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[dict[str, Value]]:
        for row in self._rows:
            yield dict(zip(self.columns, row, strict=True))

    def __getitem__(self, column: str) -> list[Value]:
        """Return the values of a column."""
        place = self.columns.index(column)
        return [row[place] for row in self._rows]

    def to_pandas(self) -> pandas.DataFrame:
        """Return a pandas data frame."""
        frame: pandas.DataFrame = import_package("pandas", "to_pandas()").DataFrame(self._rows, columns=self.columns)
        return frame

    def to_polars(self) -> polars.DataFrame:
        """Return a polars data frame."""
        data = {name: self[name] for name in self.columns}
        frame: polars.DataFrame = import_package("polars", "to_polars()").DataFrame(data, strict=False)
        return frame

    def __repr__(self) -> str:
        lines = [self.columns, *([_show(value) for value in row] for row in self._rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = ("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in lines)
        return "\n".join(row.rstrip() for row in rows)

    def _repr_html_(self) -> str:
        lines = [self.columns, *([_show(value) for value in row] for row in self._rows)]
        return html_table(lines)


def html_table(lines: Sequence[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table with a header, and all text escaped."""
    head, *body = ([html.escape(printable(cell)) for cell in line] for line in lines)
    rows = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in body)
    title = f"<caption>{html.escape(printable(caption))}</caption>" if caption else ""
    return f"<table>{title}<tr>{''.join(f'<th>{cell}</th>' for cell in head)}</tr>{rows}</table>"


def _convert(name: str, value: float | str | None) -> Value:
    if name in TIME_FIELDS and isinstance(value, float):
        return datetime.datetime.fromtimestamp(value, datetime.UTC)
    return value


def _show(value: Value) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime.datetime):
        return value.astimezone().strftime("%Y-%m-%d %H:%M")
    return format_number(value) if isinstance(value, float) else printable(" ".join(value.split()))
