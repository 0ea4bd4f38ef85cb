"""Stop rules of `[stop]`, and how to combine several of them."""

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
    """Base class for stop rules. Each method returns the reason to stop, or an empty string to continue.

    Subclasses override at least one of these methods. Attributes named in `saved`, which must be JSON
    values, are saved in checkpoints and restored when a run is resumed.
    """

    saved: ClassVar[tuple[str, ...]] = ()

    def check(self, run: Run) -> str:
        """Called after every update and at the end of every epoch."""
        return ""

    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str:
        """Called after every evaluation."""
        return ""

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        """Called with every logged row of training metrics."""
        return ""

    def state_dict(self) -> dict[str, Any]:
        return {name: vars(self)[name] for name in self.saved}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        vars(self).update({name: state[name] for name in self.saved})


# -- length


@StopRule.register()
class Epochs(StopRule):
    """Stop after N epochs; 2.5 stops in the middle of the third epoch if its number of steps is known."""

    def __init__(self, *, epochs: Annotated[float, Gt(0)]) -> None:
        self.epochs = epochs

    def check(self, run: Run) -> str:
        sched = run.train_sched
        done = sched.epochs_done
        if run.progress.epoch_steps and sched.cur_epoch >= done:  # within an epoch
            done += (sched.cur_step_this_epoch + 1) / run.progress.epoch_steps
        # the sum may be slightly below the limit because of rounding
        return f"reached {self.epochs:g} epochs" if done >= self.epochs - 1e-9 else ""


@StopRule.register()
class Updates(StopRule):
    """Stop after N updates."""

    def __init__(self, *, updates: PositiveInt) -> None:
        self.updates = updates

    def check(self, run: Run) -> str:
        return f"reached {self.updates:,} updates" if run.update >= self.updates else ""


@StopRule.register()
class Tokens(StopRule):
    """Stop after N training tokens.

    Tokens are counted by the `tokens` output of the model if it has one, otherwise by the count of its loss.
    Checked every `log_every` updates, when metrics are read from the device.
    """

    def __init__(self, *, tokens: Annotated[float, Gt(0)]) -> None:
        self.tokens = tokens

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        seen = run.tokens
        return f"reached {seen:,.0f} tokens" if seen >= self.tokens else ""


@StopRule.register()
class Time(StopRule):
    """Stop after a given time since the start of the run, including the time before it was resumed."""

    def __init__(
        self, *, hours: NonNegativeFloat = 0, minutes: NonNegativeFloat = 0, seconds: NonNegativeFloat = 0
    ) -> None:
        self.seconds = hours * 3600 + minutes * 60 + seconds

    def check(self, run: Run) -> str:
        return f"reached the time limit of {_format_time(self.seconds)}" if run.elapsed >= self.seconds else ""


@StopRule.register()
class MinLR(StopRule):
    """Stop when the learning rate of every group has dropped to `lr`; values below it during warmup do not count."""

    saved = ("was_above",)

    def __init__(self, *, lr: Annotated[float, NotNaN()]) -> None:
        self.lr = lr
        self.was_above = False

    def check(self, run: Run) -> str:
        for group in run.optim.param_groups:
            if group["lr"] > self.lr:
                self.was_above = True
                return ""
        return f"the learning rate has dropped to {self.lr:g}" if self.was_above else ""


# -- metrics


class _Monitored(StopRule):
    """Base class for rules on one metric, `split/name`: a score of a split or a logged training metric."""

    def __init__(self, monitor: Monitor) -> None:
        self.monitor = monitor
        self._warned = False

    def judge(self, value: float, times: str) -> str:
        """Return the reason to stop given the new `value`; `times` is the unit used in the message."""
        raise NotImplementedError(f"{type(self).__name__} must define judge()")

    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str:
        return self.judge(self.monitor.read(scores), "evaluations") if split == self.monitor.split else ""

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        name = self.monitor.name
        if name in values:
            return self.judge(values[name], "log rows")
        if not self._warned and any(key.startswith(f"{self.monitor.split}/") for key in values):
            self._warned = True
            hint = did_you_mean(name, values) or f"available: {', '.join(values)}"
            rule = type(self).__name__
            logger.warning("{} monitors {!r}, which is not a logged training metric; {}", rule, name, hint)
        return ""


