"""A record, loaded and ready to answer questions."""

from __future__ import annotations

import contextvars
import copy
import itertools
import sys
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

import torch
from loguru import logger

from alchemy.config.load import prepare_cfg
from alchemy.config.seed import seed_of
from alchemy.config.tree import Document, Table
from alchemy.context import Run
from alchemy.data.blame import blamed
from alchemy.data.named import named
from alchemy.errors import AlchemyError
from alchemy.launch.device import alloc_cuda
from alchemy.launch.project import reach
from alchemy.pipeline import over_questions
from alchemy.plain import build_model
from alchemy.precision import build_precision
from alchemy.records import find
from alchemy.records.kept import best_checkpoint, config_of, has_best, use_own
from alchemy.seeds import unchanged_generators
from alchemy.task import build_task
from alchemy.tasks.checks import Samples
from alchemy.tasks.text import TextTask

WINDOW = 32  # batches that are sorted by length together: enough that those of a batch are of like length


def load(
    record: str | Path,
    *,
    checkpoint: str = "best",
    device: str = "cpu",
    batch_size: int = 32,
    overrides: Sequence[str] = (),
) -> Predictor:
    """The model of a record, ready to answer; the record is enough, whatever became of the data it was trained on.

    `checkpoint` names its weights; where there are no `best`, the last are taken. `overrides` change its config:
    `["task.threshold=0.3"]`.

        with alchemy.load("records/demo/2026-01-31_12-00-00.000000") as model:
            model.predict(["a fine day", "rain"])
    """
    folder = Path(record) if (Path(record) / "cfg.toml").is_file() else find(record)
    if checkpoint == "best" and not has_best(folder) and (folder / "state" / "last").exists():
        logger.warning("{} has no checkpoint 'best': its 'last' is used", folder)
        checkpoint = "last"
    document = prepare_cfg(config_of(folder), overrides=overrides, record=True)
    reach()
    use_own(document, folder, overrides)
    return Predictor(document, weights=best_checkpoint(folder, checkpoint), device=device, batch_size=batch_size)


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


