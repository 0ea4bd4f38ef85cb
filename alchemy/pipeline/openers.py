"""Pipes that open text, csv, tsv, jsonl and parquet files, plain or compressed, and yield their rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from loguru import logger

from alchemy.constraints import FileNames, OneCharacter, Sign
from alchemy.data.files import expand, read_lines
from alchemy.data.parquet import open_parquet
from alchemy.data.pipe_chain import worker_share
from alchemy.data.tables import BadRow, OnBad, Rows, csv_rows, json_rows
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, ItrDataPipeline, LstDataPipeline


@DataPipeline.register("TxtOpener")
class LineOpener(ItrDataPipeline):
    """Yields the lines of text files without line endings."""

    def __init__(self, datapipe: FileNames, *, encoding: str = "utf-8", skip_empty: bool = False) -> None:
        super().__init__(_check_files(datapipe))
        self.encoding, self.skip_empty = encoding, skip_empty

    def __iter__(self) -> Iterator[str]:
        for path in paths(self.datapipe):
            for _, line in read_lines(path, encoding=self.encoding):
                if line or not self.skip_empty:
                    yield line


TxtOpener = LineOpener


@DataPipeline.register()
class JsonlOpener(ItrDataPipeline):
    """Yields one JSON value per line and skips empty lines; `bad = "skip"` also skips invalid JSON."""

    def __init__(self, datapipe: FileNames, *, encoding: str = "utf-8", bad: OnBad = "error") -> None:
        super().__init__(_check_files(datapipe))
        self.encoding, self.bad = encoding, bad

    def __iter__(self) -> Iterator[Any]:
        for path in paths(self.datapipe):
            yield from (value for _, value in good_rows(path, json_rows(path, self.encoding), self.bad))


@DataPipeline.register()
class CsvOpener(ItrDataPipeline):
    """Yields rows of csv files as dicts keyed by the header or `fields`, or as lists if there is neither."""

    def __init__(
        self,
        datapipe: FileNames,
        *,
        delimiter: Annotated[str, OneCharacter()] = ",",
        quote: Sign = '"',
        header: bool = True,
        fields: list[str] | None = None,
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__(_check_files(datapipe))
        self.delimiter, self.quote, self.header, self.fields = delimiter, quote, header, fields
        self.encoding, self.bad = encoding, bad

    def __iter__(self) -> Iterator[Any]:
        for path in paths(self.datapipe):
            rows = csv_rows(path, self.delimiter, self.quote, self.encoding)
            named = _name_fields(path, rows, self.header, self.fields)
            yield from (row for _, row in good_rows(path, named, self.bad))


@DataPipeline.register()
class TsvOpener(ItrDataPipeline):
    """CsvOpener for tab-separated files, without a quote character unless `quote` sets one."""

    def __init__(
        self,
        datapipe: FileNames,
        *,
        quote: Sign = "",
        header: bool = True,
        fields: list[str] | None = None,
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__(_check_files(datapipe))
        self.quote, self.header, self.fields, self.encoding, self.bad = quote, header, fields, encoding, bad

    def __iter__(self) -> Iterator[Any]:
        for path in paths(self.datapipe):
            rows = csv_rows(path, "\t", self.quote, self.encoding)
            named = _name_fields(path, rows, self.header, self.fields)
            yield from (row for _, row in good_rows(path, named, self.bad))


@DataPipeline.register()
class ParquetOpener(ItrDataPipeline):
    """Yields rows of parquet files as dicts; `columns` limits which columns are read."""

    packages = ("pyarrow",)

    def __init__(self, datapipe: FileNames, *, columns: list[str] | None = None) -> None:
        super().__init__(_check_files(datapipe))
        self.columns = columns

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for path in paths(self.datapipe):
            with open_parquet(path) as file:
                self._check_columns(path, file.schema_arrow.names)
                for batch in file.iter_batches(batch_size=1024, columns=self.columns):
                    yield from batch.to_pylist()

    def __len__(self) -> int:
        total = 0
        for path in paths(self.datapipe):
            with open_parquet(path) as file:
                total += file.metadata.num_rows
        return total

    def _check_columns(self, path: Path, names: list[str]) -> None:
        missing = [name for name in self.columns or () if name not in names]
        if missing:
            raise AlchemyError(f"{path} has no column {missing[0]!r}", hint=f"it has {', '.join(names)}")


OPENERS = (LineOpener, JsonlOpener, CsvOpener, TsvOpener, ParquetOpener)


def paths(source: Any) -> Iterator[Path]:
    """Yield the files of a source, with patterns expanded."""
    for name in [source] if isinstance(source, str | Path) else source:
        yield from expand(name)


def _check_files(source: Any) -> Any:
    """Return the source; raise if its files are known in advance and are missing or all empty."""
    if isinstance(source, str | Path | list | tuple | LstDataPipeline):
        files = list(paths(source))
        if files and all(file.is_file() and not file.stat().st_size for file in files):  # a named pipe has no size
            every = f"all {len(files)} files are empty, for example {files[0]}"
            named = f"{files[0]} is empty" if len(files) == 1 else every
            raise AlchemyError(named, hint="use a file with at least one row")
    return source


def good_rows(path: Path, rows: Rows, bad: str) -> Iterator[tuple[int, Any]]:
    """Yield the well-formed rows; on a bad row, raise with its file and line, or count and skip it."""
    skipped: list[int] = []
    for line, row in rows:
        if not isinstance(row, BadRow):
            yield line, row
        elif bad == "skip":
            skipped.append(line)
        else:
            raise AlchemyError(str(row), where=f"{path}:{line}", hint='fix the row, or set bad = "skip"') from row
    if skipped and worker_share()[0] == 0:  # every worker reads the file; only one of them logs
        logger.warning("{}: skipped {} bad rows, the first at line {}", path, len(skipped), skipped[0])


def _name_fields(path: Path, rows: Rows, header: bool, fields: list[str] | None) -> Iterator[tuple[int, Any]]:
    """Convert rows of cells to dicts; a row with too many or too few cells becomes a BadRow."""
    names = _check_names(fields or [], "fields") or None
    for line, row in rows:
        if header:
            header = False
            if isinstance(row, BadRow) and names is None:
                raise AlchemyError(str(row), where=f"{path}:{line}", hint="the first row must be the header")
            names = names or _check_names(row, f"{path}:{line}")
        elif isinstance(row, BadRow) or names is None:
            yield line, row
        elif len(row) != len(names):
            yield line, BadRow(f"expected {len(names)} cells ({', '.join(names)}), got {len(row)}")
        else:
            yield line, dict(zip(names, row, strict=True))


def _check_names(names: list[str], where: str) -> list[str]:
    """Return the column names; raise on duplicates, since one column would overwrite the other."""
    twice = next((name for name in names if name and names.count(name) > 1), None)
    if twice is not None:
        hint = "rename one, or set `fields` to name all columns"
        raise AlchemyError(f"duplicate column {twice!r}", where=where, hint=hint)
    return names
