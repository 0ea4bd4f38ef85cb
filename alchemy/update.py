"""Turn losses into parameter updates: accumulate, divide, clip, step the optimizer and the schedule."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, NamedTuple, TypeGuard

import torch
from loguru import logger
from torch import Tensor

from alchemy.accumulation import AccumulationWindow
from alchemy.constraints import PositiveInt
from alchemy.context import Run, current_run
from alchemy.errors import AlchemyError, RunFailed
from alchemy.loss_observer import Loss, Observer
from alchemy.nn.loss_reduction import GradientSeed, differentiable

NOTHING: contextlib.nullcontext[None] = contextlib.nullcontext()


class StepResult(NamedTuple):
    """The result of an update. On a GPU, `skipped` refers to the previous update, to avoid waiting for the device."""

    skipped: bool
    grad_norm: Tensor | None
    reason: str = ""


class NotFinite(RunFailed):
    """Raised for a NaN or infinite loss or gradient with `nonfinite = "stop"`."""


class MicroBatch:
    """Context manager around one micro-batch: enters the observer, and `no_sync` if the gradients stay local."""

    def __init__(self, updater: GradientUpdater, *blocks: contextlib.AbstractContextManager[Any]) -> None:
        self.updater, self.blocks = updater, blocks

    def __enter__(self) -> None:
        for block in self.blocks:
            block.__enter__()

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        for block in reversed(self.blocks):
            block.__exit__(kind, error, trace)
        if error is None:
            self.updater.leave_micro_batch()


class GradientUpdater:
    """Gradient accumulation (`[backward]`): one update every `period` micro-batches.

    The gradients of summed losses are added up and divided once, by the count of the whole window over all processes,
    so the update does not depend on how the batch is split. `window` sets the number of batches per update over all
    processes instead, for batches that are defined per device. A non-finite loss or gradient never reaches the weights:
    `nonfinite = "stop"` ends the run and saves a state to replay, `"skip"` skips the update, `"ignore"` disables the
    check.

    With several optimizers, `accumulate(loss, optim="generator")` updates only the parameters of that optimizer. Each
    optimizer has its own window and steps as soon as the window is full, so that the next loss sees the new weights. A
    micro-batch in which at least one optimizer steps counts as one update of the run.
    """

    no_split_reason = ""  # why a batch cannot be split when memory runs out

    def __init__(
        self,
        *,
        period: PositiveInt = 1,
        window: PositiveInt | None = None,
        nonfinite: Literal["stop", "skip", "ignore"] = "stop",
    ) -> None:
        self.run: Run = current_run()
        self.nonfinite: str = nonfinite
        self.period = _period_of(period, window, self.run.group.size)
        self.updates = self.skipped = 0
        self.late = False  # whether the non-finite update is the previous one
        self.observer = Observer()
        self._whole = AccumulationWindow(self.run)
        self._named: dict[str, AccumulationWindow] = {}
        self._settled = True  # no named loss since the last counted update, so open windows are part of the state
        self._start = GradientSeed()
        self._ended = self._stepped = False  # since the last update: a window became full, an optimizer stepped
        self._merging = False  # whether the current losses are parts of one micro-batch
        self._synced = True  # whether gradients are synchronized across processes
        self.real = True  # False for a dummy batch, which is computed only because other processes still have a batch
        self._warned = False

    # -- a micro-batch
    def micro_batch(self, batch: object, *, last: bool = False, real: bool = True) -> MicroBatch:
        """Return a context manager around the forward and backward passes; `last` marks the last step of the epoch.

        Processes synchronize gradients once per update, in its last micro-batch.
        """
        self.real = real
        # DDP supports only one backward pass per forward pass, but several optimizers need more
        self._synced = not self._has_several_optims and (last or self._whole.steps + 1 >= self.period)
        sync = NOTHING if self._synced else self.run.group.no_sync(self.run.model.model)
        return MicroBatch(self, sync, self.observer.micro_batch(batch))

    @property
    def _has_several_optims(self) -> bool:
        return isinstance(self.run.optim, Mapping)

    def accumulate(self, loss: Loss, optim: str = "") -> None:
        """Add the gradients of a loss to its window; a named optimizer steps when its window is full."""
        total, count = loss.sum, loss.count
        if not isinstance(total, Tensor) or not total.requires_grad or total.dim():
            total = differentiable(total)
        if loss.is_mean and (self.period > 1 or self.run.group.size > 1):
            self._warn_about_means()
        window = self._window(optim)
        window.begin()
        self.observer.loss(loss, optim)
        if not self.real:
            total, count = total * 0, 0
        elif window.name:
            self._check_not_split()
            self.run.metrics.log(f"loss_{window.name}", total.detach(), count)
        divisor = 0.0
        if window.touched:
            window.undo_division()
        elif self.period == 1 and not self._merging and self.run.group.size == 1 and _is_host_number(count):
            # with one micro-batch per window, dividing the loss is cheaper than dividing all gradients
            divisor, count = count, 1
        with self.run.precision.gradients(), self.observer.backward():
            scaled = self.run.precision.scale(total)
            start = self._start.like(scaled, 1 / divisor if divisor else 1.0)
            (window if window.name else self).differentiate(scaled, start)
        window.add(total, count)
        window.divisor = divisor  # set last: if backward runs out of memory, the window is unchanged
        if window.name and not self._merging:
            self._end_step(window)

    def differentiate(self, loss: Tensor, start: Tensor) -> None:
        """Backpropagate `start` times a loss and free its graph; only the gradients are kept for the window."""
        loss.backward(start)

    def end_micro_batch(self) -> None:
        """Count the current micro-batch; leaving `micro_batch` does this unless the micro-batch is already counted."""
        if self._whole.touched and not self._merging:
            self._whole.steps += 1
            self._whole.touched = False

    def leave_micro_batch(self) -> None:
        self.end_micro_batch()
        if self._ended and self._has_several_optims:
            self._count_update()

    def _end_step(self, window: AccumulationWindow) -> None:
        window.steps += 1
        window.touched = False
        if window.steps >= self.period:
            self._update(window)

    @contextlib.contextmanager
    def merge_losses(self) -> Iterator[None]:
        """Treat all losses in this block as one micro-batch, for the parts of a batch that did not fit into memory."""
        outer, self._merging = self._merging, True
        try:
            yield
        finally:
            self._merging = outer

    def _check_not_split(self) -> None:
        if self._merging:
            text = "out of memory (batch not split: losses of the second half would see weights changed by the first)"
            raise RunFailed(text, hint="lower batch_size and raise [backward] period")

    # -- windows
    def _window(self, name: str) -> AccumulationWindow:
        """Return the window for a loss. A run has one window for all parameters or one per optimizer, never both."""
        if not name:
            if not self._named:
                return self._whole
            names = ", ".join(map(repr, self._named))
            hint = f"name an optimizer for every loss: accumulate(loss, optim={next(iter(self._named))!r})"
            text = f"this loss names no optimizer, but other losses name {names}"
            raise AlchemyError(text, section="optim", hint=hint)
        self._settled = False
        return self._named.get(name) or self._open(name)

    def _open(self, name: str) -> AccumulationWindow:
        if not isinstance(self.run.optim, Mapping):
            hint = f"add a table for each optimizer, for example [optim.{name}]"
            raise AlchemyError(
                f"a loss names the optimizer {name!r}, but there is only one optimizer", section="optim", hint=hint
            )
        self.run.optim[name]  # raises an error for an unknown name
        if self._whole.touched or self._whole.steps or self._whole.updates:
            hint = "name an optimizer for every loss, or for none"
            text = f"this loss names {name!r}, but earlier losses named no optimizer"
            raise AlchemyError(text, section="optim", hint=hint)
        self._named[name] = AccumulationWindow(self.run, name)
        return self._named[name]

    @property
    def _windows(self) -> list[AccumulationWindow]:
        return [self._whole, *self._named.values()]

    @property
    def is_open(self) -> bool:
        """Whether a window is partly filled."""
        waiting = any(window.steps for window in self._named.values())
        return self._whole.steps > 0 or (not self._settled and waiting)

    @property
    def is_full(self) -> bool:
        """Whether the window for all parameters is full, in which case the loop calls `step`."""
        return self._whole.steps >= self.period

    @property
    def has_stepped(self) -> bool:
        """Whether an optimizer has stepped in an update that is still incomplete."""
        return self._stepped

    @property
    def attempts(self) -> int:
        """The number of optimizer updates, made or skipped; one update of the run may include several."""
        return sum(window.updates for window in self._named.values()) or self.updates

    @property
    def position(self) -> Any:
        """The position of each window; unchanged if a step fails before it modifies anything."""
        return [window.position for window in self._windows]

    def drop_window(self) -> None:
        """Discard the micro-batches of an incomplete window."""
        for window in self._windows:
            window.clear()
        self._ended = self._stepped = False

    # -- an update
    def step(self) -> StepResult:
        """Make the update for the window that covers all parameters."""
        return self._update(self._whole)

    def flush(self) -> None:
        """Make the updates for partial windows at the end of an epoch."""
        for window in self._windows:
            if window.steps:
                self._update(window)
        if self._ended:
            self._count_update()

    def _update(self, window: AccumulationWindow) -> StepResult:
        run, optim = self.run, window.optim
        if not self._synced or window.name:  # also if the epoch was shorter than expected or its length is unknown
            run.group.average_grads(optim.params)
        else:  # parameters unknown to DDP: part of a loss, unfrozen later, or part of a replaced module
            run.group.average_grads(run.group.unshared(run.model.model, optim))
        run.precision.unscale(optim)
        count, flag = self._sum_over_processes(window)
        if isinstance(count, Tensor):
            optim.multiply_grads(torch.where(count > 0, run.group.size / count, 0.0))
        elif count > 0 and count != run.group.size:
            optim.multiply_grads(run.group.size / count)
        with self.observer.update(optim):
            result = self._step(window, flag)
        self._stepped = self._stepped or not result.skipped or self.late
        self._ended = True
        window.updates += 1
        if window.name:
            window.log_update()
        else:
            self._count_update()
        optim.zero_grad()
        window.clear()
        return result

    def _step(self, window: AccumulationWindow, flag: float | Tensor) -> StepResult:
        """Clip and step unless the loss, a gradient or the loss scale is invalid."""
        optim, precision, self.late = window.optim, self.run.precision, False
        if precision.scales:
            if self.nonfinite != "ignore" and not math.isfinite(float(flag)):
                return self._reject(window, flag)  # a smaller scale cannot fix a non-finite loss
            if not precision.accepts(optim):  # the scale was too large and has been reduced
                self._skip()
                return StepResult(True, None, "the loss scale was too large")
        if self.nonfinite != "ignore":
            norm = optim.measure()
            if norm is not None and norm.device.type != "cpu":
                return self._step_on_device(window, norm, flag)
            # on the CPU, reading a value needs no synchronization
            if norm is not None and not math.isfinite(norm.item() + float(flag)):
                return self._reject(window, flag)
        optim.step()
        precision.after_step()
        return StepResult(False, optim.grad_norm)

    def _step_on_device(self, window: AccumulationWindow, norm: Tensor, flag: float | Tensor) -> StepResult:
        """Step without waiting for the device if the optimizer can be masked; the flag is read one update later."""
        optim, finite = window.optim, torch.isfinite(norm + flag)
        if not optim.masks:
            if not bool(finite):
                return self._reject(window, flag)
            optim.step()
        else:
            before, window.finite = window.finite, finite
            self.late = before is not None and not bool(before)
            if self.late and self.nonfinite == "stop":
                window.finite = None
                return self._reject(window, flag)
            with optim.masked(~finite):
                optim.step()
        self.run.precision.after_step()
        return self._reject(window, flag) if self.late else StepResult(False, optim.grad_norm)

    def _reject(self, window: AccumulationWindow, flag: float | Tensor) -> StepResult:
        """Skip a non-finite update, or raise `NotFinite`."""
        what = "the loss" if not math.isfinite(float(flag)) else "the gradient"
        whose = f" of {window.name!r}" if window.name else ""
        text = f"{what}{whose} is not finite in update {self.updates + (not self.late)}"
        if self.nonfinite == "stop":
            hint = f'the weights{whose} are unchanged; set nonfinite = "skip" in [backward] to skip such updates'
            raise NotFinite(text, hint=hint)
        self._skip()
        if self.skipped <= 10 or self.skipped % 100 == 0:
            logger.warning("{}: update skipped ({} so far)", text, self.skipped)
        return StepResult(True, window.optim.grad_norm, text)

    def _skip(self) -> None:
        self.skipped += 1
        self.run.metrics.log("skipped", 1)

    def _count_update(self) -> None:
        """Count one update of the run, even if several optimizers stepped."""
        run = self.run
        if self._stepped:
            run.average.after_update(self.updates + 1)
        self.observer.schedule()
        sched, before = run.train_sched, run.train_sched.num_updates
        sched.step_lr()
        sched.num_updates = max(sched.num_updates, before + 1)  # schedulers in older projects may not call super()
        if not self.updates:
            run.optim.report_missing()  # includes parameters created in the first forward pass
        self.updates += 1
        self._ended = self._stepped = False
        self._settled = True

    def _sum_over_processes(self, window: AccumulationWindow) -> tuple[float | Tensor, float | Tensor]:
        """Return the count of the window and the flag of its losses, summed over all processes."""
        if self.run.group.size == 1:
            return window.count, window.flag
        count, flag = self.run.agree([float(window.count), float(window.flag)])
        return count, flag

    def _warn_about_means(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "[backward] period = {}, {} process(es): the model returns mean losses, so micro-batches of different "
                "sizes get the same weight in an update; return a sum and its count for the exact gradient",
                self.period,
                self.run.group.size,
            )

    # -- state
    def state_dict(self) -> dict[str, Any]:
        """Return the counters and the gradients of a partial window."""
        state: dict[str, Any] = {"updates": self.updates, "skipped": self.skipped}
        if self._named:
            state["named"] = {name: list(window.position) for name, window in self._named.items()}
        if any(window.steps for window in self._windows):
            grads = {name: p.grad for name, p in self.run.model.named_parameters() if p.grad is not None}
            state["window"] = {"steps": self._whole.steps, "count": float(self._whole.count), "grads": grads}
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates, self.skipped = int(state["updates"]), int(state["skipped"])
        for name, position in state.get("named", {}).items():
            window = self._named[name] = AccumulationWindow(self.run, name)
            window.updates, window.steps, window.count = position
        saved = state.get("window")
        if saved:
            self._whole.steps, self._whole.count = saved["steps"], saved["count"]
            for window in self._windows:
                window.fresh = not window.steps
            for name, param in self.run.model.named_parameters():
                param.grad = saved["grads"][name].to(param.device).clone() if name in saved["grads"] else None


def _is_host_number(count: float | Tensor) -> TypeGuard[float]:
    """Return whether a count is a positive number that does not have to be read from a device."""
    return not isinstance(count, Tensor) and count > 0


def _period_of(period: int, window: int | None, ranks: int) -> int:
    """Return the number of micro-batches per update in each process."""
    if window is None:
        return period
    if window % ranks:
        hint = f"use a multiple of {ranks}"
        text = f"window = {window} cannot be divided among {ranks} processes"
        raise AlchemyError(text, section="backward", hint=hint)
    return window // ranks
