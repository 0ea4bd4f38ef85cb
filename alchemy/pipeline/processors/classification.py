"""Processor for text classification, multi-label classification and regression data."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from loguru import logger

from alchemy.constraints import NotEmpty, Sign
from alchemy.data.messages import shorten
from alchemy.data.tables import BadRow, FormatName, OnBad, OpenTable, Rows, TableFormat, is_blank, open_table
from alchemy.errors import AlchemyError
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.labels import keep_labels, read_labels, target_of
from alchemy.pipeline.processors.samples import FromFiles, convert_rows

Fields = Callable[[Any], dict[str, Any]]
LABELS = ("label", "labels")  # columns searched for labels


@DataPipeline.register()
class TextClassification(FromFiles, LstDataPipeline):
    """Reads texts or text pairs from csv, tsv or jsonl files, or from lines of the form `label text`.

    A sample has `text`, and `pair` if that column is set. If the file has labels, it also has `label` and `label_id`,
    the lists `labels` and `label_ids` (`kind = "multi"`), or a number as `label` (`kind = "regression"`). Ids
    require `labels`: a list, or a file with one label per line. Columns are header names, or zero-based indices for
    files without a header. `label` defaults to the `label` or `labels` column, if any.
    """

    def __init__(
        self,
        path: str | list[str],
        *,
        text: str | int = "text",
        pair: str | int = "",
        label: str | int | None = None,
        labels: list[str] | str | None = None,
        label_by: Literal["name", "index"] = "name",
        kind: Literal["single", "multi", "regression"] = "single",
        separator: Annotated[str, NotEmpty()] = ",",
        format: FormatName = "",
        delimiter: Sign = "",
        quote: Sign | None = None,
        header: bool | None = None,
        encoding: str = "utf-8",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        self.path, self.text, self.pair, self.label = path, text, pair, label
        self.kind, self.separator = kind, separator
        self.known = read_labels(labels, label_by)
        self.labels = self.known.names
        header = not isinstance(text, int) if header is None else header
        self.layout = TableFormat(format, delimiter, quote, header, encoding)
        self.fill(path, self._read, bad)
        keep_labels(self.labels, "label_ids" if kind == "multi" else "label_id")

    def _read(self, path: Path) -> Rows:
        table = open_table(path, self.layout)
        parts = [text_field("text", table.cell(self.text))]
        if self.pair != "":
            parts.append(text_field("pair", table.cell(self.pair)))
        parts.append(label_fields(table, self.label, self._label_parser()))
        return convert_rows(table.rows, lambda row: {key: value for part in parts for key, value in part(row).items()})

    def _label_parser(self) -> Fields:
        match self.kind:
            case "single":
                return self.known.single
            case "multi":
                return lambda cell: self.known.several(self._split_labels(cell))
        return lambda cell: {"label": target_of(cell)}

    def _split_labels(self, cell: object) -> list[Any]:
        """Return the labels in a cell; an empty cell is valid and means no labels."""
        if isinstance(cell, list):
            return cell
        if not isinstance(cell, str):
            raise BadRow(f"the labels are {shorten(cell)}, expected a list or a string separated by {self.separator!r}")
        if cell.lstrip().startswith("["):
            with contextlib.suppress(ValueError):
                return json.loads(cell)  # tables written from lists contain JSON
        return [part for part in cell.split(self.separator) if part.strip()]


def text_field(name: str, cell: Callable[[Any], Any]) -> Fields:
    """Return a function that reads a text from a row; an empty or non-string value raises BadRow."""

    def field(row: object) -> dict[str, Any]:
        text = cell(row)
        if not isinstance(text, str) or is_blank(text):
            raise BadRow(f"the {name} is {shorten(text)}, expected a non-empty string")
        return {name: text}

    return field


def label_fields(table: OpenTable, label: str | int | None, fields: Fields) -> Fields:
    """Return a function that reads the label fields of a row; it returns no fields for unlabeled data."""
    if (column := _label_column(table, label)) == "":
        return _unlabeled if label is None and table.keyed else lambda row: {}
    cell = table.cell(column)
    return lambda row: fields(cell(row))


def _unlabeled(row: Mapping[str, object]) -> dict[str, Any]:
    """Raise BadRow for a label if the first row has none: the first row determines whether a file is labeled."""
    found = next((name for name in LABELS if name in row), "")
    if found:
        raise BadRow(f"has a {found!r}, but the first row has none: set label = {found!r} or label = ''")
    return {}


def _label_column(table: OpenTable, label: str | int | None) -> str | int:
    """Return the label column, or "" if there is none or labels are disabled."""
    if label is None:
        found = next((name for name in LABELS if table.has(name)), "")
        if not found:
            logger.info("{} has no column 'label' or 'labels': its samples are unlabeled", table.path)
        return found
    if label != "" and table.names and not table.has(label):
        try:
            table.cell(label)
        except AlchemyError as error:
            hint = f'{error.problem.hint}; set label = "" for a file without labels'
            raise AlchemyError(error.problem.message, where=error.problem.where, hint=hint) from error
    return label
