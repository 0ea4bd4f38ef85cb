"""When a training has gone far enough: the rules of `[stop]`, each a part, and how several of them are combined."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal

from loguru import logger

from alchemy.checkpoint.monitor import Monitor
from alchemy.constraints import Gt, NonNegativeFloat, NotNaN, PositiveInt
from alchemy.context import Run
from alchemy.errors import did_you_mean
from alchemy.registry import Registrable, build

__all__ = ["Divergence", "Epochs", "MinLR", "Patience", "Rules", "StopRule", "Target", "Time", "Tokens", "Updates"]


class StopRule(Registrable):
    """Gives the reason to end a training as a sentence, or nothing while it may go on.

    A rule overrides the moment at which it can decide. One that remembers something names its attributes in `saved`:
    JSON values, which a resume restores.
    """

    saved: ClassVar[tuple[str, ...]] = ()

    def check(self, run: Run) -> str:
        """Asked after every update, and at the end of every epoch."""
        return ""

    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str:
        """Asked after every evaluation."""
        return ""

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        """Asked with every row of training numbers that is logged."""
        return ""

    def state_dict(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update({name: state[name] for name in self.saved})


# -- how long


@StopRule.register()
class Epochs(StopRule):
    """So many passes over the data; 2.5 ends in the middle of the third, where its number of steps is known."""

    def __init__(self, *, epochs: Annotated[float, Gt(0)]) -> None:
        self.epochs = epochs

    def check(self, run: Run) -> str:
        sched = run.train_sched
        done = sched.epochs_done
        if run.progress.epoch_steps and sched.cur_epoch >= done:  # in the middle of one
            done += (sched.cur_step_this_epoch + 1) / run.progress.epoch_steps
        # the sum of an epoch and a fraction may lie a rounding below the number that is meant
        return f"{self.epochs:g} epochs are over" if done >= self.epochs - 1e-9 else ""


@StopRule.register()
class Updates(StopRule):
    """So many steps of the optimizer."""

    def __init__(self, *, updates: PositiveInt) -> None:
        self.updates = updates

    def check(self, run: Run) -> str:
        return f"{self.updates:,} updates are made" if run.update >= self.updates else ""


@StopRule.register()
class Tokens(StopRule):
    """So many tokens seen in training: what the model returns as `tokens`, else what its loss counts.

    They are added up when numbers are logged, every `log_every` updates: only then is the device asked for them.
    """

    def __init__(self, *, tokens: Annotated[float, Gt(0)]) -> None:
        self.tokens = tokens

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        seen = run.tokens
        return f"{seen:,.0f} tokens are seen" if seen >= self.tokens else ""


@StopRule.register()
class Time(StopRule):
    """So long a time since the run began; what a resumed run took before it was interrupted counts too."""

    def __init__(
        self, *, hours: NonNegativeFloat = 0, minutes: NonNegativeFloat = 0, seconds: NonNegativeFloat = 0
    ) -> None:
        self.seconds = hours * 3600 + minutes * 60 + seconds

    def check(self, run: Run) -> str:
        return f"{_spoken(self.seconds)} are over" if run.elapsed >= self.seconds else ""


@StopRule.register()
class MinLR(StopRule):
    """The learning rate of every group has come down to `lr`; a warm-up from below it does not count."""

    saved = ("was_above",)

    def __init__(self, *, lr: Annotated[float, NotNaN()]) -> None:
        self.lr = lr
        self.was_above = False

    def check(self, run: Run) -> str:
        for group in run.optim.param_groups:
            if group["lr"] > self.lr:
                self.was_above = True
                return ""
        return f"the learning rate has come down to {self.lr:g}" if self.was_above else ""


# -- how well


class _Monitored(StopRule):
    """A rule on one number, `split/name`: a score of that split, or a number in the log of the training."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self._warned = False

    def judge(self, value: float, times: str) -> str:
        """The reason to stop, now that the number is `value`; `times` is what it is counted in."""
        raise NotImplementedError(f"{type(self).__name__} must define judge()")

    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str:
        return self.judge(self.monitor.read(scores), "evaluations") if split == self.monitor.split else ""

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        name = self.monitor.name
        if name in values:
            return self.judge(values[name], "log rows")
        if not self._warned and any(key.startswith(f"{self.monitor.split}/") for key in values):
            self._warned = True
            hint = did_you_mean(name, values) or f"it has {', '.join(values)}"
            rule = type(self).__name__
            logger.warning("{} watches {!r}, which is not in the log of the training; {}", rule, name, hint)
        return ""


@StopRule.register()
class Patience(_Monitored):
    """`patience` evaluations in a row brought nothing better; an epoch without one does not count, 0 is off."""

    saved = ("best", "waited")

    def __init__(
        self, *, monitor: str, mode: Literal["max", "min"] = "max", patience: int = 3, min_delta: NonNegativeFloat = 0.0
    ) -> None:
        super().__init__(Monitor(monitor, mode, min_delta))
        self.patience, self.waited = patience, 0
        self.best: float | None = None

    def judge(self, value: float, times: str) -> str:
        if self.monitor.is_better(value, self.best):
            self.best, self.waited = value, 0
        else:
            self.waited += 1
        if self.patience <= 0 or self.waited < self.patience:
            return ""
        best = "was never finite" if self.best is None else f"has not passed {self.best:.4g}"
        return f"{self.monitor.name} {best} for {self.waited} {times}"


