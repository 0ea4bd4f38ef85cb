"""An evaluation pipe that writes a report to the record: per-class metrics, confusions, hardest examples."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Literal

from loguru import logger
from rich.cells import cell_len, set_cell_size

from alchemy.constraints import NonNegativeInt
from alchemy.errors import AlchemyError
from alchemy.files import write_atomic
from alchemy.metrics.scalars import numbers_in, show
from alchemy.pipeline import EvalPipeline
from alchemy.pipeline.error_analysis import KINDS, Analysis, PredictionRows, describe_spans, kind_of
from alchemy.pipeline.output import PredictionFile
from alchemy.pipeline.output_rows import record_file, to_json
from alchemy.records.labels import labels_file, read_names

PIECES = ("report", "confusion", "picture", "hardest")
GOLD = ("label", "labels", "tags")
LINES = 12  # maximum number of table rows in the log
HARDEST = 20  # rows in the media table of the hardest examples


@EvalPipeline.register()
class Report(EvalPipeline):
    """Writes an evaluation report to `results/<split>_..` in the record.

    A short table is logged at DEBUG level after each evaluation, and at INFO level at the end of a run that only
    evaluates or has no record.

    The tasks in alchemy.tasks add a Report by default; to change or disable it, list one in `evalpipes`, for example
    with `enabled = false`. `pieces` selects the files to write and `splits` the splits (empty: all). `limit` is the
    maximum number of hardest examples (0: no limit), and `predictions` adds a file with all rows. `media` also logs the
    confusion matrix and the hardest examples of every evaluation as media. `rows`, `pred` and `label` name the rows and
    their fields. `kind`, `names`, `scheme` and `other` describe the predictions if the rows
    and the task do not. A failing report never aborts training: it logs a warning once. Plots are drawn when the run
    ends.
    """

    produces = ()

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
        kind: Literal["", "classes", "labels", "tags", "words", "numbers", "masks"] = "",
        names: list[str] = [],
        scheme: Literal["", "BIO", "IOB1", "BIOES", "BMES", "BILOU"] = "",
        other: str = "",
        media: bool = True,
        enabled: bool = True,
    ) -> None:
        super().__init__()
        self.splits, self.pieces, self.predictions, self.limit = splits, pieces, predictions, limit
        self.rows, self.pred, self.label, self.kind = rows, pred, label, kind
        self.names, self.scheme, self.other, self.media, self.enabled = names, scheme, other, media, enabled
        self._warned: set[str] = set()
        self._drawings: dict[Path, Callable[[], bytes]] = {}
        self._tables: dict[str, str] = {}  # by split, logged at the end of the run

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.enabled and self.run.group.is_main and (not self.splits or split in self.splits):
            rows, name = kwargs.get(self.rows) or [], f"{split}_predictions.{self.predictions}"
            with self._warn_on_failure(f"report of {split!r}"):
                self._report(split, rows, numbers_in(kwargs))
            with self._warn_on_failure(name):
                if self.predictions and (path := record_file(self.run, f"results/{name}")) is not None:
                    PredictionFile(path).write(rows)
        return kwargs

    @contextmanager
    def _warn_on_failure(self, name: str) -> Iterator[None]:
        """Turn an exception into a warning, logged once; all disk errors share one warning."""
        try:
            yield
        except Exception as error:
            disk = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
            message = "cannot write the report" if disk else f"cannot create {name}"
            if message not in self._warned:
                self._warned.add(message)
                logger.warning("{}: {}", message, error)

    def _report(self, split: str, rows: list[Any], scores: dict[str, float]) -> None:
        found, run = self._analyze(rows), self.run
        if found is None:
            return
        sched = run.train_sched
        place = {} if sched is None else {"epoch": sched.cur_epoch, "step": sched.cur_step, "update": run.update}
        report = {"split": split, "rows": len(rows), **place, "scores": scores, **found.tables}
        table = _format_report({**report, "scores": {}}, LINES)  # the log already has a line with the metrics
        logger.debug("{}", table)
        if sched is None or run.record_dir is None:
            self._register_finish()
            self._tables[split] = table
        if "report" in self.pieces:
            self._write(f"{split}_report.json", json.dumps(_finite(report), indent=1, ensure_ascii=False) + "\n")
            self._write(f"{split}_report.txt", _format_report(report) + "\n")
        if "confusion" in self.pieces and found.grid:
            self._write(f"{split}_confusion.csv", _to_csv(found.grid))
        if "picture" in self.pieces and found.draw is not None:
            self._draw_later(f"{split}_{found.picture}.png", partial(found.draw, f"{split}_confusion.csv"))
        if self.media:
            self._log_media(split, found)
        if "hardest" in self.pieces:
            hardest = found.hardest[: self.limit or None]
            self._write(f"{split}_hardest.jsonl", "".join(to_json(row) + "\n" for row in hardest))

    def _log_media(self, split: str, found: Analysis) -> None:
        if found.confusion is not None:
            self.run.log_confusion(f"{split}/confusion", *found.confusion)
        rows = [describe_spans(row) if found.are_spans else row for row in found.hardest[:HARDEST]]
        first = rows[0] if rows else {"no wrong predictions": ""}  # replaces the table of the evaluation before
        columns = [name for name, value in first.items() if isinstance(value, str | int | float | list | tuple)]
        self.run.log_table(f"{split}/hardest", columns, [[row.get(name) for name in columns] for row in rows])

    def _write(self, name: str, text: str) -> None:
        path = record_file(self.run, f"results/{name}")
        if path is not None:
            write_atomic(path, text)

    def _draw_later(self, name: str, draw: Callable[[], bytes]) -> None:
        """Draw the plot of the last evaluation when the run ends, since drawing can take longer than an evaluation."""
        path = record_file(self.run, f"results/{name}")
        if path is not None:
            self._register_finish()
            self._drawings[path] = draw

    def _register_finish(self) -> None:
        if not self._drawings and not self._tables:
            self.run.exits.callback(self._finish)

    def _finish(self) -> None:
        for table in self._tables.values():
            logger.info("{}", table)
        for path, draw in self._drawings.items():
            with self._warn_on_failure(path.name):
                write_atomic(path, draw())

    def _analyze(self, rows: list[Any]) -> Analysis | None:
        """Analyze the rows; return None if they have no gold values."""
        options = {} if self.run.task is None else self.run.task.report_options()
        pred = options.get("pred", self.pred) if self.pred == "pred" else self.pred
        if not rows or not isinstance(rows[0], Mapping) or pred not in rows[0]:
            hint = "put Accuracy before it, and add Collect to the outputpipes"
            raise AlchemyError(f"no pipe before Report returned rows with {pred!r} as {self.rows!r}", hint=hint)
        gold = self.label or options.get("label") or next((name for name in GOLD if name in rows[0]), "")
        known = [row for row in rows if gold in row]
        if not known:
            return None
        kind = self.kind or options.get("kind") or kind_of(gold, known[0][pred])
        scheme, other = self.scheme or options.get("scheme", "BIO"), self.other or options.get("other", "")
        return KINDS[kind](PredictionRows(known, gold, pred, self._labels(), scheme, other))

    def _labels(self) -> list[str]:
        """Return the label names in order: from the config, the task or the record."""
        found = self.names or (self.run.task.labels if self.run.task is not None else ())
        if not found and self.run.record_dir is not None:
            file = labels_file(self.run.record_dir, "label_id")
            found = read_names(file) if file.is_file() else ()
        return [name for name in found if isinstance(name, str)]


def _format_report(report: Mapping[str, Any], most: int = 0) -> str:
    """Format a report as text: the metrics, then the tables with at most `most` rows each."""
    place = f", update {report['update']}" if "update" in report else ""
    scores = ", ".join(f"{name} {show(value)}" for name, value in report["scores"].items())
    tables = [(name, value) for name, value in report.items() if isinstance(value, dict) and value and name != "scores"]
    lines = [f"{report['split']}: {report['rows']} rows{place}", *([scores] if scores else [])]
    for name, table in tables:
        lines += ["", *_format_table(name, table, most)]
    return "\n".join(lines)


def _format_table(title: str, table: Mapping[str, Mapping[str, float]], most: int = 0) -> list[str]:
    """Format a table with aligned columns; a long table shows only the `most` rows with the lowest F1 (0: all rows).

    >>> table = {"体育": {"f1": 0.5, "support": 12}, "b": {"f1": 1.0, "support": 3}}
    >>> print("\\n".join(_format_table("classes", table)))
    classes      f1  support
    体育     0.5000       12
    b        1.0000        3
    """
    rows = list(table.items())
    if most and len(rows) > most:
        rows = sorted(rows, key=lambda row: row[1].get("f1", 0.0))[:most]
        title = f"{title}, the lowest {most} of {len(table)}"
    cells = [[f"{value:.4f}" if isinstance(value, float) else str(value) for value in row.values()] for _, row in rows]
    lines = [[title, *rows[0][1]], *([name, *line] for (name, _), line in zip(rows, cells))]
    sizes = [max(map(cell_len, column)) for column in zip(*lines)]
    return [
        "  ".join([set_cell_size(first, sizes[0]), *map(str.rjust, rest, sizes[1:])]).rstrip() for first, *rest in lines
    ]


def _to_csv(grid: list[list[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(grid)
    return file.getvalue()


def _finite(value: Any) -> Any:
    """Replace non-finite numbers, which JSON does not support, with null."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