@StopRule.register()
class Patience(_Monitored):
    """Stop after `patience` evaluations in a row without improvement; 0 disables the rule."""

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
        best = "was never finite" if self.best is None else f"has not improved on {self.best:.4g}"
        return f"{self.monitor.name} {best} for {self.waited} {times}"


@StopRule.register()
class Target(_Monitored):
    """Stop when the metric reaches `value`."""

    def __init__(self, *, monitor: str, value: Annotated[float, NotNaN()], mode: Literal["max", "min"] = "max") -> None:
        super().__init__(Monitor(monitor, mode))
        self.value = value

    def judge(self, value: float, times: str) -> str:
        reached = value >= self.value if self.monitor.mode == "max" else value <= self.value
        return f"{self.monitor.name} is {value:.4g} and has reached {self.value:g}" if reached else ""


@StopRule.register()
class Divergence(_Monitored):
    """Stop when the metric is not finite, above `limit` or above `factor` times its best value for `rows` log rows.

    `factor` is ignored once the best value is zero or negative.
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
        best = "" if self.best is None else f"; the best value was {self.best:.4g}"
        return f"{self.monitor.name} has diverged to {value:.4g} for {self.bad} {times}{best}"

    def _is_bad(self, value: float) -> bool:
        if not math.isfinite(value) or (self.limit is not None and value > self.limit):
            return True
        return self.best is not None and self.best > 0 and value > self.factor * self.best


# -- combining rules


class Rules:
    """Stops when a rule in `any` is met, or when every rule in `all` has been met, not necessarily at the same time.

    Built-in rules reach the same decision in all processes, which stop immediately; with custom rules, the
    processes exchange their decisions first.
    """

    def __init__(self, any: Sequence[StopRule] = (), all: Sequence[StopRule] = ()) -> None:
        self._any, self._all = _by_name("any", any), _by_name("all", all)
        self._met: dict[str, str] = {}  # the rules in `all` that have been met, with their reasons
        self._built_in = {type(rule).__module__ for rule in (*any, *all)} <= {__name__}

    def after_update(self, run: Run) -> str:
        """Return the reason to stop, if any; also called at the end of an epoch."""
        return self._check(run, lambda rule: rule.check(run))

    def after_eval(self, run: Run, split: str, scores: Mapping[str, Any]) -> str:
        return self._check(run, lambda rule: rule.after_eval(run, split, scores))

    def after_log(self, run: Run, values: Mapping[str, float]) -> str:
        return self._check(run, lambda rule: rule.after_log(run, values))

    def _check(self, run: Run, check: Callable[[StopRule], str]) -> str:
        # check every rule, even after a match, so that no rule misses a value if the run is resumed later
        reasons = [check(rule) for rule in self._any.values()]
        for name, rule in self._all.items():
            if name not in self._met and (reason := check(rule)):
                self._met[name] = reason
        if self._met and len(self._met) == len(self._all):
            reasons.append(" and ".join(self._met[name] for name in self._all))
        reason = next(filter(None, reasons), "")
        if reason:
            (run.stop_together if self._built_in else run.stop)(reason)
        return reason

    def state_dict(self) -> dict[str, Any]:
        rules = {name: rule.state_dict() for name, rule in (self._any | self._all).items()}
        return {"rules": {name: state for name, state in rules.items() if state}, "met": dict(self._met)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the rules whose position and class are unchanged; all other rules start without state."""
        known = self._any | self._all
        for name, rule_state in state["rules"].items():
            if name in known:
                known[name].load_state_dict(rule_state)
            else:
                logger.warning("[stop] no longer has {}: its saved state is discarded", name)
        self._met = {name: reason for name, reason in state["met"].items() if name in self._all}


def build_rules(run: Run) -> Rules:
    """Build the rules from `[stop]`, plus the rules that parts have added to `any`."""
    table = run.table("stop")
    tables = {"any": [*(table.get("any") or []), *run.stop_rules], "all": table.get("all") or []}
    built = {
        key: [build(StopRule, rule, section=f"stop.{key}.{i}") for i, rule in enumerate(rules)]
        for key, rules in tables.items()
    }
    return Rules(**built)


def _by_name(key: str, rules: Sequence[StopRule]) -> dict[str, StopRule]:
    """Return the rules by the names used in checkpoints: list, position and class."""
    return {f"{key}.{i}.{type(rule).__name__}": rule for i, rule in enumerate(rules)}


def _format_time(seconds: float) -> str:
    for unit, length in (("hours", 3600), ("minutes", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.1f} seconds"
