"""Base class for tasks: datasets, training steps, evaluation steps and scores."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from loguru import logger

from alchemy.context import Run, current_run
from alchemy.data.loader import batch_to_device
from alchemy.data.pipe_chain import title
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.loop import log_loss
from alchemy.loss_observer import Loss
from alchemy.null_objects import Updater
from alchemy.pipeline import EvalPipeline, OutputPipeline, build_datapipes
from alchemy.registry import Registrable, build

if TYPE_CHECKING:
    from alchemy.model import AlchemyModel


class AlchemyTask(Registrable):
    """The datasets of a run, and its training and evaluation steps.

    Subclasses add labels, a vocabulary, a tokenizer and so on. They may fill `outputpipes` and `evalpipes` in their
    constructors; lists that are still empty afterwards are built from the config.
    """

    writes_texts: ClassVar[bool] = False  # whether the task accepts `search`, `limits`, `tokens` and `alignments`
    labels: Sequence[str] = ()  # the names of the classes, if known
    # scores available without pipes, used by `alchemy check`; `{"key=value": (..)}` makes them conditional
    produces: ClassVar[tuple[str, ...] | Mapping[str, tuple[str, ...]]]
    reads: ClassVar[str] = "input_ids"  # the field whose length is used to batch inputs for prediction
    # the default score of `[checkpoint] monitor` on dev, and its mode
    main_score: str = ""
    main_mode: Literal["max", "min"] = "max"
    # defaults of `[task.data]`: the pipe that reads the files, and the loader option that limits a batch
    processor: ClassVar[str] = ""
    batches: ClassVar[dict[str, int]] = {"batch_size": 32}

    def __init__(self) -> None:
        self.run = current_run()

    # created lazily because a subclass may not call super().__init__()
    @cached_property
    def run(self) -> Run:
        return current_run()

    @cached_property
    def outputpipes(self) -> list[Any]:
        return []

    @cached_property
    def evalpipes(self) -> list[Any]:
        return []

    @cached_property
    def _datasets(self) -> dict[str, tuple[Any, dict[str, Any]]]:
        return {}

    @cached_property
    def _warned(self) -> set[str]:
        return set()

    @classmethod
    def from_registry(cls, ty: str, *args: object, **kwargs: object) -> Any:
        """Return the task named `ty` with its pipes, for runners in projects."""
        task = super().from_registry(ty, *args, **kwargs)
        return _fill_pipes(task, task.cfg)

    @property
    def cfg(self) -> Any:
        """The `[task]` table."""
        return self.run.table("task")

    # -- data
    def load_dataset(self, split: str, **kwargs: Any) -> None:
        """Build the dataset of a split from `pipes`; all other arguments are passed to the DataLoader."""
        pipes = kwargs.pop("pipes", None)
        if not pipes:
            raise AlchemyError(
                "missing 'pipes': a dataset needs them unless the task loads it itself",
                section=f"task.datasets.{split}",
                hint='add pipes = [{ type = "..." }, ..]',
            )
        self._datasets[split] = (build_datapipes(pipes, section=f"task.datasets.{split}"), kwargs)

    @property
    def splits(self) -> dict[str, tuple[Any, dict[str, Any]]]:
        """The loaded splits: the dataset of each split and the arguments of its loader."""
        return self._datasets

    def dataset(self, split: str) -> tuple[Any, dict[str, Any]]:
        """Return the dataset of a split and the arguments of its loader."""
        if split not in self._datasets:
            loaded = ", ".join(self._datasets) or "none"
            raise AlchemyError(
                f"no dataset for the split {split!r}; loaded splits: {loaded}",
                section="task.datasets",
                hint=did_you_mean(split, self._datasets) or f"add [task.datasets.{split}] to the config",
            )
        pair = self._datasets[split]
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], Mapping):
            raise AlchemyError(
                f"{type(self).__name__}._datasets[{split!r}] is a {type(pair).__name__}; expected a pair: "
                "the dataset and a dict with the arguments of its loader",
                section=f"task.datasets.{split}",
                hint=f"set self._datasets[{split!r}] = (dataset, kwargs)",
            )
        return pair[0], dict(pair[1])

    def max_positions(self) -> int | None:
        """Return the maximum input length of the task; None means no limit."""
        return None

    # -- steps
    def loss(self, batch: Any) -> Loss:
        """Return the training loss of a batch as a sum and a count."""
        batch = self.to_device(batch)
        return loss_of(self.run.model, self.run.model.forward(batch), batch)

    def train_step(self, batch: Any, updater: Updater) -> Mapping[str, Any]:
        """Pass the loss of a micro-batch to the updater; override this method to pass one loss per named optimizer."""
        loss = self.loss(batch)
        updater.accumulate(loss)
        return loss.merged()

    def step(self, batch: Any) -> tuple[str, Mapping[str, Any]]:
        """Run one training step; return text for the log, which may be empty, and the outputs."""
        return "", self.train_step(batch, self.run.updater)

    def run_model(self, batch: Any, needs_loss: bool) -> Mapping[str, Any]:
        """Return the outputs for an evaluation batch; with `needs_loss`, also compute and log the loss."""
        outputs = self.run.model.forward(batch)
        if not needs_loss:
            return outputs
        outputs = loss_of(self.run.model, outputs, batch).merged()
        log_loss(self.run, outputs)
        return outputs

    def probe(self, batch: Any) -> object:
        """Run the model on a batch only to see its inner values: without loss, output pipes and search."""
        return self.run_model(batch, needs_loss=False)

    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]:
        """Run one evaluation step, including the output pipes."""
        batch = self.to_device(batch)
        outputs: Any = self.run_model(batch, needs_loss)
        for pipe in self.outputpipes:
            outputs = pipe(outputs, batch)
            if outputs is None and pipe is not self.outputpipes[-1]:
                self._warn(pipe, "returned None, which the next output pipe receives; return the outputs")
        return "", outputs

    def begin_eval(self, split: str, **kwargs: object) -> None:
        for pipe in self.evalpipes:
            pipe.begin_eval(split, **kwargs)

    def end_eval(self, split: str, **kwargs: Any) -> dict[str, Any]:
        """Pass the scores through the evaluation pipes and return the result of the last one."""
        loss = self.run.metrics.current.mean("loss")
        if loss is not None:
            kwargs.setdefault("loss", loss)
        for pipe in self.evalpipes:
            scores = pipe(split, **kwargs)
            if scores is None:
                self._warn(pipe, "returned None, so the scores are unchanged; return a dict of scores")
            elif isinstance(scores, Mapping):
                kwargs = dict(scores)
            else:
                text = f"the eval pipe {title(pipe)} returned a {type(scores).__name__}; expected a dict of scores"
                raise AlchemyError(text, section="task.evalpipes", hint="return {**kwargs, name: value}")
        return kwargs

    def report_options(self) -> dict[str, str]:
        """Return extra options for reports, such as the tagging `scheme` or the `other` class of relations."""
        return {}

    def row_writer(self, folder: Path) -> Callable[[Any], Any]:
        """Return a function that prepares prediction rows for a table; masks become files in `folder`."""
        return lambda rows: rows

    def _warn(self, pipe: object, text: str) -> None:
        if title(pipe) not in self._warned:
            self._warned.add(title(pipe))
            logger.warning("{} {}", title(pipe), text)

    def to_device(self, batch: Any) -> Any:
        """Move the batch to the device of the model; copies from pinned memory do not block."""
        device = self.run.device
        if device is None or device.type == "cpu":
            return batch
        return batch_to_device(batch, device, non_blocking=True)


@AlchemyTask.register("Default")
class DefaultTask(AlchemyTask):
    """A task that is fully defined by its config: data from pipes, scores from evaluation pipes."""

    produces = ("loss",)


def loss_of(model: AlchemyModel, outputs: object, batch: object) -> Loss:
    """Return `model.loss(outputs, batch)`; raise an error if `forward` or `loss` returned an unexpected type."""
    name = type(model).__name__
    if not isinstance(outputs, Mapping):
        hint = "return a dict of outputs, for example {'logits': logits}"
        raise AlchemyError(f"{name}.forward returned a {type(outputs).__name__}", section="model", hint=hint)
    loss: object = model.loss(outputs, batch)  # a project may return anything
    if isinstance(loss, Loss):
        return loss
    if not isinstance(loss, tuple) or len(loss) != 2:
        hint = "return a pair: the sum of the losses and their count"
        raise AlchemyError(f"{name}.loss returned a {type(loss).__name__}", section="model", hint=hint)
    return Loss(loss[0], loss[1], outputs)


def build_task(run: Run) -> AlchemyTask:
    """Build the task from `[task]` and the pipes that it does not build itself."""
    table = run.table("task")
    return _fill_pipes(build(AlchemyTask, table, drop=("datasets", "outputpipes", "evalpipes"), section="task"), table)


def _fill_pipes(task: AlchemyTask, table: Mapping[str, Any]) -> AlchemyTask:
    """Build the pipes from the config, unless the constructor of the task has already filled the lists."""
    if not task.outputpipes:
        task.outputpipes = _build_pipes(OutputPipeline, table, "outputpipes")
    if not task.evalpipes:
        task.evalpipes = _build_pipes(EvalPipeline, table, "evalpipes")
    return task


def _build_pipes(kind: type[Registrable], table: Mapping[str, Any], name: str) -> list[Any]:
    return [build(kind, row, section=f"task.{name}.{i}") for i, row in enumerate(table.get(name) or [])]


def load_datasets(run: Run, splits: Collection[str] | None = None) -> None:
    """Load the splits of the config in the order of the file."""
    for split, table in (run.table("task").get("datasets") or {}).items():
        if splits is None or split in splits:
            if not isinstance(table, Mapping):
                raise AlchemyError(f"expected a table, got {table!r}", section=f"task.datasets.{split}")
            run.task.load_dataset(split=split, **table)
