"""Texts with a label, with several labels, or with a number."""

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
LABELS = ("label", "labels")  # the columns in which labels are looked for


@DataPipeline.register()
class TextClassification(FromFiles, LstDataPipeline):
    """Texts, or pairs of texts, of csv, tsv or jsonl files, or of lines `label text`.

    A sample has `text`, `pair` where that column is named, and, unless the file has no labels: `label` and
    `label_id`; with `kind = "multi"` the lists `labels` and `label_ids`; with `kind = "regression"` a number as
    `label`. Ids are there when `labels` is: a list, or a file with one a line. Columns are names of the header, or
    numbers from 0 for files without one. Without `label` the column is `label` or `labels`, if there is such a one.
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
        parts.append(label_fields(table, self.label, self._targets()))
        return convert_rows(table.rows, lambda row: {key: value for part in parts for key, value in part(row).items()})

    def _targets(self) -> Fields:
        match self.kind:
            case "single":
                return self.known.single
            case "multi":
                return lambda cell: self.known.several(self._several(cell))
        return lambda cell: {"label": target_of(cell)}

    def _several(self, cell: object) -> list[Any]:
        """An empty cell is a text without labels, which is well formed."""
        if isinstance(cell, list):
            return cell
        if not isinstance(cell, str):
            raise BadRow(
                f"the labels are {shorten(cell)}, expected a list, or a text with {self.separator!r} between them"
            )
        if cell.lstrip().startswith("["):
            with contextlib.suppress(ValueError):
                return json.loads(cell)  # as tables that were written from lists have them
        return [part for part in cell.split(self.separator) if part.strip()]


def text_field(name: str, cell: Callable[[Any], Any]) -> Fields:
    """Takes a text out of a row; one that is empty, or no text, makes the row a bad one."""

    def field(row: object) -> dict[str, Any]:
        text = cell(row)
        if not isinstance(text, str) or is_blank(text):
            raise BadRow(f"the {name} is {shorten(text)}, expected a text that is not empty")
        return {name: text}

    return field


def label_fields(table: OpenTable, label: str | int | None, fields: Fields) -> Fields:
    """Takes the label out of a row, where the file has labels and they are wanted."""
    if (column := _label_column(table, label)) == "":
        return _unlabeled if label is None and table.keyed else lambda row: {}
    cell = table.cell(column)
    return lambda row: fields(cell(row))


def _unlabeled(row: Mapping[str, object]) -> dict[str, Any]:
    """The first object of a file decides whether it has labels: those of a later one are not dropped in silence."""
    found = next((name for name in LABELS if name in row), "")
    if found:
        raise BadRow(f"has a {found!r}, and the first row has none: give label = {found!r}, or label = ''")
    return {}


def _label_column(table: OpenTable, label: str | int | None) -> str | int:
    """The column of the labels; "" where there is none, or none is wanted."""
    if label is None:
        found = next((name for name in LABELS if table.has(name)), "")
        if not found:
            logger.info("{} has no column 'label' or 'labels': its samples have no label", table.path)
        return found
    if label != "" and table.names and not table.has(label):
        try:
            table.cell(label)
        except AlchemyError as error:
            hint = f'{error.problem.hint}; set label = "" for a file without labels'
            raise AlchemyError(error.problem.message, where=error.problem.where, hint=hint) from error
    return label
