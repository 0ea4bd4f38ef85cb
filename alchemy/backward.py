"""How losses become gradients, and gradients an update: the handler that owns the one division."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, TypeGuard

import torch
from loguru import logger
from torch import Tensor

from alchemy.context import Run, current_run
from alchemy.errors import AlchemyError, RunFailed, did_you_mean
from alchemy.nn.reduce import Start, by_name, differentiable, mean, weighted_sum
from alchemy.registry import Registrable, filled_from
from alchemy.window import Window, Windows


class BackwardHandler(Registrable):
    """Turns losses into gradients and gradients into updates. A subclass defines `backward`."""

    period: int = 1
    updates: int = 0
    agrees: bool = False  # whether its updates tell the processes of each other's signals
    real: bool = True  # False while the loop runs a batch only because the other processes have one

    def __init__(self) -> None:
        self.run: Run = current_run()

    def backward(
        self,
        losses: Tensor | Sequence[Any],
        weights: Sequence[Any] | None = None,
        requires_grad: bool = True,
        names: Sequence[str] | None = None,
    ) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define backward(losses, weights, requires_grad, names)")

    @property
    def is_open(self) -> bool:
        """Whether gradients wait for the rest of their window."""
        return False

    def micro_step(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Around a step of training; `last` says that no step of the epoch follows."""
        return contextlib.nullcontext()

    def flush(self) -> None:
        """Makes the update of a window that the end of an epoch has cut short."""

    def drop_window(self) -> None:
        """Forgets the steps of a window that did not come to an update."""

    @property
    def has_moved(self) -> bool:
        """Whether an optimiser has stepped in an update that is not complete."""
        return False


