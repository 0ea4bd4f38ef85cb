"""The report of an evaluation: numbers of each class, confusions, the hardest examples, as files of the record."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal

from loguru import logger

from alchemy.constraints import NonNegativeInt
from alchemy.errors import AlchemyError
from alchemy.files import write_atomic
from alchemy.metrics.numbers import numbers_in
from alchemy.pipeline import EvalPipeline
from alchemy.pipeline.eval import place
from alchemy.pipeline.findings import KINDS, Answers, Findings, kind_of
from alchemy.pipeline.pictures import draw_confusion, draw_numbers
from alchemy.pipeline.predictions import PredictionFile
from alchemy.pipeline.rows import to_json
from alchemy.pipeline.tables import aligned
from alchemy.records.labels import labels_file, read_names

PIECES = ("report", "confusion", "picture", "hardest")
GOLD = ("label", "labels", "tags")
LINES = 12  # of a table in the log

Files = dict[str, dict[str, Callable[[], str | bytes]]]  # of each piece, by the end of their names


@EvalPipeline.register()
class Report(EvalPipeline):
    """Writes what an evaluation has shown to `results/<split>_..` of the record, and logs a short table.

    The tasks of alchemy.tasks have one unless `evalpipes` names another: `enabled = false` there leaves it out.
    `pieces` are those to be written, `splits` the splits (none: all), `limit` bounds the hardest examples (0: no
    bound), `predictions` adds a file of all rows. `rows`, `pred` and `label` say where answers stand, `kind` what they
    are, and `names`, `scheme` and `other` what they mean, where neither the rows nor the task tell.
    It never ends a training: what cannot be written is told in a warning, once. Pictures are drawn when the run ends.
    """

    def __init__(
        self,
        *,
        splits: list[str] = [],
        pieces: list[Literal["report", "confusion", "picture", "hardest"]] = list(PIECES),  # type: ignore[arg-type]
        predictions: Literal["", "jsonl", "csv"] = "",
        limit: NonNegativeInt = 100,
        rows: str = "preds",
        pred: str = "pred",
        label: str = "",
        kind: Literal["", "classes", "labels", "tags", "numbers"] = "",
        names: list[str] = [],
        scheme: Literal["", "BIO", "IOB1", "BIOES", "BMES", "BILOU"] = "",
        other: str = "",
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self.splits, self.pieces, self.predictions, self.limit = splits, pieces, predictions, limit
        self.rows, self.pred, self.label, self.kind = rows, pred, label, kind
        self.names, self.scheme, self.other, self.enabled = names, scheme, other, enabled
        self._warned: set[str] = set()
        self._drawings: dict[str, Callable[[], None]] = {}

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.enabled and self.run.group.is_main and (not self.splits or split in self.splits):
            self._do(self._steps(split, kwargs))
        return kwargs

    def _do(self, steps: Iterable[tuple[str, Callable[[], object]]]) -> None:
        for name, do in steps:
            try:
                do()
            except OSError as error:  # as the disk is full for all of them
                self._warn("", f"the report could not be written: {error}")
                return
            except Exception as error:
                self._warn(name, f"there is no {name}: {error}")

    def _steps(self, split: str, kwargs: dict[str, Any]) -> Iterator[tuple[str, Callable[[], object]]]:
        """What is to be done for an evaluation, each with its name."""
        rows, folder = kwargs.get(self.rows) or [], self.run.record_dir
        found: list[Findings] = []
        yield f"report of {split!r}", lambda: found.extend(self._findings(rows))
        for shown in found:
            told = {"split": split, "rows": len(rows), **place(self.run), "scores": numbers_in(kwargs), **shown.tables}
            yield f"table of {split!r}", partial(logger.info, "{}", _in_words(told, LINES))
            if folder is not None:
                yield from self._files(Path(folder) / "results", told, contents(told, shown, self.limit))
        if folder is not None and self.predictions:
            name = f"{split}_predictions.{self.predictions}"
            yield name, partial(PredictionFile(Path(folder) / "results" / name).write, rows)

    def _files(self, folder: Path, told: Mapping[str, Any], made: Files) -> Iterator[tuple[str, Callable[[], object]]]:
        for piece in self.pieces:
            for end, make in made[piece].items():
                name = f"{told['split']}_{end}"
                put = partial(write, folder / name, make)
                yield name, partial(self._draw_later, name, put) if piece == "picture" else put

    def _draw_later(self, name: str, draw: Callable[[], None]) -> None:
        """To draw takes longer than many an evaluation: only the picture of the last one is drawn, as the run ends."""
        if not self._drawings:
            self.run.exits.callback(lambda: self._do(self._drawings.items()))
        self._drawings[name] = draw

    def _findings(self, rows: list[Any]) -> Iterator[Findings]:
        """What the rows show; nothing where they do not have the truth."""
        if not rows or not isinstance(rows[0], Mapping) or self.pred not in rows[0]:
            hint = "put Accuracy before it, and Collect among the outputpipes"
            raise AlchemyError(f"no pipe before Report gave {self.rows!r}, rows with {self.pred!r}", hint=hint)
        gold = self.label or next((name for name in GOLD if name in rows[0]), "")
        known = [row for row in rows if gold in row]
        if known:
            kind, task = self.kind or kind_of(gold, known[0][self.pred]), self.run.task
            scheme = self.scheme or getattr(getattr(task, "scheme", None), "name", "BIO")
            other = self.other or getattr(task, "other", "")
            yield KINDS[kind](Answers(known, gold, self.pred, self._labels(), scheme, other))

    def _labels(self) -> list[str]:
        """The names of the labels, in their order: told, those of the task, or those that the record keeps."""
        found = self.names or getattr(self.run.task, "labels", None)
        file = labels_file(self.run.record_dir or "", "label_id")
        if found is None and self.run.record_dir is not None and file.is_file():
            found = read_names(file)
        return [name for name in found or () if isinstance(name, str)]

    def _warn(self, name: str, text: str) -> None:
        if name not in self._warned:
            self._warned.add(name)
            logger.warning("{}", text)


def contents(told: Mapping[str, Any], found: Findings, limit: int) -> Files:
    """The files of each piece, and how their content is made."""
    grid = found.grid
    pictures: dict[str, Callable[[], str | bytes]] = {}
    # kept until the run ends: they hold on to no rows
    if found.counts is not None:
        legend = f"{told['split']}_confusion.csv"
        pictures["confusion.png"] = partial(draw_confusion, found.names, found.counts, legend)
    if found.points is not None:
        pictures["numbers.png"] = partial(draw_numbers, *found.points)
    return {
        "report": {
            "report.json": lambda: json.dumps(finite(told), indent=1, ensure_ascii=False) + "\n",
            "report.txt": lambda: _in_words(told) + "\n",
        },
        "confusion": {"confusion.csv": lambda: _in_csv(grid)} if grid else {},
        "picture": pictures,
        "hardest": {"hardest.jsonl": lambda: "".join(to_json(row) + "\n" for row in found.hardest[: limit or None])},
    }


def write(path: Path, make: Callable[[], str | bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomic(path, make())


def _in_words(told: Mapping[str, Any], most: int = 0) -> str:
    """A report to be read: scores, and the tables below each other; `most` bounds the lines of a table."""
    place = f", update {told['update']}" if "update" in told else ""
    scores = ", ".join(f"{name} {value:.4g}" for name, value in told["scores"].items())
    tables = [(name, value) for name, value in told.items() if isinstance(value, dict) and value and name != "scores"]
    lines = [f"{told['split']}: {told['rows']} rows{place}", *([scores] if scores else [])]
    for name, table in tables:
        lines += ["", *aligned(name, table, most)]
    return "\n".join(lines)


def _in_csv(grid: list[list[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(grid)
    return file.getvalue()


def finite(value: Any) -> Any:
    """What JSON has no word for, as null."""
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
