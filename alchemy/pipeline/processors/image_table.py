"""Processor for tables with the path of an image and its label in each row."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from alchemy.constraints import FiniteFloat, PositiveInt, Sign
from alchemy.data.tables import BadRow, FormatName, OnBad, Rows, TableFormat, open_table
from alchemy.errors import AlchemyError
from alchemy.images.read_image import check_image
from alchemy.optional_packages import import_package
from alchemy.pipeline import DataPipeline, LstDataPipeline
from alchemy.pipeline.processors.classification import label_fields, text_field
from alchemy.pipeline.processors.image_files import Check, ImageReader
from alchemy.pipeline.processors.labels import keep_labels, read_labels, target_of
from alchemy.pipeline.processors.samples import FromFiles, Sample, convert_rows


@DataPipeline.register()
class ImageTable(FromFiles, LstDataPipeline):
    """Reads images whose paths and labels are in a csv, tsv or jsonl file; Pillow opens them on access.

    A sample has `image` and `file`, and `label` and `label_id` as in `TextClassification`, or a number as `label`
    (`kind = "regression"`). `file` is the column of the paths, which are relative to `folder`, by default the folder of
    the table. Images are read and checked as in `ImageFolder`; a row whose file is missing or damaged is a bad row.
    """

    packages = ("PIL",)

    def __init__(
        self,
        path: str | list[str],
        *,
        file: str | int = "file",
        label: str | int | None = None,
        labels: list[str] | str | None = None,
        label_by: Literal["name", "index"] = "name",
        kind: Literal["single", "regression"] = "single",
        folder: str = "",
        format: FormatName = "",
        delimiter: Sign = "",
        quote: Sign | None = None,
        header: bool | None = None,
        encoding: str = "utf-8",
        mode: str = "RGB",
        size: tuple[PositiveInt, PositiveInt] | None = None,
        limits: tuple[FiniteFloat, FiniteFloat] | None = None,
        scale: bool = False,
        check: Check = "headers",
        bad: OnBad = "error",
    ) -> None:
        super().__init__()
        import_package("PIL.Image", "ImageTable")
        self.path, self.file, self.label, self.kind, self.folder = path, file, label, kind, folder
        self.reader, self.check = ImageReader(mode, size, limits, scale), "pixels" if bad == "skip" else check
        self.known = read_labels(labels, label_by)
        self.labels = self.known.names
        header = not isinstance(file, int) if header is None else header
        self.layout = TableFormat(format, delimiter, quote, header, encoding)
        self.fill(path, self._read, bad)
        self.gives = {"image": "ndarray", **(self.gives or {})}
        keep_labels(self.labels, "label_id")

    def _read(self, path: Path) -> Rows:
        table = open_table(path, self.layout)
        base = Path(self.folder).expanduser() if self.folder else path.parent
        parse = self.known.single if self.kind == "single" else lambda cell: {"label": target_of(cell)}
        name, label = text_field("file", table.cell(self.file)), label_fields(table, self.label, parse)
        return convert_rows(table.rows, lambda row: {**self._check(base, name(row)["file"]), **label(row)})

    def _check(self, base: Path, name: str) -> dict[str, Any]:
        file = base / name.strip()
        if not file.is_file():
            raise BadRow(
                f"the file {str(file)!r} does not exist: paths are relative to {str(base)!r}; set folder to another one"
            )
        try:
            if self.check != "none":
                check_image(file, pixels=self.check == "pixels")
        except AlchemyError as error:
            raise BadRow(error.problem.message) from error
        return {"file": str(file)}

    def __getitem__(self, index: int) -> Sample:
        sample = self.samples[index]
        return {"image": self.reader(sample["file"]), **sample}
