"""Answers questions with a trained task: questions become samples, samples batches, outputs one answer each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from alchemy.config.tree import Document, Table
from alchemy.context import Run
from alchemy.data.collate import Pad
from alchemy.data.import_named import import_named
from alchemy.data.pipe_chain import read_all
from alchemy.data.pipe_errors import locate_error
from alchemy.data.tables import in_short
from alchemy.errors import AlchemyError
from alchemy.key_rules import BATCH_BUDGETS
from alchemy.pipeline import LstDataPipeline, over_questions, resolve_pipe
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.itr import Batch, BucketBatch
from alchemy.pipeline.lst import ItrToLst, SequenceWrapper
from alchemy.pipeline.openers import OPENERS
from alchemy.pipeline.output_rows import rows_of
from alchemy.task import AlchemyTask
from alchemy.tasks.data_checks import Samples
from alchemy.tasks.text_task import TextTask

PlacedQuestions = list[tuple[str, Any]]  # the place that an error names, and what is asked


class Answers(NamedTuple):
    """The answers to the questions up to the first wrong one, and what is wrong with that."""

    rows: list[dict[str, Any]]
    failure: AlchemyError | None


class Questions(Protocol):
    """Answers questions in the order in which they are asked."""

    def answer(self, asked: PlacedQuestions, batch_size: int) -> Answers: ...


@runtime_checkable
class Askable(Protocol):
    """A task that can be asked: a question becomes a sample, samples what the model reads, and these a batch."""

    @property
    def cfg(self) -> Table: ...
    @property
    def reads(self) -> str: ...
    def question(self, item: object, /) -> dict[str, Any]: ...
    def encoded(self, source: Samples, /) -> Samples: ...
    def collate_options(self) -> dict[str, Any]: ...
    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]: ...


@runtime_checkable
class _Questioned(Protocol):
    """A task of a project that says what a question means, as a row that the pipes read."""

    def question(self, item: object, /) -> Any: ...


def asks_itself(kind: type) -> bool:
    """Whether a class of tasks turns questions into samples itself; others are asked through the pipes of a split."""
    return {"question", "encoded", "collate_options"} <= set(dir(kind))


def takes_rows(document: Document) -> bool:
    """Whether the task of a config is asked with rows that go through its pipes."""
    return not asks_itself(AlchemyTask.resolve_registered_module(str(document.table("task").get("type"))))


def questions_of(run: Run, *, pipes: bool = True) -> Questions:
    """How to ask the task of a run; without `pipes` questions are samples already."""
    task: AlchemyTask = run.task
    return EncodedQuestions(run, task) if isinstance(task, Askable) else PipedQuestions(run, task, pipes=pipes)


class _Source(Sequence[Any]):
    """Samples that know where they come from, as those of a processor do; others take their place when they are asked.

    So that pipes over them are built once.
    """

    def __init__(self) -> None:
        self.samples: list[Any] = []
        self.places: Sequence[str] = ()

    def ask(self, samples: list[Any], places: Sequence[str]) -> None:
        self.samples, self.places = samples, places

    def where(self, index: int) -> str:
        return self.places[index]

    def __getitem__(self, index: Any) -> Any:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)


class EncodedQuestions:
    """Questions to a task that encodes them itself, those of like length together."""

    def __init__(self, run: Run, task: Askable) -> None:
        self.run, self.task, self.longest = run, task, run.model.max_positions()
        self._collate = import_named(_collate_table(task), what="collate_fn")
        self._asked = _Source()
        self._source = _behind_pipes(task, self._asked)

    def answer(self, asked: PlacedQuestions, batch_size: int) -> Answers:
        samples, failure = self._samples(asked)
        rows: list[Any] = [None] * len(samples)
        # texts of like length together: the less padding, the faster
        order = sorted(range(len(samples)), key=lambda place: len(samples[place].get(self.task.reads, ())))
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            batch = self._collate([samples[place] for place in places])
            for place, row in zip(places, _run(self.run, self.task, batch), strict=True):
                rows[place] = row
        return Answers(rows, failure)

    def _samples(self, asked: PlacedQuestions) -> tuple[list[dict[str, Any]], AlchemyError | None]:
        raw: list[Any] = []
        failure = None
        for where, item in asked:
            try:
                raw.append(self.task.question(item))
            except AlchemyError as error:
                failure = AlchemyError(error.problem.message, where=where, hint=error.problem.hint)
                break
        self._asked.ask(raw, [where for where, _ in asked])
        encoded: Samples = self.task.encoded(self._source) if raw else ()
        made: list[dict[str, Any]] = []
        try:
            for place in range(len(raw)):
                made.append(encoded[place])
                self._check_length(made[-1], asked[place][0])
            if isinstance(self.task, TextTask) and raw:
                self.task.warn_of_cuts("questions", encoded)
        except AlchemyError as error:
            return made[:place], error
        except Exception as error:  # of a function that a pipe calls
            told = locate_error(error)
            if told is None:
                raise
            problem = told.problem
            return made[:place], AlchemyError(problem.message, where=asked[place][0], section=problem.section)
        return made, failure

    def _check_length(self, sample: Mapping[str, Any], where: str) -> None:
        length = len(sample.get(self.task.reads, ()))
        if self.longest is not None and length > self.longest:
            way = f', or set task.max_length={self.longest} and task.long="only_first", which cuts it, or "windows"'
            text = f"a text has {length} tokens, and the model takes {self.longest}"
            raise AlchemyError(text, where=where, hint=f"shorten it{way if isinstance(self.task, TextTask) else ''}")


class PipedQuestions:
    """Questions to any other task: rows that go through the pipes of a split behind the one that reads its files.

    Each becomes one sample by itself, so that no answer is mistaken for another's. Pipes that only choose or order
    samples are left out. Without `pipes`, and where a task loads its data without any, questions are samples already.
    """

    def __init__(self, run: Run, task: AlchemyTask, *, pipes: bool = True) -> None:
        self.run, self.task, self._asked = run, task, _Source()
        tables: Mapping[str, Any] = task.cfg.get("datasets") or {}
        names = [name for name in ("test", "dev", "train", *tables) if isinstance(tables.get(name), Mapping)]
        self.split = names[0] if names else ""
        self.section = f"task.datasets.{self.split}"
        table = dict(tables[self.split]) if names else {}
        listed = table.get("pipes") or ()
        behind = _behind_opener(listed) if pipes else []
        if listed:
            table["pipes"] = [{"type": _dotted(_FromQuestions), "source": self._asked}, *behind]
        loaded, options = self._load(table) if names else ([], {})
        self._chain = loaded if listed else self._asked
        self._batched = any(map(_batches, behind))
        self._collate = self._find_collate(options, budget=any(map(_batches, listed)))

    def answer(self, asked: PlacedQuestions, batch_size: int) -> Answers:
        samples: list[Any] = []
        failure = None
        for where, item in asked:
            try:
                samples.append(self._sample(where, item))
            except AlchemyError as error:
                failure = error
                break
        size = 1 if self._batched else batch_size
        rows: list[dict[str, Any]] = []
        for start in range(0, len(samples), size):
            batch = samples[start : start + size]
            rows += self._rows(batch[0] if self._batched else self._collate(batch), len(batch))
        return Answers(rows, failure)

    def _sample(self, where: str, item: Any) -> Any:
        """The sample that the pipes make of a question."""
        row = self.task.question(item) if isinstance(self.task, _Questioned) else item
        self._asked.ask([dict(row) if isinstance(row, Mapping) else row], [where])
        try:
            made = list(read_all(self._chain))
        except Exception as error:  # of a pipe of a project, too
            raise self._told(error, where) from error
        if len(made) != 1:
            hint = "a question becomes one sample: leave such pipes out with alchemy.load(record, pipes=False)"
            text = f"the pipes of the split {self.split!r} make {len(made)} samples of it"
            raise AlchemyError(text, where=where, section=self.section, hint=hint)
        return made[0]

    def _told(self, error: Exception, where: str) -> AlchemyError:
        """What went wrong in a pipe, and the ways out."""
        culprit = error if isinstance(error, AlchemyError) else locate_error(error)
        told = culprit.problem.message if culprit is not None else f"{type(error).__name__}: {error}"
        hint = (
            f"a question is a row as the pipes of the split {self.split!r} read it; give what is missing, let the pipe "
            "do without, or give finished samples with alchemy.load(record, pipes=False)"
        )
        return AlchemyError(told, where=where, section=self.section, hint=hint)

    def _rows(self, batch: Any, count: int) -> list[dict[str, Any]]:
        who = f"{type(self.task).__name__}.eval_step"
        try:
            outputs = _run(self.run, self.task, batch)
        except KeyError as error:
            if not isinstance(batch, Mapping) or not error.args or error.args[0] in batch:
                raise
            text = f"{type(self.run.model).__name__} reads {error.args[0]!r}, and the batch has {in_short(batch)}"
            raise AlchemyError(text, section="model", hint=f"give {error.args[0]!r} with each question") from error
        if isinstance(outputs, Mapping):  # what belongs to the whole batch is no answer to a question
            outputs = {name: column for name, column in outputs.items() if _length(column) == count} or outputs
        rows = rows_of(outputs, who)
        if len(rows) != count:
            hint = "let its output pipes return a row for each sample"
            raise AlchemyError(f"{who} returned {len(rows)} rows for {count} samples", section="task", hint=hint)
        return [
            {name: _plain(value) for name, value in (row if isinstance(row, Mapping) else {"output": row}).items()}
            for row in rows
        ]

    def _find_collate(self, options: Mapping[str, Any], *, budget: bool) -> Callable[[list[Any]], Any]:
        """What makes a batch of samples, as the loader of the split would choose it."""
        if options.get("collate_fn") is not None:
            made: Callable[[list[Any]], Any] = import_named(
                options["collate_fn"], what="collate_fn", given={"dataset": self._chain}
            )
            return made
        budget = budget or any(options.get(key) for key in BATCH_BUDGETS)
        return Pad(dataset=self._chain) if budget else torch.utils.data.default_collate

    def _load(self, table: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """Lets the task load the split, with the questions in the place of its files, and choose how batches are made.

        A task that loads its data without pipes needs them for that.
        """
        try:
            self.task.load_dataset(split=self.split, **table)
            return self.task.dataset(self.split)
        except Exception as error:  # of a project
            if "pipes" in table:
                raise
            text = (
                f"{type(self.task).__name__} says how a batch is made when it loads its data, and that failed: {error}"
            )
            raise AlchemyError(text, section=self.section, hint="bring back the data of the split") from error


class _FromQuestions(LstDataPipeline):
    """The questions, in the place of the pipes that read files."""

    def __init__(self, source: _Source) -> None:
        super().__init__(source)

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


class _Listed(LstDataPipeline):
    """The samples of a stream as a list, read anew whenever they are asked for: in the place of ItrToLst and Cache."""

    def __init__(self, datapipe: object) -> None:
        super().__init__(datapipe)

    def __getitem__(self, index: int) -> Any:
        return list(read_all(self.datapipe))[index]

    def __len__(self) -> int:
        return len(list(read_all(self.datapipe)))


def _run(run: Run, task: Askable | AlchemyTask, batch: Any) -> Any:
    """What a task says of a batch."""
    with torch.no_grad():
        return run.precision.attempt(task.eval_step, batch, needs_loss=False)[1]


def _length(column: object) -> int:
    """How many samples a column has; -1 for what is no column."""
    if isinstance(column, Tensor | np.ndarray):
        return len(column) if column.ndim else -1
    return len(column) if isinstance(column, list | tuple) else -1


def _plain(value: Any) -> Any:
    """Tensors and arrays as lists and numbers."""
    return value.tolist() if isinstance(value, Tensor | np.ndarray | np.generic) else value


def _behind_opener(pipes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The pipes that a row goes through: those behind what reads the files, without what chooses or orders samples."""
    kinds = [resolve_pipe(pipe) for pipe in pipes]
    readers = [place for place, kind in enumerate(kinds) if kind.begins or issubclass(kind, OPENERS)]
    # what stands behind a list of names opens them, also where it is a pipe of a project
    first = max(readers, default=1 if kinds and issubclass(kinds[0], SequenceWrapper) and _names_files(pipes[0]) else 0)
    left = [_in_place_of(pipe) for pipe, kind in zip(pipes[first + 1 :], kinds[first + 1 :]) if _is_needed(kind)]
    while left and _batches(left[-1]):  # the batches are made here
        left.pop()
    return left


