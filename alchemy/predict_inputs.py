"""Predict with a trained task: turn inputs into samples and batches, and outputs into one prediction per input."""

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
from alchemy.pipeline import LstDataPipeline, apply_to_inputs, resolve_pipe
from alchemy.pipeline.cache import Cache
from alchemy.pipeline.itr import Batch, BucketBatch
from alchemy.pipeline.lst import ItrToLst, SequenceWrapper
from alchemy.pipeline.openers import OPENERS
from alchemy.pipeline.output_rows import rows_of
from alchemy.task import AlchemyTask
from alchemy.tasks.data_checks import Samples
from alchemy.tasks.text_task import TextTask

LocatedInputs = list[tuple[str, Any]]  # (location for error messages, input)


class Predictions(NamedTuple):
    """The predictions up to the first invalid input, and the error for that input."""

    rows: list[dict[str, Any]]
    failure: AlchemyError | None


class InputHandler(Protocol):
    """Predicts for a list of inputs, in order."""

    def predict(self, inputs: LocatedInputs, batch_size: int) -> Predictions: ...
    def build_batch(self, where: str, item: Any) -> Any: ...


@runtime_checkable
class EncodingTask(Protocol):
    """A task that turns inputs into samples, encodes them and defines how to batch them."""

    @property
    def cfg(self) -> Table: ...
    @property
    def reads(self) -> str: ...
    def question(self, item: object, /) -> dict[str, Any]: ...
    def encoded(self, source: Samples, /) -> Samples: ...
    def collate_options(self) -> dict[str, Any]: ...
    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]: ...


@runtime_checkable
class _CustomInput(Protocol):
    """A task whose `question` method turns an input into a row for its pipes."""

    def question(self, item: object, /) -> Any: ...


def encodes_inputs(kind: type) -> bool:
    """Return whether a task class turns inputs into samples itself; other tasks use the pipes of a split."""
    return {"question", "encoded", "collate_options"} <= set(dir(kind))


def takes_rows(document: Document) -> bool:
    """Return whether the task in a config accepts rows for its pipes as inputs."""
    return not encodes_inputs(AlchemyTask.resolve_registered_module(str(document.table("task").get("type"))))


def build_input_handler(run: Run, *, pipes: bool = True) -> InputHandler:
    """Return the input handler for the task of a run; without `pipes`, inputs are already samples."""
    task: AlchemyTask = run.task
    return EncodedInputs(run, task) if isinstance(task, EncodingTask) else PipedInputs(run, task, pipes=pipes)


class _Source(Sequence[Any]):
    """A replaceable list of samples with their locations, so that the pipes over it are built only once."""

    def __init__(self) -> None:
        self.samples: list[Any] = []
        self.places: Sequence[str] = ()

    def replace(self, samples: list[Any], places: Sequence[str]) -> None:
        self.samples, self.places = samples, places

    def where(self, index: int) -> str:
        return self.places[index]

    def __getitem__(self, index: Any) -> Any:
        return self.samples[index]

    def __len__(self) -> int:
        return len(self.samples)


class EncodedInputs:
    """Inputs for a task that encodes them itself, batched by length."""

    def __init__(self, run: Run, task: EncodingTask) -> None:
        self.run, self.task, self.longest = run, task, run.model.max_positions()
        self._collate = import_named(_collate_table(task), what="collate_fn")
        self._inputs = _Source()
        self._source = _apply_pipes(task, self._inputs)

    def predict(self, inputs: LocatedInputs, batch_size: int) -> Predictions:
        samples, failure = self._samples(inputs)
        rows: list[Any] = [None] * len(samples)
        # batches of inputs with similar lengths need less padding and are faster
        order = sorted(range(len(samples)), key=lambda place: len(samples[place].get(self.task.reads, ())))
        for start in range(0, len(order), batch_size):
            places = order[start : start + batch_size]
            batch = self._collate([samples[place] for place in places])
            for place, row in zip(places, _run(self.run, self.task, batch), strict=True):
                rows[place] = row
        return Predictions(rows, failure)

    def build_batch(self, where: str, item: Any) -> Any:
        """Return the batch of a single input."""
        samples, failure = self._samples([(where, item)])
        if failure is not None:
            raise failure
        return self._collate(samples)

    def _samples(self, inputs: LocatedInputs) -> tuple[list[dict[str, Any]], AlchemyError | None]:
        raw: list[Any] = []
        failure = None
        for where, item in inputs:
            try:
                raw.append(self.task.question(item))
            except AlchemyError as error:
                failure = AlchemyError(error.problem.message, where=where, hint=error.problem.hint)
                break
        self._inputs.replace(raw, [where for where, _ in inputs])
        encoded: Samples = self.task.encoded(self._source) if raw else ()
        samples: list[dict[str, Any]] = []
        try:
            for place in range(len(raw)):
                samples.append(encoded[place])
                self._check_length(samples[-1], inputs[place][0])
            if isinstance(self.task, TextTask) and raw:
                self.task.warn_of_cuts("inputs", encoded)
        except AlchemyError as error:
            return samples[:place], error
        except Exception as error:  # raised by a function that a pipe calls
            located = locate_error(error)
            if located is None:
                raise
            problem = located.problem
            return samples[:place], AlchemyError(problem.message, where=inputs[place][0], section=problem.section)
        return samples, failure

    def _check_length(self, sample: Mapping[str, Any], where: str) -> None:
        length = len(sample.get(self.task.reads, ()))
        if self.longest is not None and length > self.longest:
            way = f', or set task.max_length={self.longest} and task.long to "only_first" (truncate) or "windows"'
            text = f"a text has {length} tokens, but the model takes at most {self.longest}"
            raise AlchemyError(text, where=where, hint=f"shorten it{way if isinstance(self.task, TextTask) else ''}")


