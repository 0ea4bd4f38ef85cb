"""Tasks for --task_name: one class each, which reads the examples of its dataset.

To add a dataset, add a class below::

    @processor("Reviews")
    class Reviews(DataProcessor):
        def get_train_examples(self, data_dir):
            return self.read_csv(data_dir, "train", text="review", label="stars")
        ...
        def get_labels(self):
            return ["bad", "good"]
"""

import csv
import re
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Literal, NamedTuple

from loguru import logger

from alchemy.data.files import open_text
from alchemy.errors import AlchemyError
from alchemy.pipeline.processors import TextClassification

PROCESSORS: dict[str, type["DataProcessor"]] = {}


def processor(name: str) -> Callable[[type["DataProcessor"]], type["DataProcessor"]]:
    """Register a class under a case-insensitive name for --task_name."""

    def register(kind: type["DataProcessor"]) -> type["DataProcessor"]:
        PROCESSORS[name.lower()] = kind
        return kind

    return register


class InputExample(NamedTuple):
    """One or two texts and their label, or None for prediction. `where` is the file and line."""

    guid: str
    text_a: str
    text_b: str | None = None
    label: str | float | None = None
    where: str = ""


class DataProcessor:
    """Base class that reads the examples of a dataset. If `pairs` is set, all examples have a `text_b`."""

    output_mode: ClassVar[Literal["classification", "regression"]] = "classification"
    pairs: ClassVar[bool] = False

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        raise NotImplementedError(f"{type(self).__name__} must define get_train_examples(data_dir)")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        raise NotImplementedError(f"{type(self).__name__} must define get_dev_examples(data_dir)")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        raise NotImplementedError(f"{type(self).__name__} must define get_test_examples(data_dir)")

    def get_labels(self) -> list[str] | None:
        """Return the class names, or None to take them from labels.txt in the data folder or from the training data."""
        return None

    def read_csv(
        self, data_dir: str, name: str, *, text: str | int = "text", pair: str | int = "", label: str | int = ""
    ) -> list[InputExample]:
        """Read `name`.csv or `name`.csv.gz, which has a header; columns are names, or indices from 0."""
        file = table_file(data_dir, name)
        kind: Literal["single", "regression"] = "regression" if self.output_mode == "regression" else "single"
        try:
            rows = TextClassification(str(file), text=text, pair=pair, label=label, kind=kind, header=True)
        except AlchemyError as error:  # drop hints to set config options that no flag can set
            hint = re.sub(r"((, or|;) )?set \w+ = .*", "", error.problem.hint)
            raise AlchemyError(error.problem.message, where=error.problem.where, hint=hint) from error
        return [
            InputExample(f"{name}-{number}", row["text"], row.get("pair"), row.get("label"), rows.where(number))
            for number, row in enumerate(rows)
        ]


@processor("THUNews")
class THUNews(DataProcessor):
    """Chinese news: train.csv and dev.csv have the columns `labels,text`, test.csv has a column `text`."""

    def get_train_examples(self, data_dir: str) -> list[InputExample]:
        return self.read_csv(data_dir, "train", label="labels")

    def get_dev_examples(self, data_dir: str) -> list[InputExample]:
        return self.read_csv(data_dir, "dev", label="labels")

    def get_test_examples(self, data_dir: str) -> list[InputExample]:
        return self.read_csv(data_dir, "test", text=text_column(table_file(data_dir, "test")))


def text_column(file: Path) -> str | int:
    """Return the column `text` of a table; if it is missing, warn and return the first column."""
    with open_text(file, newline="") as lines:
        names = next(csv.reader(lines), [])
    if not names or "text" in names:
        return "text"
    told = "{} has no column 'text': reading the first column, with the first line, {!r}, as its name"
    logger.warning(told, file, names[0])
    return 0


def table_file(data_dir: str, name: str) -> Path:
    """Return the path of `name`.csv or `name`.csv.gz in a data folder."""
    folder = Path(data_dir).expanduser()
    there = next((file for file in (folder / f"{name}.csv", folder / f"{name}.csv.gz") if file.is_file()), None)
    if there is None:
        what = f"{folder} has no {name}.csv or {name}.csv.gz" if folder.is_dir() else f"folder not found: {folder}"
        raise AlchemyError(what, hint="set --data_dir to the folder of the data")
    return there
