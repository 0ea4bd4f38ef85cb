"""Load a record for prediction."""

from __future__ import annotations

import contextlib
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
from alchemy.explain import explain_batch
from alchemy.launch.device import alloc_cuda
from alchemy.launch.project_imports import add_to_path
from alchemy.legacy.adapt import adapt
from alchemy.legacy.keywords import fill_keywords
from alchemy.loop import infer
from alchemy.pipeline import OutputPipeline
from alchemy.pipeline.output_rows import rows_of
from alchemy.plain_model import build_model
from alchemy.precision import build_precision
from alchemy.predict_inputs import build_input_handler, takes_rows
from alchemy.progress import Terminal
from alchemy.records import find
from alchemy.records.local_copies import (
    best_checkpoint,
    config_of,
    find_code,
    has_best,
    use_local_copies,
    warn_of_other_code,
)
from alchemy.registry import set_adapter
from alchemy.seeds import preserve_rng_state
from alchemy.task import build_task, load_datasets

set_adapter(fill_keywords)  # runner.py does this too, but may not have been imported
WINDOW = 32  # number of batches to read ahead and sort by length


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
    """Load the trained model of a record for prediction; the training data is not needed.

    `checkpoint` selects the weights; if there is no `best` checkpoint, the last one is used. `overrides` change the
    config, for example `["task.threshold=0.3"]`; `user_dir` is the package that contains your parts; without this
    folder, they are imported from `backup/` of the record. A DefaultTask accepts rows, which go through the pipes of a
    split, or with `pipes=False`, samples as returned by these pipes.

        with alchemy.load("records/demo/2026-01-31_12-00-00.000000") as model:
            model.predict(["a fine day", "rain"])
    """
    folder = Path(record) if (Path(record) / "cfg.toml").is_file() else find(record)
    if checkpoint == "best" and not has_best(folder) and (folder / "state" / "last").exists():
        logger.warning("{} has no checkpoint 'best': using 'last'", folder)
        checkpoint = "last"
    user_dir = find_code(folder, user_dir)
    document = prepare_cfg(config_of(folder), overrides=overrides, user_dir=user_dir, record=True)
    add_to_path(user_dir)
    if text := warn_of_other_code(folder, user_dir, "user_dir="):
        logger.warning("{}", text)
    use_local_copies(document, folder, overrides)
    weights = best_checkpoint(folder, checkpoint)
    return Predictor(document, weights=weights, device=device, batch_size=batch_size, pipes=pipes)