class PipedInputs:
    """Inputs for any other task: rows that go through the pipes of a split, except pipes that read files.

    Each row is processed separately into one sample, so that predictions cannot be mixed up. Pipes that only select or
    order samples are skipped. Without `pipes`, or if the task loads its data without pipes, inputs are already samples.
    """

    def __init__(self, run: Run, task: AlchemyTask, *, pipes: bool = True) -> None:
        self.run, self.task, self._inputs = run, task, _Source()
        tables: Mapping[str, Any] = task.cfg.get("datasets") or {}
        names = [name for name in ("test", "dev", "train", *tables) if isinstance(tables.get(name), Mapping)]
        self.split = names[0] if names else ""
        self.section = f"task.datasets.{self.split}"
        table = dict(tables[self.split]) if names else {}
        listed = table.get("pipes") or ()
        remaining = _pipes_after_opener(listed) if pipes else []
        if listed:
            table["pipes"] = [{"type": _dotted_name(_FromInputs), "source": self._inputs}, *remaining]
        loaded, options = self._load(table) if names else ([], {})
        self._chain = loaded if listed else self._inputs
        self._batched = any(map(_is_batching, remaining))
        self._collate = self._find_collate(options, budget=any(map(_is_batching, listed)))

    def predict(self, inputs: LocatedInputs, batch_size: int) -> Predictions:
        samples: list[Any] = []
        failure = None
        for where, item in inputs:
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
        return Predictions(rows, failure)

    def build_batch(self, where: str, item: Any) -> Any:
        """Return the batch of a single input."""
        sample = self._sample(where, item)
        return sample if self._batched else self._collate([sample])

    def _sample(self, where: str, item: Any) -> Any:
        """Run an input through the pipes and return its sample."""
        row = self.task.question(item) if isinstance(self.task, _CustomInput) else item
        self._inputs.replace([dict(row) if isinstance(row, Mapping) else row], [where])
        try:
            samples = list(read_all(self._chain))
        except Exception as error:  # including errors in a project's pipes
            raise self._explain(error, where) from error
        if len(samples) != 1:
            hint = "an input must become one sample: skip the pipes with alchemy.load(record, pipes=False)"
            text = f"the pipes of the split {self.split!r} turn this input into {len(samples)} samples"
            raise AlchemyError(text, where=where, section=self.section, hint=hint)
        return samples[0]

    def _explain(self, error: Exception, where: str) -> AlchemyError:
        """Return an error that explains what went wrong in a pipe and how to fix it."""
        culprit = error if isinstance(error, AlchemyError) else locate_error(error)
        message = culprit.problem.message if culprit is not None else f"{type(error).__name__}: {error}"
        hint = (
            f"an input is a row for the pipes of the split {self.split!r}; add the missing fields, make them optional "
            "in the pipe, or pass finished samples with alchemy.load(record, pipes=False)"
        )
        return AlchemyError(message, where=where, section=self.section, hint=hint)

    def _rows(self, batch: Any, count: int) -> list[dict[str, Any]]:
        who = f"{type(self.task).__name__}.eval_step"
        try:
            outputs = _run(self.run, self.task, batch)
        except KeyError as error:
            if not isinstance(batch, Mapping) or not error.args or error.args[0] in batch:
                raise
            text = f"{type(self.run.model).__name__} needs {error.args[0]!r}, but the batch has {in_short(batch)}"
            raise AlchemyError(text, section="model", hint=f"add {error.args[0]!r} to each input") from error
        if isinstance(outputs, Mapping):  # drop values that belong to the whole batch
            outputs = {name: column for name, column in outputs.items() if _length(column) == count} or outputs
        rows = rows_of(outputs, who)
        if len(rows) != count:
            hint = "return one row per sample from its output pipes"
            raise AlchemyError(f"{who} returned {len(rows)} rows for {count} samples", section="task", hint=hint)
        return [
            {name: _plain(value) for name, value in (row if isinstance(row, Mapping) else {"output": row}).items()}
            for row in rows
        ]

    def _find_collate(self, options: Mapping[str, Any], *, budget: bool) -> Callable[[list[Any]], Any]:
        """Return the collate function that the loader of the split would use."""
        if options.get("collate_fn") is not None:
            made: Callable[[list[Any]], Any] = import_named(
                options["collate_fn"], what="collate_fn", given={"dataset": self._chain}
            )
            return made
        budget = budget or any(options.get(key) for key in BATCH_BUDGETS)
        return Pad(dataset=self._chain) if budget else torch.utils.data.default_collate

    def _load(self, table: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
        """Load the split with the task, using the inputs instead of its files; return the dataset and loader options.

        A task that loads its data without pipes still needs the files of the split.
        """
        try:
            self.task.load_dataset(split=self.split, **table)
            return self.task.dataset(self.split)
        except Exception as error:  # raised by project code
            if "pipes" in table:
                raise
            text = f"{type(self.task).__name__} defines its batches when it loads its data, which failed: {error}"
            raise AlchemyError(text, section=self.section, hint="restore the data of the split") from error


class _FromInputs(LstDataPipeline):
    """The inputs, as a replacement for the pipes that read files."""

    def __init__(self, source: _Source) -> None:
        super().__init__(source)

    def __getitem__(self, index: int) -> Any:
        return self.datapipe[index]

    def __len__(self) -> int:
        return len(self.datapipe)


class _StreamAsList(LstDataPipeline):
    """The samples of a stream as a list, reread on every access; replaces ItrToLst and Cache."""

    def __init__(self, datapipe: object) -> None:
        super().__init__(datapipe)

    def __getitem__(self, index: int) -> Any:
        return list(read_all(self.datapipe))[index]

    def __len__(self) -> int:
        return len(list(read_all(self.datapipe)))


def _run(run: Run, task: EncodingTask | AlchemyTask, batch: Any) -> Any:
    """Return the outputs of a task for a batch."""
    with torch.no_grad():
        return run.precision.attempt(task.eval_step, batch, needs_loss=False)[1]


def _length(column: object) -> int:
    """Return the number of samples in a column; -1 if it is not a column."""
    if isinstance(column, Tensor | np.ndarray):
        return len(column) if column.ndim else -1
    return len(column) if isinstance(column, list | tuple) else -1


def _plain(value: Any) -> Any:
    """Convert tensors and arrays to lists and numbers."""
    return value.tolist() if isinstance(value, Tensor | np.ndarray | np.generic) else value


def _pipes_after_opener(pipes: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the pipes after the one that reads files, except pipes that select or order samples."""
    kinds = [resolve_pipe(pipe) for pipe in pipes]
    readers = [place for place, kind in enumerate(kinds) if kind.begins or issubclass(kind, OPENERS)]
    # the pipe after a list of file names opens the files, even if it is a custom pipe
    first = max(readers, default=1 if kinds and issubclass(kinds[0], SequenceWrapper) and _names_files(pipes[0]) else 0)
    needed = [_adapt_pipe(pipe) for pipe, kind in zip(pipes[first + 1 :], kinds[first + 1 :]) if _is_needed(kind)]
    while needed and _is_batching(needed[-1]):  # inputs are batched here
        needed.pop()
    return needed


def _is_needed(kind: Any) -> bool:
    return issubclass(kind, ItrToLst | Cache) or not kind.keeps


def _adapt_pipe(pipe: Mapping[str, Any]) -> Mapping[str, Any]:
    """Replace a pipe that reads all samples at construction with a lazy one, and set batch sizes to 1."""
    if issubclass(resolve_pipe(pipe), ItrToLst | Cache):
        return {"type": _dotted_name(_StreamAsList)}
    return {"type": _dotted_name(Batch), "batch_size": 1} if _is_batching(pipe) else pipe


def _names_files(pipe: Mapping[str, Any]) -> bool:
    listed = pipe.get("datapipe")
    return isinstance(listed, list) and all(isinstance(name, str | Path) for name in listed)


def _is_batching(pipe: Mapping[str, Any]) -> bool:
    return issubclass(resolve_pipe(pipe), Batch | BucketBatch)


def _dotted_name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _apply_pipes(task: EncodingTask, inputs: _Source) -> Samples:
    """Apply the pipes of a split, preferably `test` or `dev`, to the inputs."""
    tables = task.cfg.get("datasets") or {}
    split = next((name for name in ("test", "dev", "train") if isinstance(tables.get(name), Mapping)), None)
    pipes = tables[split].get("pipes") if split else None
    return apply_to_inputs(pipes, inputs, section=f"task.datasets.{split}") if pipes else inputs


def _collate_table(task: EncodingTask) -> Any:
    """Return the `collate_fn` of the splits, or the default of the task if they have none."""
    splits = (task.cfg.get("datasets") or {}).values()
    tables = [split["collate_fn"] for split in splits if isinstance(split, Mapping) and "collate_fn" in split]
    return tables[-1] if tables else {"type": "alchemy.data.collate.Pad", **task.collate_options()}