@BackwardHandler.register("Default")
class DefaultBackwardHandler(BackwardHandler):
    """An update every `period` steps, of the sum of the losses over the sum of their counts.

    New style, `backward(loss_sum, count=n)`: gradients of sums add up and are divided once, by the count of the whole
    window over all processes, so the update does not depend on how the batch was cut. Old style, without a count: the
    losses are means, each step weighs the same.

    `window` fixes the batches of an update over all processes instead, for batches that are given per device. A loss
    or gradient that is not finite never reaches the weights: `nonfinite = "stop"` ends the run with all that a replay
    needs, `"skip"` leaves the update out, `"ignore"` does not look.

    With several optimisers `backward(loss_sum, count=n, optim="generator")` is for the parameters of that one alone.
    Each has a window of its own and moves inside the call that fills it, so that the next loss sees the new weights. A
    step of training in which any of them has moved is one update of the run.
    """

    agrees = True

    @filled_from(lambda: current_run().table("backward"))
    def __init__(
        self, *, period: int = 1, window: int | None = None, nonfinite: Literal["stop", "skip", "ignore"] = "stop"
    ) -> None:
        super().__init__()
        if nonfinite not in ("stop", "skip", "ignore"):
            hint = did_you_mean(str(nonfinite), ("stop", "skip", "ignore")) or "write 'stop', 'skip' or 'ignore'"
            raise AlchemyError(f"nonfinite is {nonfinite!r}", section="backward", hint=hint)
        self.nonfinite = nonfinite
        self.period = _period(period, window, self.run.group.size)
        self.updates = self.skipped = 0
        self.calls = 0  # with gradients
        self._windows = Windows(self.run)
        self._start = Start()
        self._ended = self._moved = False  # whether a window was full since the last update, and weights have changed
        self._joined = False  # whether the calls of now are pieces of one step
        self._synced = True  # whether the gradients are those of all processes
        self._warned = False

    def backward(
        self,
        losses: Tensor | Sequence[Any],
        weights: Sequence[Any] | None = None,
        requires_grad: bool = True,
        names: Sequence[str] | None = None,
        count: float | Tensor | None = None,
        optim: str | None = None,
    ) -> Any:
        """Old style: returns the loss as a float. With `count`: the mean as a 0-d tensor, not waited for.

        `optim` names the one of several optimisers whose parameters the loss is for; without it, it is for all.
        """
        loss = losses if isinstance(losses, Tensor) and weights is None else weighted_sum(losses, weights)
        if requires_grad:
            self.calls += 1
            if not isinstance(loss, Tensor) or not loss.requires_grad or loss.dim():
                loss = differentiable(loss)
            if self.run.debug:
                for name, value in by_name(losses, names):
                    logger.debug("loss {} = {}", name, value)
            if count is None and (self.period > 1 or self.run.group.size > 1):
                self._warn()
            self._accumulate(self._windows.of(optim), loss, 1 if count is None else count)
        if count is None:
            return loss.item() if isinstance(loss, Tensor) else float(loss)
        return mean(loss.detach() if isinstance(loss, Tensor) else torch.as_tensor(loss), count)

    @property
    def is_open(self) -> bool:
        return self._windows.is_open

    def micro_step(self, last: bool) -> contextlib.AbstractContextManager[Any]:
        """Gradients travel between the processes once an update: in its last step."""
        if isinstance(self.run.optim, Mapping):  # several: DDP knows of one backward pass for each forward only
            return self._step_of_several()
        self._synced = last or self._windows.whole.steps + 1 >= self.period
        return _NOTHING if self._synced else self.run.group.no_sync(self.run.model.model)

    @contextlib.contextmanager
    def _step_of_several(self) -> Iterator[None]:
        self._synced = False
        with self.run.group.no_sync(self.run.model.model):
            yield
        if self._ended:
            self._count_update()

    def flush(self) -> None:
        for window in self._windows:
            if window.steps:
                self._update(window)
        if self._ended:
            self._count_update()

    @property
    def has_moved(self) -> bool:
        return self._moved

    def drop_window(self) -> None:
        """Forgets the steps of a window that did not come to an update."""
        self._windows.clear()
        self._ended = self._moved = False

    def _accumulate(self, window: Window, loss: Tensor, count: float | Tensor) -> None:
        """Adds the gradients of a loss to those of its window."""
        share = 1.0
        if window.fresh:
            window.optim.zero_grad()
            window.fresh = False
        if not self.real:
            loss, count = loss * 0, 0
        elif window.name:
            self._check_whole()
            window.log(loss, count)
        if self.period == 1 and not self._joined and self.run.group.size == 1 and _is_plain(count):
            # a window of one step: beginning with 1/count is the same as dividing all its gradients, and cheaper
            share, count = 1 / count, 1
        with self.run.precision.gradients():
            scaled = self.run.precision.scale(loss)
            (window if window.name else self).differentiate(scaled, self._start.like(scaled, share))
        window.add(loss, count)
        if not self._joined:
            self._step_is_made(window)

    def _step_is_made(self, window: Window) -> None:
        window.steps += 1
        if window.steps >= self.period:
            self._update(window)

    @contextlib.contextmanager
    def joined(self) -> Iterator[None]:
        """Inside, all calls are one step of the window: the pieces of a batch that did not fit into memory."""
        outer, self._joined = self._joined, True
        try:
            yield
        finally:
            self._joined = outer
        if not outer:
            self._step_is_made(self._windows.whole)

    def _check_whole(self) -> None:
        if self._joined:
            text = "out of memory (not halved: a loss of the second half would see weights that the first has changed)"
            raise RunFailed(text, hint="lower batch_size and raise [backward] period")

    @property
    def position(self) -> Any:
        """Where the windows stand; a step that failed before it changed anything leaves them as they were."""
        return [window.position for window in self._windows]

    def differentiate(self, loss: Tensor, start: Tensor) -> None:
        """Adds the gradients of `start` times a loss; frees its graph at once: only they are kept over the window."""
        loss.backward(start)

    def _update(self, window: Window) -> None:
        run, optim = self.run, window.optim
        if not self._synced or window.name:  # or the epoch was shorter than its loader said, or had no length
            run.group.average_grads(optim.params)
        else:  # what DDP does not know: learnt in a loss, thawed since, or of a module that was put in its place
            run.group.average_grads(run.group.unshared(run.model.model, optim))
        run.precision.unscale(optim)
        count, loss = self._over_all_processes(window)
        if isinstance(count, Tensor):
            optim.multiply_grads(torch.where(count > 0, run.group.size / count, 0.0))
        elif count > 0 and count != run.group.size:
            optim.multiply_grads(run.group.size / count)
        optim.guard, optim.refused = None if self.nonfinite == "ignore" else loss, False
        optim.halts = self.nonfinite == "stop"
        if run.precision.scales and optim.guard is not None and not math.isfinite(float(loss)):
            optim.refused, done = True, False  # a lower scale would not mend a loss
        else:
            done = run.precision.step(optim)
        if getattr(optim, "refused", False):
            self._refused(window, loss)
            self._moved = self._moved or optim.late  # of the update before: this one was made
        elif done:
            self._moved = True
        else:  # half precision: a scale that was too large, which is now smaller
            self.skipped += 1
            run.metrics.log("skipped", 1)
        self._ended = True
        window.updates += 1
        if window.name:
            window.log_update()
        else:
            self._count_update()
        optim.zero_grad()
        window.clear()

    def _count_update(self) -> None:
        """Once for each update of the run, however many optimisers took part in it."""
        run = self.run
        if self._moved:
            run.average.after_update(self.updates + 1)
        sched, before = run.train_sched, run.train_sched.num_updates
        sched.step_lr()
        sched.num_updates = max(sched.num_updates, before + 1)  # one of an old project may not call super
        if not self.updates:
            run.optim.report_missing()  # parameters that the first forward has made
        self.updates += 1
        self._ended = self._moved = False
        self._windows.settled = True

    def _over_all_processes(self, window: Window) -> tuple[Any, Any]:
        """The count of the window and the flag of its losses."""
        if self.run.group.size == 1:
            return window.count, window.loss
        count, loss = self.run.agree([float(window.count), float(window.loss)])
        return count, loss

    def _refused(self, window: Window, loss: Any) -> None:
        """An update that would have put NaN into the weights was not made."""
        what = "the loss" if not math.isfinite(float(loss)) else "the gradient"
        whose = f" of {window.name!r}" if window.name else ""
        late = getattr(window.optim, "late", False)
        text = f"{what}{whose} is not finite in update {self.updates + (not late)}"
        if self.nonfinite == "stop":
            raise NotFinite(
                text, hint=f'the weights{whose} are those before it; nonfinite = "skip" in [backward] goes on'
            )
        self.skipped += 1
        self.run.metrics.log("skipped", 1)
        if self.skipped <= 10 or self.skipped % 100 == 0:
            logger.warning("{}: it is left out ({} so far)", text, self.skipped)

    def _warn(self) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "[backward] period = {}, {} process(es): this model hands over mean losses, so each step of an update "
                "weighs the same even if they differ in size; call backward(loss_sum, count=n) for the exact gradient",
                self.period,
                self.run.group.size,
            )

    def state_dict(self) -> dict[str, Any]:
        return {"updates": self.updates, "skipped": self.skipped, **self._windows.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.updates, self.skipped = int(state["updates"]), int(state.get("skipped", 0))
        self._windows.load_state_dict(state)


class NotFinite(RunFailed):
    """A loss or a gradient is NaN or infinite, and the config says that training ends there."""


_NOTHING: contextlib.nullcontext[None] = contextlib.nullcontext()


def _is_plain(count: Any) -> TypeGuard[float]:
    """Whether a count can be divided by without asking a device for it."""
    return not isinstance(count, Tensor) and count > 0


def _period(period: Any, window: Any, ranks: int) -> int:
    """Steps of an update in each process."""
    for name, number in (("period", period), ("window", window)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 1):
            hint = "give a whole number of steps, 1 or more"
            raise AlchemyError(f"{name} is {number!r}", section="backward", hint=hint)
    if window is None:
        return int(period)
    if window % ranks or period != 1:
        hint = f"make it a multiple of {ranks}" if period == 1 else "give period or window, not both"
        raise AlchemyError(f"window = {window} cannot be shared by {ranks} processes", section="backward", hint=hint)
    return int(window // ranks)
