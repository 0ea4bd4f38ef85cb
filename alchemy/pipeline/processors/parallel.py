"""Sentences and their translations, line by line."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from alchemy.data.files import check_file
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.openers import BadRow, check_bad, good
from alchemy.pipeline.processors.samples import Rows, count_of, fill, hold, lines_of, sample_of, tried
from alchemy.pipeline.processors.tables import Layout, open_table


@DataPipeline.register()
class ParallelText(LstDataPipeline):
    """Files that belong together line by line, `path = ["train.en", "train.de"]`, or one table with a column a side.

    A sample has a text for each of `names`. The sides must have equally many lines. An empty side makes a row bad
    unless `empty = true`.
    """

    begins = True
    __getitem__, __len__ = sample_of, count_of

    def __init__(
        self,
        path: str | list[str],
        *,
        names: list[str] = ["source", "target"],
        columns: list[str | int] | None = None,
        empty: bool = False,
        format: Literal["", "csv", "tsv", "jsonl", "label text"] = "",
        delimiter: str = "",
        header: bool | None = None,
        encoding: str = "utf-8",
        bad: Literal["error", "skip"] = "error",
    ) -> None:
        super().__init__()
        self.path, self.names, self.columns, self.empty, self.encoding = path, names, columns, empty, encoding
        places: Sequence[str | int] = columns or range(len(names))
        sides = len(path) if isinstance(path, list) else len(places)
        if sides != len(names) or sides < 2 or len(set(names)) < sides:
            hint = "give a list of files with one for each side, and a name for each"
            raise AlchemyError(f"{sides} sides have the names {', '.join(map(repr, names))}", hint=hint)
        if isinstance(path, list):
            files = [check_file(file) for file in path]
            rows = tried(aligned(files, encoding), self._sample)
            hold(self, list(good(files[0], rows, check_bad(bad))), files)
        else:
            header = not all(isinstance(place, int) for place in places) if header is None else header
            layout = Layout(format, delimiter, header=header, encoding=encoding)
            fill(self, path, lambda file: self._table(file, layout, places), bad)

    def _table(self, path: Path, layout: Layout, places: Sequence[str | int]) -> Rows:
        table = open_table(path, layout)
        cells = [table.cell(place) for place in places]
        return tried(table.rows, lambda row: self._sample([cell(row) for cell in cells]))

    def _sample(self, texts: Sequence[Any]) -> dict[str, Any]:
        for name, text in zip(self.names, texts, strict=True):
            if not isinstance(text, str):
                raise BadRow(f"the {name} is {text!r}, expected a text")
            if not self.empty and not text.strip():
                raise BadRow(f"the {name} is empty; where that is meant, set empty = true")
        return dict(zip(self.names, texts, strict=True))


def aligned(files: list[Path], encoding: str) -> Iterator[tuple[int, tuple[str, ...]]]:
    """`(line, texts)` of files side by side; where one ends before the others no row can be trusted."""
    sides = [lines_of(file, encoding) for file in files]
    counts = [len(side) for side in sides]
    if len(set(counts)) > 1:
        shortest = files[counts.index(min(counts))]
        told = ", ".join(f"{file} {count}" for file, count in zip(files, counts, strict=True))
        raise AlchemyError(
            f"the sides have different numbers of lines: {told}",
            where=f"{shortest}:{min(counts)}",
            hint="a line was lost or added: compare the sides backwards from the last line of the shortest",
        )
    yield from enumerate(zip(*sides, strict=True), 1)
