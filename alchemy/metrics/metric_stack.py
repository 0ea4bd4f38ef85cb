"""A stack of metric scopes: a logging interval inside an epoch inside a run.

A logged value is added to the innermost scope and, when that scope closes, to each outer scope up to the nearest root.
Totals may be 0-d tensors; they stay on their device until a value is read.
"""

from __future__ import annotations

import contextlib
import math
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.metrics.scalars import overflow_error
from alchemy.null_objects import ProcessGroup, SingleProcess

PLAIN = frozenset((float, int))  # types that need no device transfer
Gather = Callable[[object], list[Any]]  # exchanges a value; returns the values of all processes in rank order


def _max(one: float, other: float) -> float:
    """Return the maximum; unlike `max`, return NaN if either value is NaN."""
    return other if other > one or other != other else one


def _min(one: float, other: float) -> float:
    return other if other < one or other != other else one


def _latest(one: float, other: float) -> float:
    return other


# how two values of each kind are combined
KINDS: dict[str, Callable[[float, float], float]] = {
    "mean": operator.add, "sum": operator.add, "rate": operator.add, "max": _max, "min": _min, "last": _latest,
}  # fmt: skip


def gather_single(value: object) -> list[Any]:
    """Return the value in a list; this is the `gather` function for a single process."""
    return [value]


def _read_number(name: str, value: Any) -> float:
    """Return the logged value as a float, read from its device."""
    try:
        # item(): float() warns for a tensor with a graph
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        text = f"the metric {name!r} must be a single number, not {type(value).__name__} {str(value)[:60]!r}"
        raise AlchemyError(text, hint="log the sum of its values, with their count as the weight") from error


def _declare(kinds: dict[str, str], name: str, kind: str) -> None:
    """Record the kind of a metric; raise an error if the metric was logged as a different kind."""
    known = kinds.setdefault(name, kind)
    if known != kind:
        text = f"the metric {name!r} is a {known} and cannot be logged as a {kind}"
        raise AlchemyError(text, hint="rename one of them")