class Predictor:
    """The task and the model of a config, ready for prediction from any thread until `close`.

    `weights` is a checkpoint folder; it is optional if the config sets `[model] model_path`.
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
            raise AlchemyError(f"batch_size must be a positive integer, not {batch_size!r}")
        self.batch_size, self._lock = batch_size, threading.Lock()
        self.run = Run(without_training(document), {"device": device})
        # a separate context makes the run current: several models may be open and may be closed in any order
        self._context = contextvars.copy_context()
        self._context.run(open_model, self.run, _device(device), weights)
        self._closed = weakref.finalize(self, self._context.run, self.run.__exit__, None, None, None)
        self._inputs = self._context.run(build_input_handler, self.run, pipes=pipes)

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
        """Release the model once all running predictions have finished; further calls have no effect."""
        with self._lock:
            self._closed()

    def predict(self, items: Iterable[Any]) -> list[dict[str, Any]]:
        """Return one prediction per input, in the order of the inputs.

        An input is a string, a tuple of two strings, or a dict with the fields of a sample; a task's `question` method
        may accept other types. For a DefaultTask and other tasks without `question`, an input is a row as returned by
        the pipe that opens the files of a split, and the prediction is the result of the output pipes.
        """
        return list(self.predict_stream(items))

    def explain(self, items: Iterable[Any], *, steps: int = 128) -> list[dict[str, Any]]:
        """Return the contribution of each token or pixel to the predicted class, one dict per input.

        A text has `tokens` and their `attributions`; an image has `attributions` [H, W] and its pixels as `image`.
        These are integrated gradients with `steps` steps; 1 computes gradient times input.
        """
        if steps < 1:
            raise AlchemyError(f"steps must be at least 1, got {steps}")
        with self._lock:
            located = ((f"items[{number}]", item) for number, item in enumerate(items))
            return [self._context.run(self._explain, where, item, steps) for where, item in located]

    def _explain(self, where: str, item: Any, steps: int) -> dict[str, Any]:
        batch = self.run.task.to_device(self._inputs.build_batch(where, item))
        with torch.enable_grad(), preserve_rng_state():
            return explain_batch(self.run, batch, steps=steps)

    def predict_stream(self, items: Iterable[Any], *, window: int = 0) -> Iterator[dict[str, Any]]:
        """Yield predictions for a stream of inputs, reading `window` inputs ahead (0 means 32 batches)."""
        if isinstance(items, str | Mapping):
            raise AlchemyError(f"{repr(items)[:60]} is a single input", hint="pass a list: [input]")
        return self.predict_located(((f"items[{number}]", item) for number, item in enumerate(items)), window=window)

    def predict_located(self, inputs: Iterable[tuple[str, Any]], *, window: int = 0) -> Iterator[dict[str, Any]]:
        """Like `predict_stream`, for inputs with a location for error messages: `("in.csv:3", "a text")`.

        The predictions before an invalid input are yielded before the error is raised.
        """
        stream = iter(inputs)
        while True:
            chunk, broken = _read_ahead(stream, window or WINDOW * self.batch_size)
            with self._lock:
                if not self._closed.alive:
                    raise AlchemyError("the predictor is closed", hint="predict inside its `with` block")
                rows, invalid = self._context.run(self._inputs.predict, chunk, self.batch_size)
            yield from rows
            if (failure := invalid or broken) is not None:
                raise failure
            if not chunk:
                return


def _read_ahead(stream: Iterator[Any], count: int) -> tuple[list[Any], AlchemyError | None]:
    """Return the next `count` items of a stream, and the error that ended it, if any."""
    items: list[Any] = []
    try:
        items.extend(itertools.islice(stream, count))
    except AlchemyError as error:
        return items, error
    return items, None


def predict_split(document: Document, weights: Path | None, split: str) -> list[Any]:
    """Return the predictions of a model for a split of its config, one row per example, in the order of the data."""
    splits = document.table("task").table("datasets")
    if split not in splits:
        hint = f"available: {', '.join(splits) or 'none'}"
        raise AlchemyError(f"the config has no split {split!r}", section="task.datasets", hint=hint)
    run = Run(without_training(document), {"device": "cpu"})
    open_model(run, torch.device("cpu"), weights)
    with contextlib.ExitStack() as stack:
        stack.push(run.__exit__)
        run.console = Terminal(stderr=True)
        stack.callback(run.console.close)
        load_datasets(run, (split,))
        return [row for _, outputs in infer(run, split) for row in rows_of(outputs, f"the split {split!r}")]


def without_training(document: Document) -> Document:
    """Return the config without plugins, optimizer, schedule, and pipes that score or write files."""
    document = copy.deepcopy(document)
    task = document.get("task")
    document["seed"] = seed_of(document)  # may be set in a plugin
    for name in ("plugins", "optim", "sched"):  # not built, so that their secrets are not needed
        document.pop(name, None)
    if isinstance(task, Table):
        task.pop("evalpipes", None)
        outputpipes = task.pop("outputpipes", None) or []
        if takes_rows(document):  # the output pipes produce the predictions
            task["outputpipes"] = [row for row in outputpipes if not _keeps(row)]
    return document


def _keeps(table: Mapping[str, Any]) -> bool:
    kind = OutputPipeline.resolve_registered_module(str(table.get("type")))
    return isinstance(kind, type) and issubclass(kind, OutputPipeline) and kind.keeps


def open_model(run: Run, device: torch.device, weights: Path | None) -> None:
    """Make the run current and build its task and model, without data; `run.__exit__` releases them."""
    run.__enter__()
    try:
        run.device = device
        with preserve_rng_state():  # the initial weights are replaced anyway
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
        raise AlchemyError(f"unknown device {name!r}", hint="use 'cpu' or 'cuda:0'") from error
    if device.type == "cuda":
        alloc_cuda(device.index or 0)
    return device
