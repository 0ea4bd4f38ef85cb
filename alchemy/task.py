"""The contract of a task: its data, one step of training, one step of evaluation, and the scores."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
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
    """Data sets and the steps on them. A subclass adds what its data need: labels, vocabulary, tokenizer.

    `outputpipes` and `evalpipes` may be filled in the constructor of a subclass; lists that are still empty after it
    are filled from the config.
    """

    writes_texts: ClassVar[bool] = False  # whether it takes `search`, `limits`, `tokens` and `alignments`
    labels: Sequence[str] = ()  # what the numbers of classes stand for, if the task knows it
    # the scores that it gives without pipes, for `alchemy check` of monitors; `{"key=value": (..)}` under a condition
    produces: ClassVar[tuple[str, ...] | Mapping[str, tuple[str, ...]]]
    reads: ClassVar[str] = "input_ids"  # the field by whose length questions are put together
    # the score of dev that `[checkpoint] monitor` means if nothing in the config says what is best, and its mode
    main_score: str = ""
    main_mode: Literal["max", "min"] = "max"
    # what `[task.data]` stands for: the pipe that reads its files, and the loader's option that limits a batch
    processor: ClassVar[str] = ""
    batches: ClassVar[dict[str, int]] = {"batch_size": 32}

    def __init__(self) -> None:
        self.run = current_run()

    # made when they are first used: the constructor of a subclass may not call ours
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
        """The task named `ty`, as runners of a project build it: its pipes are there too."""
        task = super().from_registry(ty, *args, **kwargs)
        return _fill_pipes(task, task.cfg)

    @property
    def cfg(self) -> Any:
        """The `[task]` table."""
        return self.run.table("task")

    # -- data
    def load_dataset(self, split: str, **kwargs: Any) -> None:
        """Builds the data set of a split from its table: `pipes`, and for the rest arguments of the DataLoader."""
        pipes = kwargs.pop("pipes", None)
        if not pipes:
            raise AlchemyError(
                "a data set needs 'pipes', unless the task loads it itself",
                section=f"task.datasets.{split}",
                hint='name its parts: pipes = [{ type = "..." }, ..]',
            )
        self._datasets[split] = (build_datapipes(pipes, section=f"task.datasets.{split}"), kwargs)

    @property
    def splits(self) -> dict[str, tuple[Any, dict[str, Any]]]:
        """The data set of each split that is loaded, with the arguments of its loader."""
        return self._datasets

    def dataset(self, split: str) -> tuple[Any, dict[str, Any]]:
        """The data set of a split and the arguments of its loader."""
        if split not in self._datasets:
            there = ", ".join(self._datasets) or "none"
            raise AlchemyError(
                f"there is no data set for the split {split!r}; loaded: {there}",
                section="task.datasets",
                hint=did_you_mean(split, self._datasets) or f"add [task.datasets.{split}] to the config",
            )
        pair = self._datasets[split]
        if not isinstance(pair, tuple | list) or len(pair) != 2 or not isinstance(pair[1], Mapping):
            raise AlchemyError(
                f"{type(self).__name__}._datasets[{split!r}] is a {type(pair).__name__}; a pair is expected: "
                "the data set, and a dict with the arguments of its loader",
                section=f"task.datasets.{split}",
                hint=f"write self._datasets[{split!r}] = (dataset, kwargs)",
            )
        return pair[0], dict(pair[1])

    def max_positions(self) -> int | None:
        """The longest input that the task takes; None when there is no limit."""
        return None

    # -- steps
    def loss(self, batch: Any) -> Loss:
        """The loss of a batch in training, as a sum and its count."""
        batch = self.to_device(batch)
        return loss_of(self.run.model, self.run.model.forward(batch), batch)

    def train_step(self, batch: Any, updater: Updater) -> Mapping[str, Any]:
        """Hands the losses of a micro-batch to the updater; several optimizers have one each, by name."""
        loss = self.loss(batch)
        updater.accumulate(loss)
        return loss.merged()

    def step(self, batch: Any) -> tuple[str, Mapping[str, Any]]:
        """One step of training: a text for the log (may be empty) and the outputs."""
        return "", self.train_step(batch, self.run.updater)

    def run_model(self, batch: Any, needs_loss: bool) -> Mapping[str, Any]:
        """The outputs for a batch of an evaluation; with `needs_loss` its loss is among them, and in the metrics."""
        outputs = self.run.model.forward(batch)
        if not needs_loss:
            return outputs
        outputs = loss_of(self.run.model, outputs, batch).merged()
        log_loss(self.run, outputs)
        return outputs

    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]:
        """One step of evaluation; only here the output pipes run."""
        batch = self.to_device(batch)
        outputs: Any = self.run_model(batch, needs_loss)
        for pipe in self.outputpipes:
            outputs = pipe(outputs, batch)
            if outputs is None and pipe is not self.outputpipes[-1]:
                self._warn(pipe, "returned None, so the output pipes after it are given None; return the outputs")
        return "", outputs

    def begin_eval(self, split: str, **kwargs: object) -> None:
        for pipe in self.evalpipes:
            pipe.begin_eval(split, **kwargs)

    def end_eval(self, split: str, **kwargs: Any) -> dict[str, Any]:
        """Threads the scores through the evaluation pipes and returns what the last one gave."""
        loss = self.run.metrics.current.mean("loss")
        if loss is not None:
            kwargs.setdefault("loss", loss)
        for pipe in self.evalpipes:
            scores = pipe(split, **kwargs)
            if scores is None:
                self._warn(pipe, "returned None; the scores before it go on unchanged: return a dict, as **kwargs is")
            elif isinstance(scores, Mapping):
                kwargs = dict(scores)
            else:
                text = f"the eval pipe {title(pipe)} returned a {type(scores).__name__}; a dict of scores is expected"
                raise AlchemyError(text, section="task.evalpipes", hint="return {**kwargs, name: value}")
        return kwargs

    def report_options(self) -> dict[str, str]:
        """What the answers mean beyond their labels, for a report: the `scheme` of tags, the `other` of relations."""
        return {}

    def _warn(self, pipe: object, text: str) -> None:
        if title(pipe) not in self._warned:
            self._warned.add(title(pipe))
            logger.warning("{} {}", title(pipe), text)

    def to_device(self, batch: Any) -> Any:
        """The batch where the model is; copies from pinned memory do not wait."""
        device = self.run.device
        if device is None or device.type == "cpu":
            return batch
        return batch_to_device(batch, device, non_blocking=True)


@AlchemyTask.register("Default")
class DefaultTask(AlchemyTask):
    """A task with nothing of its own: data from the pipes, scores from the evaluation pipes."""

    produces = ("loss",)


def loss_of(model: AlchemyModel, outputs: object, batch: object) -> Loss:
    """What `model.loss` returns; raises an error that says what `forward` and `loss` should have returned."""
    name = type(model).__name__
    if not isinstance(outputs, Mapping):
        hint = "return a dict of outputs, as {'logits': logits}"
        raise AlchemyError(f"{name}.forward returned a {type(outputs).__name__}", section="model", hint=hint)
    found: object = model.loss(outputs, batch)  # whatever a project returns
    if isinstance(found, Loss):
        return found
    if not isinstance(found, tuple) or len(found) != 2:
        hint = "return the sum of the losses and their count, as a pair"
        raise AlchemyError(f"{name}.loss returned a {type(found).__name__}", section="model", hint=hint)
    return Loss(found[0], found[1], outputs)


def build_task(run: Run) -> AlchemyTask:
    """The task of `[task]`, with the pipes it has not built itself."""
    table = run.table("task")
    return _fill_pipes(build(AlchemyTask, table, drop=("datasets", "outputpipes", "evalpipes"), section="task"), table)


def _fill_pipes(task: AlchemyTask, table: Mapping[str, Any]) -> AlchemyTask:
    """Builds the pipes of the config where the constructor has left a list empty; never twice."""
    if not task.outputpipes:
        task.outputpipes = _build_pipes(OutputPipeline, table, "outputpipes")
    if not task.evalpipes:
        task.evalpipes = _build_pipes(EvalPipeline, table, "evalpipes")
    return task


def _build_pipes(kind: type[Registrable], table: Mapping[str, Any], name: str) -> list[Any]:
    return [build(kind, row, section=f"task.{name}.{i}") for i, row in enumerate(table.get(name) or [])]


def load_datasets(run: Run, splits: Collection[str] | None = None) -> None:
    """Lets the task load every split of the config, in the order of the file."""
    for split, table in (run.table("task").get("datasets") or {}).items():
        if splits is None or split in splits:
            if not isinstance(table, Mapping):
                raise AlchemyError(f"must be a table, not {table!r}", section=f"task.datasets.{split}")
            run.task.load_dataset(split=split, **table)
