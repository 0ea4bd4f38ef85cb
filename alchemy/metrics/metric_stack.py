"""A stack of scopes that gather numbers: a step window inside an epoch inside a run.

A number logged reaches the innermost scope and, when that closes, every scope around it up to the nearest root.
Totals may be 0-d tensors: they are kept where they are and read only when somebody asks for the value.
"""

from __future__ import annotations

import contextlib
import math
import operator
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from alchemy.errors import AlchemyError
from alchemy.metrics.scalars import too_large
from alchemy.null_objects import ProcessGroup, SingleProcess

PLAIN = frozenset((float, int))  # what needs no device to be read
Gather = Callable[[object], list[Any]]  # hands a value to all processes and returns those of all, in the order of ranks


def _larger(one: float, other: float) -> float:
    """Not `max`: a NaN must be seen, wherever it stands."""
    return other if other > one or other != other else one


def _smaller(one: float, other: float) -> float:
    return other if other < one or other != other else one


def _newer(one: float, other: float) -> float:
    return other


# how two numbers of a kind are joined
KINDS: dict[str, Callable[[float, float], float]] = {
    "mean": operator.add, "sum": operator.add, "rate": operator.add, "max": _larger, "min": _smaller, "last": _newer,
}  # fmt: skip


def alone(value: object) -> list[Any]:
    """What gathering comes to with a single process."""
    return [value]


def _number_of(name: str, value: Any) -> float:
    """The number that was logged, read from its device."""
    try:
        # item(): a tensor that still has its graph warns when it is made a float directly
        return float(value.item() if hasattr(value, "item") else value)
    except (TypeError, ValueError, RuntimeError) as error:
        text = f"the metric {name!r} must be a single number, not {type(value).__name__} {str(value)[:60]!r}"
        raise AlchemyError(text, hint="log the sum of what it holds, and the count as the weight") from error


def _declare(kinds: dict[str, str], name: str, kind: str) -> None:
    """One name cannot be two kinds of number."""
    known = kinds.setdefault(name, kind)
    if known != kind:
        text = f"the metric {name!r} is a {known} and cannot be logged as a {kind}"
        raise AlchemyError(text, hint="rename one of them")


