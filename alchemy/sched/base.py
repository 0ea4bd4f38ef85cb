"""Base class for training schedules: counts steps, calls the schedule pipes and sets the learning rate."""

# no postponed annotations: schedules in other modules inherit these fields with their types

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from alchemy.constraints import PositiveFloat, PositiveInt
from alchemy.context import Run, current_run
from alchemy.data.batch_sampler import EpochPosition
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.loop import loader_of
from alchemy.null_objects import Stateful
from alchemy.pipeline import BeginEpochPipeline, BeginStepPipeline, EndEpochPipeline, EndStepPipeline, SchedPipeline
from alchemy.registry import Registrable, build, construct, parameters, resolve
from alchemy.sched.pipe_calls import PipeCalls

# saved under their attribute names
COUNTERS = ("cur_step", "cur_step_this_epoch", "cur_epoch", "epochs_done", "num_updates", "lr_start")


class _TorchSchedule(Protocol):
    """The `lr_sched` of an old-style schedule: a torch scheduler or a compatible object."""

    def step(self) -> None: ...


@dataclass(kw_only=True, eq=False)
class AlchemyTrainScheduler(Registrable):
    """Base class for schedules. By itself, it keeps the learning rate constant.

    A schedule is a dataclass whose fields are its options, and defines `lr_at`. A schedule with its own constructor
    stores its options as attributes with the same names and calls `super().__init__` last. An old-style schedule calls
    `super().__init__()` and sets `self.lr_sched` to a torch scheduler.
    """

    epochs: PositiveFloat | None = None
    num_training_steps: PositiveInt | None = None
    unit: Literal["step", "epoch"] = "step"

    def __post_init__(self) -> None:
        self.run: Run = current_run()
        self.cur_epoch = self.cur_step = self.cur_step_this_epoch = -1
        self.num_updates = self.epochs_done = 0
        self.cut_short = False  # whether the epoch ended before all data was read
        # an old-style schedule may set `lr_sched` before it calls this constructor
        self.lr_sched: _TorchSchedule | None = vars(self).get("lr_sched")
        self.lr_start = 0  # the update or epoch at which the curve starts
        self._changed: dict[str, Any] = {}  # settings changed by a reset
        self._curve_length: int | None = None  # length of the curve in updates, if set by a reset
        self._part_end: int | None = None  # the last update if the last epoch is partial
        tables = self.cfg.get("pipes") or []
        self.pipes = [build(SchedPipeline, table, section=f"sched.pipes.{i}") for i, table in enumerate(tables)]
        # one list per hook, so that pipes for other hooks cost nothing
        self.begin_epoch_pipes = [pipe for pipe in self.pipes if isinstance(pipe, BeginEpochPipeline)]
        self.end_epoch_pipes = [pipe for pipe in self.pipes if isinstance(pipe, EndEpochPipeline)]
        self.begin_step_pipes = [pipe for pipe in self.pipes if isinstance(pipe, BeginStepPipeline)]
        self.end_step_pipes = [pipe for pipe in self.pipes if isinstance(pipe, EndStepPipeline)]
        self._calls = PipeCalls()
        self._add_capture()
        self.settle()
        self.write_lr()

    def _add_capture(self) -> None:
        """Add the `[capture]` table, if the config has one, as the last pipe of steps and epochs."""
        if table := self.run.table("capture"):
            capture = construct(resolve("alchemy.capture.Capture"), table, section="capture")
            self.end_step_pipes.append(capture.after_step)
            self.end_epoch_pipes.append(capture.after_epoch)

    @property
    def cfg(self) -> Any:
        """The `[sched]` table."""
        return self.run.table("sched")

    # -- epochs and steps
    def __iter__(self) -> Iterator[int]:
        """Yield the remaining epochs, and run the begin-epoch pipes for each of them."""
        self._check_end()
        inside = 0 <= self.epochs_done <= self.cur_epoch  # resumed within an epoch
        first = self.cur_epoch if inside else self.cur_epoch + 1
        for epoch in itertools.count(first) if self.epochs is None else range(first, math.ceil(self.epochs)):
            if (self.finished or self.run.stop_request.reason) and not inside:
                return
            if not inside:
                self.cur_epoch, self.cur_step_this_epoch = epoch, -1
            if self.run.optim is not None:
                self.run.optim.report_missing()
            if not inside or self.is_pending("begin_epoch"):
                self._calls.run("begin_epoch", self.begin_epoch_pipes)
            inside = False
            yield epoch

    def begin_train_step(self, batch: object, **kwargs: object) -> tuple[int, int]:
        self.cur_step += 1
        self.cur_step_this_epoch += 1
        self.cut_short = False
        if self.begin_step_pipes:
            self._calls.run("begin_step", self.begin_step_pipes, batch, **kwargs)
        return self.cur_step, self.cur_step_this_epoch

    def end_train_step(self, outputs: object, **kwargs: object) -> None:
        if self.end_step_pipes:
            self._calls.outputs = outputs
            self._calls.run("end_step", self.end_step_pipes, outputs, **kwargs)
            self._calls.outputs = None

    def end_train_epoch(self, **kwargs: object) -> None:
        self._calls.run("end_epoch", self.end_epoch_pipes, **kwargs)
        self.run.share_stop_requests()
        self.epochs_done += 1
        if self.unit == "epoch":
            self._next_lr()

    def reopen_epoch(self) -> None:
        """Mark an epoch that was cut short as unfinished, so that a resumed run can continue it."""
        self.epochs_done -= 1
        self.cut_short = True
        if self.unit == "epoch":
            self.write_lr()

    def is_pending(self, moment: str) -> bool:
        """Return whether a signal interrupted the pipes for this hook during an evaluation."""
        return self._calls.pending is not None and self._calls.pending[0] == moment

    @property
    def outputs(self) -> Any:
        """The outputs of the step whose end-step pipes are pending."""
        return self._calls.outputs

    @property
    def resumable(self) -> bool:
        """Whether a checkpoint saved now could be resumed."""
        return self._calls.resumable

    # -- length of training
    def _check_end(self) -> None:
        """Raise an error if training would never end, and compute the end of a partial epoch."""
        stop = self.run.table("stop")
        if self.epochs is None and self.num_training_steps is None and not (stop.get("any") or stop.get("all")):
            hint = "set epochs or num_training_steps"
            raise AlchemyError("the length of training is not set", section="sched", hint=hint)
        if self.epochs is not None and self.epochs % 1:
            self._part_end = self._updates_in(self.epochs)
            if self._part_end is None and self.num_training_steps is None:
                hint = "set num_training_steps, or end the pipes with alchemy.pipeline.itr.WithLength"
                raise AlchemyError(f"epochs = {self.epochs} needs data of known length", section="sched", hint=hint)

    @property
    def last_update(self) -> int | None:
        """The update that ends training, set by `num_training_steps` or a partial epoch, whichever comes first."""
        if self._curve_length is not None:  # set by a reset: ends the curve, and also training if `epochs` is not set
            return self.lr_start + self._curve_length if self.epochs is None else self._part_end
        return min(filter(None, (self.num_training_steps, self._part_end)), default=None)

    @property
    def finished(self) -> bool:
        end = self.last_update
        return end is not None and self.num_updates >= end

    @property
    def total_updates(self) -> int | None:
        """The total number of updates; None if the length of the data is unknown."""
        if self.num_training_steps is not None or self.epochs is None:
            return self.num_training_steps
        return self._updates_in(self.epochs)

    def _updates_in(self, epochs: float) -> int | None:
        steps = _steps_per_epoch(self.run)
        period = self.run.updater.period
        # tolerate rounding: 0.7 of 10 updates is 7, even if the product is slightly larger
        return None if steps is None else math.ceil(epochs * math.ceil(steps / period) - 1e-9)

    def horizon(self) -> int:
        """Return the length of the curve in its unit, from its start."""
        if self.unit == "step" and self._curve_length is not None:
            return self._curve_length
        total = self.epochs if self.unit == "epoch" else self.total_updates
        if total is None:
            hint = "set num_training_steps, or end the pipes with alchemy.pipeline.itr.WithLength"
            raise AlchemyError(
                f"{type(self).__name__} needs the length of training, but neither the config nor the data defines it",
                section="sched",
                hint="set epochs" if self.epochs is None else hint,
            )
        return max(1, math.ceil(total) - self.lr_start)

    def warmup(self, number: float) -> int:
        """Return the warmup in updates (or epochs); a number between 0 and 1 is a fraction of the horizon."""
        return round(number * self.horizon()) if 0 < number < 1 else int(number)

    # -- the learning rate
    def lr_at(self, base: float, t: int) -> float:
        """Return the learning rate after `t` updates (or epochs) for a group with initial rate `base`."""
        return base

    def settle(self) -> None:
        """Compute derived values of the curve, before the first learning rate and after a reset."""

    def after_eval(self, results: Mapping[str, Any]) -> None:
        """Called with the results of every evaluation."""

    def step_lr(self) -> None:
        """Called after every update."""
        self.num_updates += 1
        if self.unit == "step":
            self._next_lr()
        if self.finished:
            part = self.last_update == self._part_end
            self.run.stop_together(f"reached {self.epochs} epochs" if part else f"reached {self.last_update:,} updates")

    def _change(self, settings: Mapping[str, Any]) -> None:
        for key, value in settings.items():
            setattr(self, key, value)
        self._changed |= settings

    def _next_lr(self) -> None:
        if self.lr_sched is not None:
            self.lr_sched.step()
        else:
            self.write_lr()

    def write_lr(self) -> None:
        """Set the current learning rate in the optimizer's groups."""
        optim = self.run.optim
        if optim is None or self.lr_sched is not None:
            return
        t = (self.epochs_done if self.unit == "epoch" else self.num_updates) - self.lr_start
        for group in optim.param_groups:
            # torch's name for the initial rate of a group, shared with torch schedulers
            base: Any = group.setdefault("initial_lr", group["lr"])
            group["lr"] = self.lr_at(base, t)

    def reset_lr_sched(self, **kwargs: Any) -> None:
        """Restart the curve at the current update, with the settings in `kwargs`."""
        if self.lr_sched is not None:
            if type(self).reset_lr_sched is not AlchemyTrainScheduler.reset_lr_sched:
                return  # the overriding method, which calls this one, creates a new scheduler
            raise AlchemyError(
                f"{type(self).__name__} sets lr_sched itself", hint="define reset_lr_sched(self, **kwargs) in it"
            )
        names = {name for kind in type(self).__mro__ if issubclass(kind, Registrable) for name in parameters(kind)[0]}
        for key in kwargs:
            if key not in names:
                hint = did_you_mean(key, names)
                raise AlchemyError(f"{type(self).__name__} has no option {key!r}", section="sched", hint=hint)
        self._change(kwargs)
        self.lr_start = self.epochs_done if self.unit == "epoch" else self.num_updates
        self._curve_length = kwargs.get("num_training_steps")
        self.settle()
        self.write_lr()

    # -- state
    def state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = {name: vars(self)[name] for name in COUNTERS}
        if isinstance(self.lr_sched, Stateful):
            state["lr_sched"] = self.lr_sched.state_dict()
        state |= {"cut_short": self.cut_short, "changed": self._changed, "curve_length": self._curve_length}
        pipes = {str(i): pipe.state_dict() for i, pipe in enumerate(self.pipes) if isinstance(pipe, Stateful)}
        return {**state, "pipes": pipes, **self._calls.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update({name: state[name] for name in COUNTERS})
        for i, pipe_state in state["pipes"].items():
            self.pipes[int(i)].load_state_dict(pipe_state)
        if "lr_sched" in state and isinstance(self.lr_sched, Stateful):
            self.lr_sched.load_state_dict(state["lr_sched"])
        self.cut_short = state.get("cut_short", False)
        self._curve_length = state.get("curve_length")
        self._change(state.get("changed", {}))
        self._calls.load_state_dict(state)
        self.settle()
        self.write_lr()


def build_sched(run: Run) -> AlchemyTrainScheduler:
    """Build the schedule from `[sched]`."""
    table = run.table("sched")
    if not table:
        hint = 'for example type = "alchemy.sched.LineWarmup" and epochs = 3'
        raise AlchemyError("training needs a [sched] table", section="sched", hint=hint)
    sched: AlchemyTrainScheduler = build(AlchemyTrainScheduler, table, drop=("pipes",), section="sched")
    return sched


def _steps_per_epoch(run: Run) -> int | None:
    place = EpochPosition(rank=run.group.rank, ranks=run.group.size)
    try:
        steps = len(loader_of(run, "train", place=place))
    except (TypeError, NotImplementedError):
        return None
    limit = run.limits.overfit or run.limits.max_batches
    return min(steps, limit) if limit else steps
