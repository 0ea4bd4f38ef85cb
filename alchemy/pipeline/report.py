"""The report of an evaluation: numbers of each class, confusions, the hardest examples, as files of the record."""

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
from alchemy.pipeline.error_analysis import KINDS, Analysis, Answered, kind_of
from alchemy.pipeline.output import PredictionFile
from alchemy.pipeline.output_rows import record_file, to_json
from alchemy.records.labels import labels_file, read_names

PIECES = ("report", "confusion", "picture", "hardest")
GOLD = ("label", "labels", "tags")
LINES = 12  # of a table in the log


@EvalPipeline.register()
class Report(EvalPipeline):
    """Writes what an evaluation has shown to `results/<split>_..` of the record.

    A short table is logged at the end of a run that only evaluates, or that has no record; after each evaluation it is
    logged as a DEBUG message.

    The tasks of alchemy.tasks have one unless `evalpipes` names another: `enabled = false` there leaves it out.
    `pieces` are those to be written, `splits` the splits (none: all), `limit` bounds the hardest examples (0: no
    bound), `predictions` adds a file of all rows. `rows`, `pred` and `label` say where answers stand, `kind` what they
    are, and `names`, `scheme` and `other` what they mean, where neither the rows nor the task tell.
    It never ends a training: what cannot be written is told in a warning, once. Pictures are drawn when the run ends.
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
        self._drawings: dict[Path, Callable[[], bytes]] = {}
        self._tables: dict[str, str] = {}  # of each split, to be logged at the end

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.enabled and self.run.group.is_main and (not self.splits or split in self.splits):
            rows, name = kwargs.get(self.rows) or [], f"{split}_predictions.{self.predictions}"
            with self._tell_failure(f"report of {split!r}"):
                self._report(split, rows, numbers_in(kwargs))
            with self._tell_failure(name):
                if self.predictions and (path := record_file(self.run, f"results/{name}")) is not None:
                    PredictionFile(path).write(rows)
        return kwargs

    @contextmanager
    def _tell_failure(self, name: str) -> Iterator[None]:
        """What fails inside is told in a warning, once; all that a full disk refuses is one failure."""
        try:
            yield
        except Exception as error:
            disk = isinstance(error, OSError) or isinstance(error.__cause__, OSError)
            told = "the report could not be written" if disk else f"there is no {name}"
            if told not in self._warned:
                self._warned.add(told)
                logger.warning("{}: {}", told, error)

    def _report(self, split: str, rows: list[Any], scores: dict[str, float]) -> None:
        found, run = self._analysis(rows), self.run
        if found is None:
            return
        sched = run.train_sched
        place = {} if sched is None else {"epoch": sched.cur_epoch, "step": sched.cur_step, "update": run.update}
        told = {"split": split, "rows": len(rows), **place, "scores": scores, **found.tables}
        table = _in_words({**told, "scores": {}}, LINES)  # which have a line of their own in the log
        logger.debug("{}", table)
        if sched is None or run.record_dir is None:
            self._at_end()
            self._tables[split] = table
        if "report" in self.pieces:
            self._write(f"{split}_report.json", json.dumps(_finite(told), indent=1, ensure_ascii=False) + "\n")
            self._write(f"{split}_report.txt", _in_words(told) + "\n")
        if "confusion" in self.pieces and found.grid:
            self._write(f"{split}_confusion.csv", _in_csv(found.grid))
        if "picture" in self.pieces and found.draw is not None:
            self._draw_later(f"{split}_{found.picture}.png", partial(found.draw, f"{split}_confusion.csv"))
        if "hardest" in self.pieces:
            hardest = found.hardest[: self.limit or None]
            self._write(f"{split}_hardest.jsonl", "".join(to_json(row) + "\n" for row in hardest))

    def _write(self, name: str, text: str) -> None:
        path = record_file(self.run, f"results/{name}")
        if path is not None:
            write_atomic(path, text)

    def _draw_later(self, name: str, draw: Callable[[], bytes]) -> None:
        """To draw takes longer than many an evaluation: only the picture of the last one is drawn, as the run ends."""
        path = record_file(self.run, f"results/{name}")
        if path is not None:
            self._at_end()
            self._drawings[path] = draw

    def _at_end(self) -> None:
        if not self._drawings and not self._tables:
            self.run.exits.callback(self._finish)

    def _finish(self) -> None:
        for table in self._tables.values():
            logger.info("{}", table)
        for path, draw in self._drawings.items():
            with self._tell_failure(path.name):
                write_atomic(path, draw())

    def _analysis(self, rows: list[Any]) -> Analysis | None:
        """What the rows show; nothing where they do not have the truth."""
        if not rows or not isinstance(rows[0], Mapping) or self.pred not in rows[0]:
            hint = "put Accuracy before it, and Collect among the outputpipes"
            raise AlchemyError(f"no pipe before Report gave {self.rows!r}, rows with {self.pred!r}", hint=hint)
        gold = self.label or next((name for name in GOLD if name in rows[0]), "")
        known = [row for row in rows if gold in row]
        if not known:
            return None
        kind, task = self.kind or kind_of(gold, known[0][self.pred]), self.run.task
        told = {} if task is None else task.report_options()
        scheme, other = self.scheme or told.get("scheme", "BIO"), self.other or told.get("other", "")
        return KINDS[kind](Answered(known, gold, self.pred, self._labels(), scheme, other))

    def _labels(self) -> list[str]:
        """The names of the labels, in their order: told, those of the task, or those that the record keeps."""
        found = self.names or (self.run.task.labels if self.run.task is not None else ())
        if not found and self.run.record_dir is not None:
            file = labels_file(self.run.record_dir, "label_id")
            found = read_names(file) if file.is_file() else ()
        return [name for name in found if isinstance(name, str)]


def _in_words(told: Mapping[str, Any], most: int = 0) -> str:
    """A report to be read: scores, and the tables below each other; `most` bounds the lines of a table."""
    place = f", update {told['update']}" if "update" in told else ""
    scores = ", ".join(f"{name} {show(value)}" for name, value in told["scores"].items())
    tables = [(name, value) for name, value in told.items() if isinstance(value, dict) and value and name != "scores"]
    lines = [f"{told['split']}: {told['rows']} rows{place}", *([scores] if scores else [])]
    for name, table in tables:
        lines += ["", *_aligned(name, table, most)]
    return "\n".join(lines)


def _aligned(title: str, table: Mapping[str, Mapping[str, float]], most: int = 0) -> list[str]:
    """The lines of a table, one for each name; of a long one the `most` with the lowest F1 (0: all of them).

    >>> print("\\n".join(_aligned("classes", {"体育": {"f1": 0.5, "support": 12}, "b": {"f1": 1.0, "support": 3}})))
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


def _in_csv(grid: list[list[Any]]) -> str:
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(grid)
    return file.getvalue()


def _finite(value: Any) -> Any:
    """What JSON has no word for, as null."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