@StopRule.register()
class Target(_Monitored):
    """The number has reached `value`."""

    def __init__(self, *, monitor: str, value: Annotated[float, NotNaN()], mode: Literal["max", "min"] = "max") -> None:
        super().__init__(Monitor(monitor, mode))
        self.value = value

    def judge(self, value: float, times: str) -> str:
        reached = value >= self.value if self.monitor.mode == "max" else value <= self.value
        return f"{self.monitor.name} is {value:.4g} and has reached {self.value:g}" if reached else ""


@StopRule.register()
class Divergence(_Monitored):
    """For `rows` rows of the log in a row the number was not finite, above `limit`, or `factor` times the best one.

    A loss that has been at or below zero has no multiples: there only `limit` and what is not finite count.
    """

    saved = ("best", "bad")

    def __init__(
        self,
        *,
        monitor: str = "train/loss",
        factor: Annotated[float, Gt(1)] = 10.0,
        limit: Annotated[float, NotNaN()] | None = None,
        rows: PositiveInt = 3,
    ) -> None:
        super().__init__(Monitor(monitor, "min"))
        self.factor, self.limit, self.rows = factor, limit, rows
        self.bad = 0
        self.best: float | None = None

    def judge(self, value: float, times: str) -> str:
        self.bad = self.bad + 1 if self._is_bad(value) else 0
        if self.monitor.is_better(value, self.best):
            self.best = value
        if self.bad < self.rows:
            return ""
        best = "" if self.best is None else f"; its best was {self.best:.4g}"
        return f"{self.monitor.name} has diverged to {value:.4g} for {self.bad} {times}{best}"

    def _is_bad(self, value: float) -> bool:
        if not math.isfinite(value) or (self.limit is not None and value > self.limit):
            return True
        return self.best is not None and self.best > 0 and value > self.factor * self.best


# -- several of them


class Rules:
    """Stops at the first rule of `any` that is reached, and when all of `all` have been, each at its own time.

    Our own rules come to the same reason in all processes, which all end at once; where there are others, the processes
    tell each other first.
    """

    def __init__(self, any: Sequence[StopRule] = (), all: Sequence[StopRule] = ()) -> None:
        self._any, self._all = _named("any", any), _named("all", all)
        self._met: dict[str, str] = {}  # the rules of `all` that have been reached, and why
        self._alike = {type(rule).__module__ for rule in (*any, *all)} <= {__name__}

    def after_update(self, run: Run) -> str:
        """The reason to stop, or nothing; also called at the end of an epoch."""
        return self._ask(run, lambda rule: rule.check(run))

    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str:
        return self._ask(run, lambda rule: rule.after_eval(run, split, scores))

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        return self._ask(run, lambda rule: rule.after_log(run, values))

    def _ask(self, run: Run, ask: Callable[[StopRule], str]) -> str:
        # each one is asked, also after a reason was found: a run that is continued later must have missed nothing
        reasons = [ask(rule) for rule in self._any.values()]
        for name, rule in self._all.items():
            if name not in self._met and (found := ask(rule)):
                self._met[name] = found
        if self._met and len(self._met) == len(self._all):
            reasons.append(" and ".join(self._met[name] for name in self._all))
        reason = next(filter(None, reasons), "")
        if reason:
            (run.stop_together if self._alike else run.stop)(reason)
        return reason

    def state_dict(self) -> dict[str, Any]:
        rules = {name: rule.state_dict() for name, rule in (self._any | self._all).items()}
        return {"rules": {name: state for name, state in rules.items() if state}, "met": dict(self._met)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restores the rules that stand where they stood; another one at that place begins afresh."""
        known = self._any | self._all
        for name, rule_state in state["rules"].items():
            if name in known:
                known[name].load_state_dict(rule_state)
            else:
                logger.warning("[stop] has no {} any more: what it had counted is dropped", name)
        self._met = {name: reason for name, reason in state["met"].items() if name in self._all}


def build_rules(run: Run) -> Rules:
    """The rules that `[stop]` names, and those that parts have added to `any`."""
    table = run.table("stop")
    tables = {"any": [*(table.get("any") or []), *run.stop_rules], "all": table.get("all") or []}
    built = {
        key: [build(StopRule, rule, section=f"stop.{key}.{i}") for i, rule in enumerate(rules)]
        for key, rules in tables.items()
    }
    return Rules(**built)


def _named(key: str, rules: Sequence[StopRule]) -> dict[str, StopRule]:
    """Rules under the names that their state is saved by: list, place and class."""
    return {f"{key}.{i}.{type(rule).__name__}": rule for i, rule in enumerate(rules)}


def _spoken(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