class Scope:
    """The values logged since the scope was opened.

    Rows are added one by one, in order, as Python floats, so the sums do not depend on when values are read and are
    float64 regardless of the tensor dtypes.
    """

    def __init__(self, name: str, root: bool = False, kinds: dict[str, str] | None = None) -> None:
        self.name, self.root = name, root
        self._kinds = {} if kinds is None else kinds  # shared by all scopes of a stack: a name has one kind
        self.clear()

    def clear(self) -> None:
        self.rows: list[tuple[str, Any, Any]] = []  # name, total and weight of values not read yet
        self._sums: dict[str, tuple[float, float]] = {}
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since the scope was opened, excluding time spent in nested root scopes (evaluations)."""
        return time.perf_counter() - self._begin

    def pause(self, seconds: float) -> None:
        """Exclude time spent elsewhere from the rates."""
        self._begin += seconds

    def sums(self) -> dict[str, tuple[float, float]]:
        """Return `name -> (total, weight)` of all logged values."""
        return dict(self._read())

    def _read(self) -> dict[str, tuple[float, float]]:
        """Read pending values from their devices; return the sums in the order of the first logged values."""
        rows, self.rows = iter(self.rows), []
        try:
            self._add(rows)
        finally:
            self.rows.extend(rows)  # keep the rows after an invalid value
        return self._sums

    def _add(self, rows: Iterator[tuple[str, Any, Any]]) -> None:
        # hot loop: no function calls for Python numbers
        sums, kinds, name = self._sums, self._kinds, ""
        try:
            for name, total, weight in rows:
                if type(total) not in PLAIN:
                    total = _read_number(name, total)
                if type(weight) not in PLAIN:
                    weight = _read_number(name, weight)
                before = sums.get(name)
                if before is None:
                    sums[name] = 0.0 + total, 0.0 + weight
                else:
                    sums[name] = KINDS[kinds[name]](before[0], 0.0 + total), before[1] + weight
        except OverflowError as error:
            raise overflow_error(name) from error

    def values(self) -> dict[str, float]:
        """Return the value of every metric; NaN if its weight is zero."""
        values, seconds = {}, self.seconds
        for name, (total, weight) in self._read().items():
            kind = self._kinds[name]
            divisor = weight if kind == "mean" else seconds if kind == "rate" else 1.0
            values[name] = total / divisor if divisor else math.nan
        return values

    def mean(self, name: str, default: float | None = None) -> float | None:
        """Return the value of a metric, or `default` if nothing was logged."""
        return self.values().get(name, default)

    def reduce(self, gather: Gather) -> dict[str, float]:
        """Return the values reduced across all processes. All must call this, but may have logged different metrics.

        Pass `run.group.gather`. Sums are added in rank order before any division, rates use the time of the slowest
        process, and `last` is the value of the highest rank that logged one.
        """
        states = () if gather is gather_single else gather(self.state_dict())
        return _merge_states(states).values() if len(states) > 1 else self.values()

    def __contains__(self, name: object) -> bool:
        return name in self._sums or any(name == row[0] for row in self.rows)

    def absorb(self, inner: Scope) -> None:
        """Add the values of an inner scope."""
        self._read()
        rows = [(name, *sums) for name, sums in inner._read().items()]
        if inner._kinds is not self._kinds:
            for name, _, _ in rows:
                _declare(self._kinds, name, inner._kinds[name])
        self._add(iter(rows))

    def state_dict(self) -> dict[str, Any]:
        """Return the exact sums; reading them does not change later values."""
        fields = {name: [self._kinds[name], *sums] for name, sums in self._read().items()}
        return {"name": self.name, "seconds": self.seconds, "fields": fields}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.clear()
        self._begin -= state["seconds"]
        for name, (kind, total, weight) in state["fields"].items():
            _declare(self._kinds, name, kind)
            self._sums[name] = total, weight


class Stack:
    """The open scopes of a run, innermost last."""

    def __init__(self) -> None:
        self.group: ProcessGroup = SingleProcess()  # the processes that train together; set by the runner
        self._kinds: dict[str, str] = {}
        self._open: list[Scope] = [Scope("run", root=True, kinds=self._kinds)]
        self._restored: dict[tuple[str, ...], Mapping[str, Any]] = {}  # keyed by scope names, outermost first

    @property
    def current(self) -> Scope:
        return self._open[-1]

    def log(self, name: str, total: object, weight: object = 1) -> None:
        """Add a total over `weight` tokens or samples to the innermost scope; the metric is the weighted mean.

        Enclosing scopes receive the total when the innermost scope closes.
        """
        if self._kinds.get(name) != "mean":
            _declare(self._kinds, name, "mean")
        self._open[-1].rows.append((name, total, weight))

    def _log(self, kind: str, name: str, value: object) -> None:
        _declare(self._kinds, name, kind)
        self._open[-1].rows.append((name, value, 1))

    def sum(self, name: str, value: object) -> None:
        """Log a value; the metric is the sum."""
        self._log("sum", name, value)

    def rate(self, name: str, value: object) -> None:
        """Log a count; the metric is the count per second: `rate("tokens", 512)` logs `time/tokens_per_s`."""
        self._log("rate", f"time/{name}_per_s", value)

    def max(self, name: str, value: object) -> None:
        """Log a value; the metric is the maximum."""
        self._log("max", name, value)

    def min(self, name: str, value: object) -> None:
        """Log a value; the metric is the minimum."""
        self._log("min", name, value)

    def last(self, name: str, value: object) -> None:
        """Log a value; the metric is the last value."""
        self._log("last", name, value)

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Log the mean time in seconds of a block or decorated function: `timed("load")` logs `time/load`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.log(f"time/{name}", time.perf_counter() - begin)

    @contextlib.contextmanager
    def scope(self, name: str, root: bool = False) -> Iterator[Scope]:
        """Open a scope. The values of a root scope are not added to enclosing scopes. Also works as a decorator."""
        scope = Scope(name, root, self._kinds)
        self._open.append(scope)
        state = self._restored.pop(tuple(scope.name for scope in self._open), None)
        if state is not None:
            scope.load_state_dict(state)
        try:
            yield scope
        finally:
            self._close(scope)

    def _close(self, scope: Scope) -> None:
        if scope not in self._open:
            return
        inner = self._open.pop()
        try:
            if inner.root:
                for outer in self._open:
                    outer.pause(inner.seconds)
            else:
                self.current.absorb(inner)
        finally:
            self._close(scope)  # `inner` was a nested scope that an error left open

    def turn_over(self, gather: Gather = gather_single) -> dict[str, float]:
        """Return the values of the innermost scope and reset it; enclosing scopes keep the totals.

        With `gather`, the values cover all processes, which must all call this method at the same time.
        """
        scope = self._open[-1]
        values = scope.reduce(gather)
        if not scope.root:
            self._open[-2].absorb(scope)
        scope.clear()
        return values

    def open_scopes(self) -> list[Scope]:
        """Return the open scopes, outermost first, excluding evaluations. Each value is in exactly one scope."""
        roots = [place for place, scope in enumerate(self._open) if scope.root and place]
        return self._open[: roots[0] if roots else None]

    def state_dict(self) -> dict[str, Any]:
        """Return the open scopes of all processes, excluding evaluations. All processes must call this method."""
        return {"ranks": self.group.gather([scope.state_dict() for scope in self.open_scopes()])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the run scope now, and the others when a scope with the same names is opened."""
        ranks = state["ranks"]
        if len(ranks) == self.group.size:
            scopes = ranks[self.group.rank]
        else:  # with a different number of processes, the main process continues with the merged values
            scopes = [_merge_states(parts).state_dict() for parts in zip(*ranks)]
            if not self.group.is_main:
                scopes = [scope | {"fields": {}} for scope in scopes]
        self._open[0].load_state_dict(scopes[0])
        names = [scope["name"] for scope in scopes]
        self._restored = {tuple(names[: place + 1]): scope for place, scope in enumerate(scopes) if place}
        for scope in scopes:  # names keep their kinds, even in scopes that are not open yet
            self._kinds |= {name: kind for name, (kind, _, _) in scope["fields"].items()}


def _merge_states(states: Sequence[Mapping[str, Any]]) -> Scope:
    """Merge the scopes with the same name from several processes."""
    merged = Scope(states[0]["name"])
    merged.pause(-max(state["seconds"] for state in states))
    for state in states:
        part = Scope(merged.name)
        part.load_state_dict(state)
        merged.absorb(part)
    return merged
