"""Adapt models, backward handlers and tasks written for alchemy 0.x."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from typing import Any

from torch import Tensor

from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.legacy.backward import BackwardHandler, DefaultBackwardHandler
from alchemy.loop import log_loss
from alchemy.loss_observer import Loss, Observer
from alchemy.model import AlchemyModel
from alchemy.nn.loss_reduction import mean
from alchemy.null_objects import Stateful, Updater
from alchemy.registry import construct
from alchemy.task import AlchemyTask, loss_of
from alchemy.update import GradientUpdater, StepResult

UPDATER = "alchemy.update.GradientUpdater"  # default type of [backward]


def adapt(run: Run, task: AlchemyTask, model: AlchemyModel) -> None:
    """Connect a legacy model to a current task, or a current model to a legacy task; otherwise change nothing."""
    kind = type(task)
    if _is_legacy(model, kind):
        legacy = _LegacyModel(run, model)
        task.run_model = legacy.run_model  # type: ignore[method-assign]
        if kind.train_step is AlchemyTask.train_step:
            task.train_step = legacy.train_step  # type: ignore[method-assign]
    elif _is_user_defined(kind.step) or _is_user_defined(kind.eval_step):
        model.forward = _LegacyForward(run, model.forward)  # type: ignore[method-assign]
    else:
        _check_forward(model)
    if _is_user_defined(kind.eval_step):
        task.eval_step = _LegacyEvalStep(task.eval_step)  # type: ignore[method-assign]


class _LegacyEvalStep:
    """Wrapper for an `eval_step` that returns only a string or only the outputs."""

    def __init__(self, eval_step: Callable[..., Any]) -> None:
        self.eval_step = eval_step

    def __call__(self, batch: object, *args: object, **kwargs: object) -> tuple[str, Any]:
        result = self.eval_step(batch, *args, **kwargs)
        if isinstance(result, tuple) and len(result) == 2:
            return result
        return (result, None) if isinstance(result, str) else ("", result)


def adapt_run(run: Run, model: AlchemyModel) -> None:
    """Prepare a run whose legacy runner built `model` itself."""
    if run.task is not None:
        adapt(run, run.task, model)
    run.updater = build_updater(run, model)


def _check_forward(model: AlchemyModel) -> None:
    """Raise an error if `forward` cannot be called with only a batch."""
    signature = inspect.signature(model.forward)
    try:
        signature.bind(None)
    except TypeError as error:
        text = f"{type(model).__name__}.forward{signature} cannot be called with a batch: {error}"
        raise AlchemyError(text, section="model", hint="define forward(self, batch)") from error


def _is_legacy(model: AlchemyModel, task: type[AlchemyTask]) -> bool:
    """Return whether `forward` accepts `needs_loss` and trains the model itself."""
    names = inspect.signature(model.forward).parameters
    if "needs_loss" in names:
        return True
    takes_any = any(row.kind is inspect.Parameter.VAR_KEYWORD for row in names.values())
    has_loss = type(model).loss is not AlchemyModel.loss
    return takes_any and not has_loss and not _is_user_defined(task.loss) and not _is_user_defined(task.train_step)


def _is_user_defined(step: Callable[..., object]) -> bool:
    """Return whether a task method is defined by the project rather than by alchemy."""
    return not step.__module__.startswith("alchemy.")


class _LegacyModel:
    """Task steps for a model whose `forward` calls `self.backward.backward(..)`."""

    def __init__(self, run: Run, model: AlchemyModel) -> None:
        self.run, self.model = run, model
        self._calls = 0

    def train_step(self, batch: object, updater: object) -> MutableMapping[str, Any]:
        outputs = self._forward(self.run.task.to_device(batch), needs_loss=True, requires_grad=True)
        loss = get_loss(self.model, outputs)
        if isinstance(loss, Tensor) and loss.requires_grad:  # a loss returned by a handler has no graph
            self._check_trained()
        return outputs

    def run_model(self, batch: object, needs_loss: bool) -> MutableMapping[str, Any]:
        outputs = self._forward(batch, needs_loss=needs_loss, requires_grad=False)
        if needs_loss:
            get_loss(self.model, outputs)
            log_loss(self.run, outputs)
        return outputs

    def _forward(self, batch: object, **options: bool) -> MutableMapping[str, Any]:
        forward: Callable[..., MutableMapping[str, Any]] = self.model.forward  # type: ignore[assignment]
        return forward(batch, **options)

    def _check_trained(self) -> None:
        """Raise an error if `forward` returned a loss without passing it to the backward handler."""
        handler = self.model.backward
        if not isinstance(handler, DefaultBackwardHandler):  # the project defines it
            return
        before, self._calls = self._calls, handler.calls
        # a model that trains itself has gradients or updates
        idle = not self.run.train_sched.num_updates and all(p.grad is None for p in self.model.parameters())
        if handler.calls == before and idle:
            raise AlchemyError(
                f"{type(self.model).__name__}.forward did not call self.backward.backward, so the model is not trained",
                section="model",
                hint="define forward(self, batch) and loss(self, outputs, batch); the loop then trains it",
            )


class _LegacyForward:
    """Wrapper for a current `forward`, for tasks that call it with `needs_loss` and `requires_grad`."""

    def __init__(self, run: Run, forward: Callable[[Any], Mapping[str, Any]]) -> None:
        self.run, self.forward = run, forward

    def __call__(
        self, batch: object, needs_loss: bool | None = None, requires_grad: bool = False, **kwargs: object
    ) -> Mapping[str, Any]:
        outputs = self.forward(batch)
        if not needs_loss:
            return outputs
        loss = loss_of(self.run.model, outputs, batch)
        if requires_grad:
            self.run.updater.accumulate(loss)
        return loss.merged()


def get_loss(model: object, outputs: object) -> Any:
    """Return the loss from the outputs of a legacy `forward`; raise an error if it is missing or not a scalar."""
    if isinstance(outputs, Mapping) and "loss" in outputs:
        loss = outputs["loss"]
        if not isinstance(loss, Tensor) or not loss.dim() or loss.numel() == 1:
            return loss
        raise AlchemyError(
            f"the 'loss' returned by {type(model).__name__}.forward has shape {list(loss.shape)}; expected a scalar",
            section="model",
            hint="return the value of self.backward.backward(loss_sum, count=n)",
        )
    names = ", ".join(map(repr, outputs)) if isinstance(outputs, Mapping) else ""
    got = f"a dict with {names or 'nothing'}" if isinstance(outputs, Mapping) else type(outputs).__name__
    raise AlchemyError(
        f"{type(model).__name__}.forward(needs_loss=True) returned {got}",
        section="model",
        hint="return a dict with 'loss', the value of self.backward.backward(...)",
    )


# -- handlers
def build_updater(run: Run, model: AlchemyModel) -> Updater:
    """Build the updater from `[backward]`. A handler defined by the project makes its own updates."""
    if run.table("backward").get("type", UPDATER) == UPDATER and not model.has_handler:
        updater: GradientUpdater = construct(GradientUpdater, run.table("backward"), section="backward")
        return updater
    handler = model.backward
    return handler.make_updater() if isinstance(handler, DefaultBackwardHandler) else _HandlerUpdater(run)


class _HandlerUpdater:
    """An updater for legacy handlers that make the updates themselves, inside `forward`."""

    skipped, has_stepped, late, is_full = 0, False, False, False
    nonfinite = "ignore"  # left to the handler

    def __init__(self, run: Run) -> None:
        self.run = run
        self.observer = Observer()

    @property
    def handler(self) -> BackwardHandler:
        return self.run.model.backward

    @property
    def period(self) -> int:
        return int(self.handler.period)

    @period.setter
    def period(self, steps: int) -> None:
        self.handler.period = steps

    @property
    def updates(self) -> int:
        return self.run.update

    @property
    def attempts(self) -> int:
        return self.run.update

    @property
    def is_open(self) -> bool:
        return self.handler.is_open

    @property
    def position(self) -> object:
        return self.run.update

    @property
    def no_split_reason(self) -> str:
        return f"{type(self.handler).__name__} makes its updates itself"

    @contextlib.contextmanager
    def micro_batch(self, batch: object, *, last: bool = False, real: bool = True) -> Iterator[None]:
        before = self.run.update
        with self.observer.micro_batch(batch):
            yield
        if self.run.update != before:
            self.run.agree()  # the handler does not synchronize signals between processes

    def accumulate(self, loss: Loss, optim: str = "") -> None:
        """Pass the loss of a current model to the handler, with the name of its optimizer if it has one."""
        self.observer.loss(loss, optim)
        backward: Any = self.handler.backward
        named = {"optim": optim} if optim else {}
        if "count" in inspect.signature(backward).parameters:
            backward(loss.sum, count=loss.count, **named)
        else:
            backward(mean(loss.sum, loss.count), **named)

    def end_micro_batch(self) -> None:
        pass

    def step(self) -> StepResult:
        return StepResult(False, None)

    def flush(self) -> None:
        self.handler.flush()

    def drop_window(self) -> None:
        pass

    @contextlib.contextmanager
    def merge_losses(self) -> Iterator[None]:
        yield

    def state_dict(self) -> dict[str, Any]:
        return {"handler": self.handler.state_dict()} if isinstance(self.handler, Stateful) else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if "handler" in state and isinstance(self.handler, Stateful):
            self.handler.load_state_dict(state["handler"])