class Scope:
    """What was logged since the scope was opened.

    Rows are added up one by one, in their order, as Python floats: so the sums do not depend on when somebody asks,
    and a long epoch is counted in float64, whatever the tensors hold.
    """

    def __init__(self, name: str, root: bool = False, kinds: dict[str, str] | None = None) -> None:
        self.name, self.root = name, root
        self._kinds = {} if kinds is None else kinds  # of one stack: a name means the same in all its scopes
        self.clear()

    def clear(self) -> None:
        self.rows: list[tuple[str, Any, Any]] = []  # name, total and weight of what was logged and not read yet
        self._sums: dict[str, tuple[float, float]] = {}
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the scope has been open; the time of root scopes inside, evaluations, is not counted."""
        return time.perf_counter() - self._begin

    def pause(self, seconds: float) -> None:
        """Takes time that was spent elsewhere out of the rates."""
        self._begin += seconds

    def sums(self) -> dict[str, tuple[float, float]]:
        """`name -> (total, weight)` of all that was logged."""
        return dict(self._read())

    def _read(self) -> dict[str, tuple[float, float]]:
        """The sums, in the order in which names were first logged; a device is asked for what still waits there."""
        rows, self.rows = iter(self.rows), []
        try:
            self._add(rows)
        finally:
            self.rows.extend(rows)  # those behind one that is no number
        return self._sums

    def _add(self, rows: Iterator[tuple[str, Any, Any]]) -> None:
        # one loop without calls for Python's numbers: it runs for every metric of every row
        sums, kinds, name = self._sums, self._kinds, ""
        try:
            for name, total, weight in rows:
                if type(total) not in PLAIN:
                    total = _number_of(name, total)
                if type(weight) not in PLAIN:
                    weight = _number_of(name, weight)
                before = sums.get(name)
                if before is None:
                    sums[name] = 0.0 + total, 0.0 + weight
                else:
                    sums[name] = KINDS[kinds[name]](before[0], 0.0 + total), before[1] + weight
        except OverflowError as error:
            raise too_large(name) from error

    def values(self) -> dict[str, float]:
        """What every name comes to; NaN where the weight is zero."""
        found, seconds = {}, self.seconds
        for name, (total, weight) in self._read().items():
            kind = self._kinds[name]
            divisor = weight if kind == "mean" else seconds if kind == "rate" else 1.0
            found[name] = total / divisor if divisor else math.nan
        return found

    def mean(self, name: str, default: float | None = None) -> float | None:
        """Total over weight, or `default` when nothing was logged."""
        return self.values().get(name, default)

    def reduce(self, gather: Gather) -> dict[str, float]:
        """The values over all processes, the same on each; all must call it, but they need not know the same names.

        `reduce(run.group.gather)`: sums are added in the order of the ranks before anything is divided, rates take the
        time of the slowest, a `last` is that of the last rank which has one.
        """
        states = () if gather is alone else gather(self.state_dict())
        return _merged(states).values() if len(states) > 1 else self.values()

    def __contains__(self, name: object) -> bool:
        return name in self._sums or any(name == row[0] for row in self.rows)

    def absorb(self, inner: Scope) -> None:
        """Takes over what an inner scope has gathered."""
        self._read()
        rows = [(name, *sums) for name, sums in inner._read().items()]
        if inner._kinds is not self._kinds:
            for name, _, _ in rows:
                _declare(self._kinds, name, inner._kinds[name])
        self._add(iter(rows))

    def state_dict(self) -> dict[str, Any]:
        """The sums, as exact as they are; asking for them changes nothing that is told later."""
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
        self.group: ProcessGroup = SingleProcess()  # of the processes that train together; the runner puts the real one
        self._kinds: dict[str, str] = {}
        self._open: list[Scope] = [Scope("run", root=True, kinds=self._kinds)]
        self._restored: dict[tuple[str, ...], Mapping[str, Any]] = {}  # by the names from the outermost scope inwards

    @property
    def current(self) -> Scope:
        return self._open[-1]

    def log(self, name: str, total: object, weight: object = 1) -> None:
        """Adds a total that stands for `weight` tokens or samples to the innermost scope; their ratio is the mean.

        The scopes around it get it when that closes.
        """
        if self._kinds.get(name) != "mean":
            _declare(self._kinds, name, "mean")
        self._open[-1].rows.append((name, total, weight))

    def _log(self, kind: str, name: str, value: object) -> None:
        _declare(self._kinds, name, kind)
        self._open[-1].rows.append((name, value, 1))

    def sum(self, name: str, value: object) -> None:
        """A number that is told as the sum of all that was logged."""
        self._log("sum", name, value)

    def rate(self, name: str, value: object) -> None:
        """What is done a second: `rate("tokens", 512)` gives `time/tokens_per_s`."""
        self._log("rate", f"time/{name}_per_s", value)

    def max(self, name: str, value: object) -> None:
        self._log("max", name, value)

    def min(self, name: str, value: object) -> None:
        self._log("min", name, value)

    def last(self, name: str, value: object) -> None:
        """A number of which only the newest counts."""
        self._log("last", name, value)

    @contextlib.contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Seconds that the block, or the decorated function, takes each time: `timed("load")` gives `time/load`."""
        begin = time.perf_counter()
        try:
            yield
        finally:
            self.log(f"time/{name}", time.perf_counter() - begin)

    @contextlib.contextmanager
    def scope(self, name: str, root: bool = False) -> Iterator[Scope]:
        """Opens a scope; a root keeps what it gathers from the scopes around it. Also works as a decorator."""
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
            self._close(scope)  # it was one inside that an error left open

    def turn_over(self, gather: Gather = alone) -> dict[str, float]:
        """The values of the innermost scope, which then starts afresh; the scopes around it keep the numbers.

        With `gather` they are those of all processes, which all must call this at the same time.
        """
        scope = self._open[-1]
        values = scope.reduce(gather)
        if not scope.root:
            self._open[-2].absorb(scope)
        scope.clear()
        return values

    def open_scopes(self) -> list[Scope]:
        """From the run's inwards, without an evaluation's; together they hold each number of the run once."""
        roots = [place for place, scope in enumerate(self._open) if scope.root and place]
        return self._open[: roots[0] if roots else None]

    def state_dict(self) -> dict[str, Any]:
        """The open scopes of every process, which all must call this; an evaluation is made again after a resume."""
        return {"ranks": self.group.gather([scope.state_dict() for scope in self.open_scopes()])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The run's scope goes on at once, the others when a scope of that name is opened at that place again."""
        ranks = state["ranks"]
        if len(ranks) == self.group.size:
            scopes = ranks[self.group.rank]
        else:  # with another number of processes the main one goes on with the numbers of all
            scopes = [_merged(parts).state_dict() for parts in zip(*ranks)]
            if not self.group.is_main:
                scopes = [scope | {"fields": {}} for scope in scopes]
        self._open[0].load_state_dict(scopes[0])
        names = [scope["name"] for scope in scopes]
        self._restored = {tuple(names[: place + 1]): scope for place, scope in enumerate(scopes) if place}
        for scope in scopes:  # a name keeps its kind also in a scope that is not open yet
            self._kinds |= {name: kind for name, (kind, _, _) in scope["fields"].items()}


def _merged(states: Sequence[Mapping[str, Any]]) -> Scope:
    """One scope of those that several processes have of the same name."""
    whole = Scope(states[0]["name"])
    whole.pause(-max(state["seconds"] for state in states))
    for state in states:
        part = Scope(whole.name)
        part.load_state_dict(state)
        whole.absorb(part)
    return whole
