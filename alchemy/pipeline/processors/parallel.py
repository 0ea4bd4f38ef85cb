"""Processor for parallel text: sentences and their translations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from alchemy.constraints import Sign
from alchemy.data.files import check_file, lines_of
from alchemy.data.messages import shorten
from alchemy.data.tables import BadRow, FormatName, OnBad, OpenTable, Rows, TableFormat, is_blank, open_table
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.samples import FromFiles, convert_rows


@DataPipeline.register()
class ParallelText(FromFiles, LstDataPipeline):
    """Reads files aligned by line, `path = ["train.en", "train.de"]`, or one table with a column per text.

    A sample has a text for each of `names`. All files must have the same number of lines. An empty text makes a row bad
    unless `empty = true`. `source` and `target` are table columns, by name or index; `columns` sets the columns of
    other `names`. The default columns are those named in `names`, or else the first ones.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        source: str | int | None = None,
        target: str | int | None = None,
        names: list[str] = ["source", "target"],
        columns: list[str | int] | None = None,
        empty: bool = False,
        format: FormatName = "",
        delimiter: Sign = "",
        header: bool | None = None,
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        columns = [source, target] if source is not None and target is not None else columns
        self.path, self.names, self.columns, self.empty, self.encoding = path, names, columns, empty, encoding
        if isinstance(path, list):
            files = [check_file(file) for file in path]
            self.fill(files[0], lambda _: convert_rows(_align_lines(files, encoding), self._sample), bad)
        else:
            layout = TableFormat(format, delimiter, encoding=encoding)
            self.fill(path, lambda file: self._read_table(*self._open_table(file, layout, header)), bad)

    def _open_table(
        self, path: Path, layout: TableFormat, header: bool | None
    ) -> tuple[OpenTable, Sequence[str | int]]:
        """Open a table and return it with the columns to read."""
        if self.columns:
            named = not all(isinstance(place, int) for place in self.columns)
            return open_table(path, replace(layout, header=named if header is None else header)), self.columns
        first = open_table(path, replace(layout, header=header is not False))
        if first.keyed or all(map(first.has, self.names)):
            return first, self.names
        if header is None and layout.format_of(path) == "csv":
            hint = "set the columns to read, or header = false if the first row is not a header"
            raise AlchemyError(f"no columns {' and '.join(self.names)}", where=f"{path}:1", hint=hint)
        return open_table(path, replace(layout, header=bool(header))), range(len(self.names))

    def _read_table(self, table: OpenTable, places: Sequence[str | int]) -> Rows:
        cells = [table.cell(place) for place in places]
        return convert_rows(table.rows, lambda row: self._sample([cell(row) for cell in cells]))

    def _sample(self, texts: Sequence[Any]) -> dict[str, Any]:
        for name, text in zip(self.names, texts, strict=True):
            if not isinstance(text, str):
                raise BadRow(f"the {name} is {shorten(text)}, expected a string")
            if not self.empty and is_blank(text):
                raise BadRow(f"the {name} is empty; set empty = true to allow this")
        return dict(zip(self.names, texts, strict=True))


def _align_lines(files: list[Path], encoding: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Yield `(line, texts)` for each line of aligned files; raise if the files differ in their number of lines."""
    sides = [lines_of(file, encoding) for file in files]
    counts = [len(side) for side in sides]
    if len(set(counts)) > 1:
        shortest = files[counts.index(min(counts))]
        counted = ", ".join(f"{file} {count}" for file, count in zip(files, counts, strict=True))
        raise AlchemyError(
            f"the files have different numbers of lines: {counted}",
            where=f"{shortest}:{min(counts)}",
            hint="a line is missing or extra: compare the files backwards, starting from the last line of the shortest",
        )
    yield from enumerate(zip(*sides, strict=True), 1)