class Predictor:
    """The task and the model of a config, which answer questions until they are closed, from any thread.

    `weights` is the folder of a checkpoint, unless the config names it as `[model] model_path`.
    """

    def __init__(
        self, document: Document, *, weights: Path | None = None, device: str = "cpu", batch_size: int = 32
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise AlchemyError(f"batch_size must be a whole number of at least 1, not {batch_size!r}")
        self.batch_size, self._lock = batch_size, threading.Lock()
        self.run = Run(_for_questions(document, weights), {"device": device})
        # the run is the current one in a context of its own: several models may be open, and closed in any order
        self._context = contextvars.copy_context()
        self._task = self._context.run(_open, self.run, _device(device))
        self._closed = weakref.finalize(self, self._context.run, self.run.__exit__, None, None, None)
        self._collate = named(_collate_table(self._task), what="collate_fn")
        self._longest = self.run.model.max_positions()
        self._asked = _Questions()
        self._source = self._context.run(_source, self._task, self._asked)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    def close(self) -> None:
        """Gives the memory of the model back, when what is being asked is answered; a second time does nothing."""
        with self._lock:
            self._closed()

    def predict(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """The answer to each question, in the order of the questions.

        A question is a text, a pair of texts as a tuple, or a dict with the fields of a sample; what else a task takes,
        its `question` tells.
        """
        return list(self.predict_stream(items))

    def predict_stream(self, items: Iterable[Any], *, window: int = 0) -> Iterator[dict[str, Any]]:
        """The answers to questions without end, one by one: `window` of them are read ahead (0: 32 batches)."""
        if isinstance(items, str | Mapping):
            raise AlchemyError(f"{repr(items)[:60]} is a single question", hint="give a list of them: [question]")
        return self.answers(((f"items[{number}]", item) for number, item in enumerate(items)), window=window)

    def answers(self, questions: Iterable[tuple[str, Any]], *, window: int = 0) -> Iterator[dict[str, Any]]:
        """As `predict_stream`, for questions that come with the place that an error names: `("in.csv:3", "a text")`.

        Where one is wrong, those before it are answered first.
        """
        coming = iter(questions)
        while True:
            asked, broken = _ahead(coming, window or WINDOW * self.batch_size)
            with self._lock:
                if not self._closed.alive:
                    raise AlchemyError("the predictor is closed", hint="ask inside its `with` block")
                rows, wrong = self._context.run(self._answer, asked)
            yield from rows
            if (failure := wrong or broken) is not None:
                raise failure
            if not asked:
                return

    def _answer(self, asked: list[tuple[str, Any]]) -> tuple[list[dict[str, Any]], AlchemyError | None]:
        """What is said of the questions up to the first wrong one, and what is wrong with that."""
        samples, failure = self._samples(asked)
        rows: list[Any] = [None] * len(samples)
        # texts of like length together: the less padding, the faster
        order = sorted(range(len(samples)), key=lambda place: len(samples[place].get(self._task.reads, ())))
        for start in range(0, len(order), self.batch_size):
            places = order[start : start + self.batch_size]
            for place, row in zip(places, self._said([samples[place] for place in places]), strict=True):
                rows[place] = row
        return rows, failure

    def _said(self, samples: list[Any]) -> list[dict[str, Any]]:
        with torch.no_grad():
            rows: list[dict[str, Any]]
            _, rows = self.run.precision.attempt(self._task.eval_step, self._collate(samples), needs_loss=False)
        return rows

    def _samples(self, asked: list[tuple[str, Any]]) -> tuple[list[dict[str, Any]], AlchemyError | None]:
        raw: list[Any] = []
        failure = None
        for where, item in asked:
            try:
                raw.append(self._task.question(item))
            except AlchemyError as error:
                failure = AlchemyError(error.problem.message, where=where, hint=error.problem.hint)
                break
        self._asked.ask(raw, [where for where, _ in asked])
        encoded: Samples = self._task.encoded(self._source) if raw else ()
        made: list[dict[str, Any]] = []
        try:
            for place in range(len(raw)):
                made.append(encoded[place])
                self._check_length(made[-1], asked[place][0])
            if isinstance(self._task, TextTask) and raw:
                self._task.warn_of_cuts("questions", encoded)
        except AlchemyError as error:
            return made[:place], error
        except Exception as error:  # of a function that a pipe calls
            told = blamed(error)
            if told is None:
                raise
            problem = told.problem
            return made[:place], AlchemyError(problem.message, where=asked[place][0], section=problem.section)
        return made, failure

    def _check_length(self, sample: Mapping[str, Any], where: str) -> None:
        length = len(sample.get(self._task.reads, ()))
        if self._longest is not None and length > self._longest:
            way = f', or set task.max_length={self._longest} and task.long="only_first", which cuts it, or "windows"'
            text = f"a text has {length} tokens, and the model takes {self._longest}"
            raise AlchemyError(text, where=where, hint=f"shorten it{way if isinstance(self._task, TextTask) else ''}")


def _ahead(coming: Iterator[Any], count: int) -> tuple[list[Any], AlchemyError | None]:
    """The next of a stream, and what was wrong with it behind them."""
    found: list[Any] = []
    try:
        found.extend(itertools.islice(coming, count))
    except AlchemyError as error:
        return found, error
    return found, None


class _Questions(list[Any]):
    """Samples that know where they come from, as those of a processor do; others take their place when they are asked.

    So that pipes over them are built once.
    """

    places: Sequence[str] = ()

    def ask(self, samples: list[Any], places: Sequence[str]) -> None:
        self[:], self.places = samples, places

    def where(self, index: int) -> str:
        return self.places[index]


def _source(task: Askable, questions: _Questions) -> Samples:
    """The questions behind the pipes of a split: one that is evaluated, where there is one, as they are."""
    tables = task.cfg.get("datasets") or {}
    split = next((name for name in ("test", "dev", "train") if isinstance(tables.get(name), Mapping)), None)
    pipes = tables[split].get("pipes") if split else None
    return over_questions(pipes, questions, section=f"task.datasets.{split}") if pipes else questions


def _for_questions(document: Document, weights: Path | None) -> Document:
    """The config without plugins and the pipes that score, write or draw, and with the weights."""
    document = copy.deepcopy(document)
    task, model = document.get("task"), document.get("model")
    document["seed"] = seed_of(document)  # which may stand in a plugin
    for name in ("plugins", "optim", "sched"):  # nobody builds them, so that their secrets are not needed
        document.pop(name, None)
    if isinstance(task, Table):
        for name in ("evalpipes", "outputpipes"):
            task.pop(name, None)
    if weights is not None and isinstance(model, Table):
        model["model_path"] = str(weights)
    return document


def _open(run: Run, device: torch.device) -> Askable:
    """Makes the run current, and builds what answers."""
    run.__enter__()
    try:
        run.device = device
        with unchanged_generators():  # random numbers that the weights replace at once
            run.precision = build_precision(run)
            run.task = task = build_task(run)
            if not isinstance(task, Askable):
                hint = "`alchemy predict RECORD --split test` answers the data of its config"
                raise AlchemyError(f"{type(task).__name__} cannot be asked questions", section="task", hint=hint)
            run.model = build_model(run)
        run.model.to(device)
        run.model.eval()
        return task
    except BaseException:
        run.__exit__(*sys.exc_info())
        raise


def _collate_table(task: Askable) -> Any:
    """How batches were made in training, if a split says it, else as the task makes them."""
    splits = (task.cfg.get("datasets") or {}).values()
    told = [split["collate_fn"] for split in splits if isinstance(split, Mapping) and "collate_fn" in split]
    return told[-1] if told else {"type": "alchemy.data.collate.Pad", **task.collate_options()}


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise AlchemyError(f"there is no device {name!r}", hint="give 'cpu', or 'cuda:0'") from error
    if device.type == "cuda":
        alloc_cuda(device.index or 0)
    return device