def _is_needed(kind: Any) -> bool:
    return issubclass(kind, ItrToLst | Cache) or not kind.keeps


def _in_place_of(pipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """A pipe that reads all samples when it is built reads questions when they are asked; batches are of one."""
    if issubclass(resolve_pipe(pipe), ItrToLst | Cache):
        return {"type": _dotted(_Listed)}
    return {"type": _dotted(Batch), "batch_size": 1} if _batches(pipe) else pipe


def _names_files(pipe: Mapping[str, Any]) -> bool:
    listed = pipe.get("datapipe")
    return isinstance(listed, list) and all(isinstance(name, str | Path) for name in listed)


def _batches(pipe: Mapping[str, Any]) -> bool:
    return issubclass(resolve_pipe(pipe), Batch | BucketBatch)


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _behind_pipes(task: Askable, questions: _Source) -> Samples:
    """The questions behind the pipes of a split: one that is evaluated, where there is one, as they are."""
    tables = task.cfg.get("datasets") or {}
    split = next((name for name in ("test", "dev", "train") if isinstance(tables.get(name), Mapping)), None)
    pipes = tables[split].get("pipes") if split else None
    return over_questions(pipes, questions, section=f"task.datasets.{split}") if pipes else questions


def _collate_table(task: Askable) -> Any:
    """How batches were made in training, if a split says it, else as the task makes them."""
    splits = (task.cfg.get("datasets") or {}).values()
    told = [split["collate_fn"] for split in splits if isinstance(split, Mapping) and "collate_fn" in split]
    return told[-1] if told else {"type": "alchemy.data.collate.Pad", **task.collate_options()}
