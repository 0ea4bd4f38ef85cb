"""Schedule pipes that log images and distributions every few updates: inputs, outputs, weights and gradients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from alchemy.constraints import PositiveInt
from alchemy.context import Run
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.nn.param_groups import matches
from alchemy.pipeline import BeginStepPipeline, EndStepPipeline, SchedPipeline

__all__ = ["LogGradients", "LogHistograms", "LogImages", "LogWeights"]


@runtime_checkable
class _RestoresImages(Protocol):
    """A task that normalizes images and can undo it."""

    def restore_image(self, image_CHW: Tensor) -> np.ndarray: ...


@SchedPipeline.register()
class LogImages(BeginStepPipeline):
    """Logs the first `limit` images of a training batch every `every` updates, as the model sees them.

    `field` is the field of the batch with the images. Image tasks undo their normalization first.
    """

    def __init__(self, *, every: PositiveInt = 500, field: str = "image", limit: PositiveInt = 16) -> None:
        super().__init__()
        self.every, self.field, self.limit = every, field, limit

    def __call__(self, batch: Any = None, **kwargs: object) -> dict[str, Any]:
        images = _read_field(batch, self.field, "batch", self)
        # of the micro-batches of an update, only the first is logged
        if self.run.update % self.every == 0 and not self.run.mid_window:
            task, shown = self.run.task, list(images[: self.limit])
            if isinstance(task, _RestoresImages):
                shown = [task.restore_image(image) for image in shown]
            self.run.log_images(f"train/{self.field}", shown)
        return kwargs


@SchedPipeline.register()
class LogHistograms(EndStepPipeline):
    """Logs the distribution of one or more `fields` of the model's outputs every `every` updates, such as `logits`."""

    def __init__(self, *, fields: str | Sequence[str] = "logits", every: PositiveInt = 500) -> None:
        super().__init__()
        self.every, self.fields = every, [fields] if isinstance(fields, str) else list(fields)

    def __call__(self, outputs: Any = None, **kwargs: object) -> dict[str, Any]:
        values = {name: _read_field(outputs, name, "outputs", self) for name in self.fields}
        if _is_due(self.run.update, self.every) and not self.run.mid_window:
            for name, value in values.items():
                self.run.log_histogram(f"train/{name}", value)
        return kwargs


@SchedPipeline.register()
class LogWeights(EndStepPipeline):
    """Logs the distributions of the parameters that match `pattern`, one or more globs, every `every` updates."""

    def __init__(self, *, every: PositiveInt = 500, pattern: str | Sequence[str] = "*") -> None:
        super().__init__()
        self.every = every
        self.params = match_parameters(self.run, pattern)

    def __call__(self, outputs: object = None, **kwargs: object) -> dict[str, Any]:
        if _is_due(self.run.update, self.every) and not self.run.mid_window:
            for name, param in self.params.items():
                self.run.log_histogram(f"weights/{name}", param)
        return kwargs


@SchedPipeline.register()
class LogGradients(BeginStepPipeline):
    """Logs the distributions of gradients every `every` updates, as the optimizer sees them: divided and clipped."""

    def __init__(self, *, every: PositiveInt = 500, pattern: str | Sequence[str] = "*") -> None:
        super().__init__()
        self.every, self._is_due = every, False
        self._names = {id(param): name for name, param in match_parameters(self.run, pattern).items()}
        # gradients are freed at the end of an update, before any pipe is called
        self.run.exits.callback(register_optimizer_step_pre_hook(self._before_step).remove)

    def __call__(self, batch: object = None, **kwargs: object) -> dict[str, Any]:
        self._is_due = _is_due(self.run.update + 1, self.every)
        return kwargs

    def _before_step(self, optimizer: Optimizer, *args: object) -> None:
        if self._is_due:
            update = self.run.update + 1
            for param in (param for group in optimizer.param_groups for param in group["params"]):
                if id(param) in self._names and param.grad is not None:
                    self.run.log_histogram(f"gradients/{self._names[id(param)]}", param.grad, update=update)


def match_parameters(run: Run, pattern: str | Sequence[str]) -> dict[str, nn.Parameter]:
    """Return the parameters of the model that match a glob, or one of several; raise if a glob matches none."""
    params: dict[str, nn.Parameter] = dict(run.model.named_parameters())
    patterns = [pattern] if isinstance(pattern, str) else list(pattern)
    for glob in patterns:
        if not any(matches(name, glob) for name in params):
            heads = sorted({name.partition(".")[0] for name in params})
            hint = did_you_mean(glob, [*heads, *params]) or f"available: {', '.join(heads)}"
            raise AlchemyError(f"no parameter matches {glob!r}", section="sched.pipes", hint=hint)
    return {name: param for name, param in params.items() if any(matches(name, glob) for glob in patterns)}


def _is_due(update: int, every: int) -> bool:
    """Return whether to log after an update: the first one, and every multiple, so that a resumed run logs the same."""
    return update == 1 or update % every == 0


def _read_field(values: Any, name: str, where: str, pipe: SchedPipeline) -> Any:
    if isinstance(values, Mapping) and name in values:
        return values[name]
    known = sorted(map(str, values)) if isinstance(values, Mapping) else []
    hint = did_you_mean(name, known) or f"available: {', '.join(known)}" if known else f"the {where} is no mapping"
    raise AlchemyError(f"{type(pipe).__name__}: no field {name!r} in the {where}", section="sched.pipes", hint=hint)
