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
from typing import Any, Self

import torch
from loguru import logger
from torch import nn

from alchemy.config.load import prepare_cfg
from alchemy.config.seed import seed_of
from alchemy.config.tree import Document, Table
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.launch.device import alloc_cuda
from alchemy.launch.project_imports import add_to_path
from alchemy.legacy.adapt import adapt
from alchemy.legacy.keywords import fill_keywords
from alchemy.pipeline import OutputPipeline
from alchemy.plain_model import build_model
from alchemy.precision import build_precision
from alchemy.predict_inputs import questions_of, takes_rows
from alchemy.records import find
from alchemy.records.local_copies import best_checkpoint, config_of, has_best, use_local_copies
from alchemy.registry import adapt_with
from alchemy.seeds import unchanged_generators
from alchemy.task import build_task

adapt_with(fill_keywords)  # as a runner does, which may never be imported here
WINDOW = 32  # batches that are sorted by length together: enough that those of a batch are of like length


def load(
    record: str | Path,
    *,
    checkpoint: str = "best",
    device: str = "cpu",
    batch_size: int = 32,
    overrides: Sequence[str] = (),
    user_dir: str = "src",
    pipes: bool = True,
) -> Predictor:
    """The model of a record, ready to answer; the record is enough, whatever became of the data it was trained on.

    `checkpoint` names its weights; where there are no `best`, the last are taken. `overrides` change its config:
    `["task.threshold=0.3"]`; `user_dir` is the package of your own parts. A DefaultTask is asked with rows that go
    through the pipes of a split; with `pipes=False` questions are samples as these pipes make them.

        with alchemy.load("records/demo/2026-01-31_12-00-00.000000") as model:
            model.predict(["a fine day", "rain"])
    """
    folder = Path(record) if (Path(record) / "cfg.toml").is_file() else find(record)
    if checkpoint == "best" and not has_best(folder) and (folder / "state" / "last").exists():
        logger.warning("{} has no checkpoint 'best': its 'last' is used", folder)
        checkpoint = "last"
    document = prepare_cfg(config_of(folder), overrides=overrides, user_dir=user_dir, record=True)
    add_to_path(user_dir)
    use_local_copies(document, folder, overrides)
    weights = best_checkpoint(folder, checkpoint)
    return Predictor(document, weights=weights, device=device, batch_size=batch_size, pipes=pipes)


class Predictor:
    """The task and the model of a config, which answer questions until they are closed, from any thread.

    `weights` is the folder of a checkpoint, unless the config names it as `[model] model_path`.
    """

    def __init__(
        self,
        document: Document,
        *,
        weights: Path | None = None,
        device: str = "cpu",
        batch_size: int = 32,
        pipes: bool = True,
    ) -> None:
        if isinstance(batch_size, bool) or not isinstance(batch_size, int) or batch_size < 1:
            raise AlchemyError(f"batch_size must be a whole number of at least 1, not {batch_size!r}")
        self.batch_size, self._lock = batch_size, threading.Lock()
        self.run = Run(_for_questions(document), {"device": device})
        # the run is the current one in a context of its own: several models may be open, and closed in any order
        self._context = contextvars.copy_context()
        self._context.run(_open, self.run, _device(device), weights)
        self._closed = weakref.finalize(self, self._context.run, self.run.__exit__, None, None, None)
        self._questions = self._context.run(questions_of, self.run, pipes=pipes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @property
    def module(self) -> nn.Module:
        """The trained network, in evaluation mode."""
        module: nn.Module = self.run.model.module
        return module

    def close(self) -> None:
        """Gives the memory of the model back, when what is being asked is answered; a second time does nothing."""
        with self._lock:
            self._closed()

    def predict(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """The answer to each question, in the order of the questions.

        A question is a text, a pair of texts as a tuple, or a dict with the fields of a sample; what else a task takes,
        its `question` tells. To a DefaultTask, and to tasks of a project that have no `question`, it is a row as the
        pipes of a split read it behind the opener, and the answer is what the output pipes make of it.
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
                rows, wrong = self._context.run(self._questions.answer, asked, self.batch_size)
            yield from rows
            if (failure := wrong or broken) is not None:
                raise failure
            if not asked:
                return


def _ahead(coming: Iterator[Any], count: int) -> tuple[list[Any], AlchemyError | None]:
    """The next of a stream, and what was wrong with it behind them."""
    found: list[Any] = []
    try:
        found.extend(itertools.islice(coming, count))
    except AlchemyError as error:
        return found, error
    return found, None


def _for_questions(document: Document) -> Document:
    """The config without plugins and the pipes that score, write or draw."""
    document = copy.deepcopy(document)
    task = document.get("task")
    document["seed"] = seed_of(document)  # which may stand in a plugin
    for name in ("plugins", "optim", "sched"):  # nobody builds them, so that their secrets are not needed
        document.pop(name, None)
    if isinstance(task, Table):
        task.pop("evalpipes", None)
        outputpipes = task.pop("outputpipes", None) or []
        if takes_rows(document):  # the output pipes make the answers
            task["outputpipes"] = [row for row in outputpipes if not _keeps(row)]
    return document


def _keeps(table: Mapping[str, Any]) -> bool:
    kind = OutputPipeline.resolve_registered_module(str(table.get("type")))
    return isinstance(kind, type) and issubclass(kind, OutputPipeline) and kind.keeps


def _open(run: Run, device: torch.device, weights: Path | None) -> None:
    """Makes the run current, and builds what answers."""
    run.__enter__()
    try:
        run.device = device
        with unchanged_generators():  # random numbers that the weights replace at once
            run.precision = build_precision(run)
            run.task = build_task(run)
            run.model = build_model(run, weights)
            adapt(run, run.task, run.model)
        run.model.to(device)
        run.model.eval()
    except BaseException:
        run.__exit__(*sys.exc_info())
        raise


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except (RuntimeError, TypeError) as error:
        raise AlchemyError(f"there is no device {name!r}", hint="give 'cpu', or 'cuda:0'") from error
    if device.type == "cuda":
        alloc_cuda(device.index or 0)
    return device
