"""From losses to updates: the one place that accumulates, divides, clips, steps and schedules."""

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
    """What became of an update; on a GPU `skipped` is about the one before, since nothing waits for the device."""

    skipped: bool
    grad_norm: Tensor | None
    reason: str = ""


class NotFinite(RunFailed):
    """A loss or a gradient is NaN or infinite, and the config says that training ends there."""


class MicroBatch:
    """The block of one micro-batch: inside `no_sync` where its gradients stay here, and seen by the observer."""

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
    """An update every `period` micro-batches, of the sum of the losses over the sum of their counts: `[backward]`.

    Gradients of sums add up and are divided once, by the count of the whole window over all processes, so the update
    does not depend on how the batch was cut. `window` fixes the batches of an update over all processes instead, for
    batches that are given per device. A loss or gradient that is not finite never reaches the weights:
    `nonfinite = "stop"` ends the run with all that a replay needs, `"skip"` leaves the update out, `"ignore"` does not
    look.

    With several optimizers `accumulate(loss, optim="generator")` is for the parameters of that one alone. Each has its
    own window and steps inside the call that fills it, so that the next loss sees the new weights. A micro-batch in
    which any of them has stepped is one update of the run.
    """

    why_whole = ""  # why a batch cannot be halved when memory runs out

    def __init__(
        self,
        *,
        period: PositiveInt = 1,
        window: PositiveInt | None = None,
        nonfinite: Literal["stop", "skip", "ignore"] = "stop",
    ) -> None:
        self.run: Run = current_run()
        self.nonfinite: str = nonfinite
        self.period = _period(period, window, self.run.group.size)
        self.updates = self.skipped = 0
        self.late = False  # whether the update that was not finite is the one before the last
        self.observer = Observer()
        self._whole = AccumulationWindow(self.run)
        self._named: dict[str, AccumulationWindow] = {}
        self._settled = True  # no named loss came since an update was counted: windows open then are state
        self._start = GradientSeed()
        self._ended = self._moved = False  # whether a window was full since the last update, and weights have changed
        self._joined = False  # whether the losses of now are pieces of one micro-batch
        self._synced = True  # whether the gradients are those of all processes
        self.real = True  # False for a batch that is computed only because other processes have one
        self._warned = False

    # -- a micro-batch
    def micro_batch(self, batch: object, *, last: bool = False, real: bool = True) -> MicroBatch:
        """Around forward and backward; `last` says that no step of the epoch follows.

        Gradients travel between the processes once an update: in its last micro-batch.
        """
        self.real = real
        # several optimizers: DDP knows of one backward pass for each forward only
        self._synced = not self._several and (last or self._whole.steps + 1 >= self.period)
        alone = NOTHING if self._synced else self.run.group.no_sync(self.run.model.model)
        return MicroBatch(self, alone, self.observer.micro_batch(batch))

    @property
    def _several(self) -> bool:
        return isinstance(self.run.optim, Mapping)

    def accumulate(self, loss: Loss, optim: str = "") -> None:
        """Adds the gradients of a loss to those of its window; a named optimizer steps when its window is full."""
        total, count = loss.sum, loss.count
        if not isinstance(total, Tensor) or not total.requires_grad or total.dim():
            total = differentiable(total)
        if loss.is_mean and (self.period > 1 or self.run.group.size > 1):
            self._warn_of_means()
        window = self._window(optim)
        window.begin()
        self.observer.loss(loss, optim)
        if not self.real:
            total, count = total * 0, 0
        elif window.name:
            self._check_whole()
            self.run.metrics.log(f"loss_{window.name}", total.detach(), count)
        divisor = 0.0
        if window.touched:
            window.undo_division()
        elif self.period == 1 and not self._joined and self.run.group.size == 1 and _is_plain(count):
            # a window of one micro-batch: dividing its loss is cheaper than dividing all gradients
            divisor, count = count, 1
        with self.run.precision.gradients(), self.observer.backward():
            scaled = self.run.precision.scale(total)
            start = self._start.like(scaled, 1 / divisor if divisor else 1.0)
            (window if window.name else self).differentiate(scaled, start)
        window.add(total, count)
        window.divisor = divisor  # only now: a backward pass without memory leaves the window as it was
        if window.name and not self._joined:
            self._end_step(window)

    def differentiate(self, loss: Tensor, start: Tensor) -> None:
        """Adds the gradients of `start` times a loss; frees its graph at once: only they are kept over the window."""
        loss.backward(start)

    def end_micro_batch(self) -> None:
        """Counts the micro-batch whose losses have come; `micro_batch` does it where nobody else has."""
        if self._whole.touched and not self._joined:
            self._whole.steps += 1
            self._whole.touched = False

    def leave_micro_batch(self) -> None:
        self.end_micro_batch()
        if self._ended and self._several:
            self._count_update()

    def _end_step(self, window: AccumulationWindow) -> None:
        window.steps += 1
        window.touched = False
        if window.steps >= self.period:
            self._update(window)

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Inside, all losses are those of one micro-batch: the pieces of a batch that did not fit into memory."""
        outer, self._joined = self._joined, True
        try:
            yield
        finally:
            self._joined = outer

    def _check_whole(self) -> None:
        if self._joined:
            text = "out of memory (not halved: a loss of the second half would see weights that the first has changed)"
            raise RunFailed(text, hint="lower batch_size and raise [backward] period")

    # -- windows
    def _window(self, name: str) -> AccumulationWindow:
        """The window that a loss goes into: one for all parameters, or one for each name; never both in one run."""
        if not name:
            if not self._named:
                return self._whole
            names = ", ".join(map(repr, self._named))
            hint = f"give every loss its optimizer, as accumulate(loss, optim={next(iter(self._named))!r})"
            raise AlchemyError(f"a loss is for all optimizers, others are for {names}", section="optim", hint=hint)
        self._settled = False
        return self._named.get(name) or self._open(name)

    def _open(self, name: str) -> AccumulationWindow:
        if not isinstance(self.run.optim, Mapping):
            hint = f"give each a table, as [optim.{name}]"
            raise AlchemyError(
                f"a loss is for the optimizer {name!r}, and there is only one", section="optim", hint=hint
            )
        self.run.optim[name]  # raises where there is none of that name
        if self._whole.touched or self._whole.steps or self._whole.updates:
            hint = "name one for every loss, or for none"
            raise AlchemyError(f"a loss is for {name!r}, others were for all optimizers", section="optim", hint=hint)
        self._named[name] = AccumulationWindow(self.run, name)
        return self._named[name]

    @property
    def _windows(self) -> list[AccumulationWindow]:
        return [self._whole, *self._named.values()]

    @property
    def is_open(self) -> bool:
        """Whether gradients wait for the rest of their window."""
        waiting = any(window.steps for window in self._named.values())
        return self._whole.steps > 0 or (not self._settled and waiting)

    @property
    def is_full(self) -> bool:
        """Whether the window of all parameters is complete: the loop makes its update."""
        return self._whole.steps >= self.period

    @property
    def has_moved(self) -> bool:
        """Whether an optimizer has stepped in an update that is not complete."""
        return self._moved

    @property
    def attempts(self) -> int:
        """The updates of all optimizers, made or skipped: several may take part in an update of the run."""
        return sum(window.updates for window in self._named.values()) or self.updates

    @property
    def position(self) -> Any:
        """Where the windows stand; a step that failed before it changed anything leaves them as they were."""
        return [window.position for window in self._windows]

    def drop_window(self) -> None:
        """Forgets the micro-batches of a window that did not become an update."""
        for window in self._windows:
            window.clear()
        self._ended = self._moved = False

    # -- an update
    def step(self) -> StepResult:
        """The update of the window of all parameters."""
        return self._update(self._whole)

    def flush(self) -> None:
        """Makes the update of windows that the end of an epoch has cut short."""
        for window in self._windows:
            if window.steps:
                self._update(window)
        if self._ended:
            self._count_update()

    def _update(self, window: AccumulationWindow) -> StepResult:
        run, optim = self.run, window.optim
        if not self._synced or window.name:  # or the epoch was shorter than its loader said, or had no length
            run.group.average_grads(optim.params)
        else:  # what DDP does not know: learnt in a loss, thawed since, or of a module that was put in its place
            run.group.average_grads(run.group.unshared(run.model.model, optim))
        run.precision.unscale(optim)
        count, flag = self._over_all_processes(window)
        if isinstance(count, Tensor):
            optim.multiply_grads(torch.where(count > 0, run.group.size / count, 0.0))
        elif count > 0 and count != run.group.size:
            optim.multiply_grads(run.group.size / count)
        with self.observer.update(optim):
            result = self._step(window, flag)
        self._moved = self._moved or not result.skipped or self.late
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
        """Clips and steps, unless the loss, a gradient or the scale forbids it."""
        optim, precision, self.late = window.optim, self.run.precision, False
        if precision.scales:
            if self.nonfinite != "ignore" and not math.isfinite(float(flag)):
                return self._refuse(window, flag)  # a lower scale would not help a loss
            if not precision.accepts(optim):  # a scale that was too large, which is now smaller
                self._skip()
                return StepResult(True, None, "the scale of half precision was too large")
        if self.nonfinite != "ignore":
            norm = optim.measure()
            if norm is not None and norm.device.type != "cpu":
                return self._step_on_device(window, norm, flag)
            # reading a number back is free here
            if norm is not None and not math.isfinite(norm.item() + float(flag)):
                return self._refuse(window, flag)
        optim.step()
        precision.after_step()
        return StepResult(False, optim.grad_norm)

    def _step_on_device(self, window: AccumulationWindow, norm: Tensor, flag: float | Tensor) -> StepResult:
        """Without waiting for the device where the optimizer can be masked there; the flag is read an update later."""
        optim, finite = window.optim, torch.isfinite(norm + flag)
        if not optim.masks:
            if not bool(finite):
                return self._refuse(window, flag)
            optim.step()
        else:
            before, window.finite = window.finite, finite
            self.late = before is not None and not bool(before)
            if self.late and self.nonfinite == "stop":
                window.finite = None
                return self._refuse(window, flag)
            with optim.masked(~finite):
                optim.step()
        self.run.precision.after_step()
        return self._refuse(window, flag) if self.late else StepResult(False, optim.grad_norm)

    def _refuse(self, window: AccumulationWindow, flag: float | Tensor) -> StepResult:
        """An update that would have put NaN into the weights was not made."""
        what = "the loss" if not math.isfinite(float(flag)) else "the gradient"
        whose = f" of {window.name!r}" if window.name else ""
        text = f"{what}{whose} is not finite in update {self.updates + (not self.late)}"
        if self.nonfinite == "stop":
            hint = f'the weights{whose} are those before it; nonfinite = "skip" in [backward] leaves such updates out'
            raise NotFinite(text, hint=hint)
        self._skip()
        if self.skipped <= 10 or self.skipped % 100 == 0:
            logger.warning("{}: it is skipped ({} so far)", text, self.skipped)
        return StepResult(True, window.optim.grad_norm, text)

    def _skip(self) -> None:
        self.skipped += 1
        self.run.metrics.log("skipped", 1)

    def _count_update(self) -> None:
        """Once for each update of the run, however many optimizers took part in it."""
        run = self.run
        if self._moved:
            run.average.after_update(self.updates + 1)
        self.observer.schedule()
        sched, before = run.train_sched, run.train_sched.num_updates
        sched.step_lr()
        sched.num_updates = max(sched.num_updates, before + 1)  # one of an old project may not call super
        if not self.updates:
            run.optim.report_missing()  # parameters that the first forward has made
        self.updates += 1
        self._ended = self._moved = False
        self._settled = True

    def _over_all_processes(self, window: AccumulationWindow) -> tuple[float | Tensor, float | Tensor]:
        """The count of the window and the flag of its losses."""
        if self.run.group.size == 1:
            return window.count, window.flag
        count, flag = self.run.agree([float(window.count), float(window.flag)])
        return count, flag

    def _warn_of_means(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "[backward] period = {}, {} process(es): this model gives mean losses, so each micro-batch of an "
                "update weighs the same even if they differ in size; return a sum and its count for the exact gradient",
                self.period,
                self.run.group.size,
            )

    # -- state
    def state_dict(self) -> dict[str, Any]:
        """Counters, and gradients that wait for the rest of their window."""
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


def _is_plain(count: float | Tensor) -> TypeGuard[float]:
    """Whether a count can be divided by without asking a device for it."""
    return not isinstance(count, Tensor) and count > 0


def _period(period: int, window: int | None, ranks: int) -> int:
    """Micro-batches of an update in each process."""
    if window is None:
        return period
    if window % ranks:
        hint = f"make it a multiple of {ranks}"
        raise AlchemyError(f"window = {window} cannot be shared by {ranks} processes", section="backward", hint=hint)
    return window // ranks
