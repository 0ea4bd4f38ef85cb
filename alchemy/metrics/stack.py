"""A stack of scopes that gather numbers: a step window inside an epoch inside a run.

A number logged reaches the innermost scope and, when that closes, every scope around it up to the nearest root.
Totals may be 0-d tensors: they are kept where they are and read only when somebody asks for the value.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from alchemy.absent import Alone
from alchemy.metrics.fields import KINDS, Mean, unlike

Gather = Callable[[Any], list[Any]]  # hands a value to all processes and returns those of all, in the order of ranks


def alone(value: Any) -> list[Any]:
    """What gathering comes to with a single process."""
    return [value]


class Scope:
    """What was logged since the scope was opened."""

    def __init__(self, name: str, root: bool = False, kinds: dict[str, str] | None = None) -> None:
        self.name, self.root = name, root
        self._kinds = {} if kinds is None else kinds  # of one stack: a name means the same in all its scopes
        self.clear()

    def clear(self) -> None:
        self._fields: dict[str, Mean] = {}
        self._begin = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long the scope has been open; the time of root scopes inside, evaluations, is not counted."""
        return time.perf_counter() - self._begin

    def pause(self, seconds: float) -> None:
        """Takes time that was spent elsewhere out of the rates."""
        self._begin += seconds

    def log(self, name: str, total: Any, weight: Any = 1) -> None:
        """Adds a total that stands for `weight` tokens or samples; their ratio, the mean, is what is told."""
        field = self._fields.get(name)
        if field is None:
            field = self._open(name, "mean")
        field.append((total, weight))

    def add(self, kind: str, name: str, value: Any) -> None:
        """Adds to a number of another kind: sum, rate, max, min, last."""
        field: Any = self._fields.get(name)
        if field is None or field.kind != kind:
            field = self._open(name, kind)
        field.take(value)

    def _open(self, name: str, kind: str) -> Mean:
        known = self._kinds.setdefault(name, kind)
        if known != kind:
            raise unlike(name, known, kind)
        return self._fields.setdefault(name, KINDS[kind](name))

    def sums(self) -> dict[str, tuple[float, float]]:
        """`name -> (total, weight)` of all that was logged."""
        return {name: (field.total, field.weight) for name, field in self._read()}

    def values(self) -> dict[str, float]:
        """What every name comes to, in the order in which they were first logged; NaN where the weight is zero."""
        seconds = self.seconds
        return {name: field.value(seconds) for name, field in self._read()}

    def means(self) -> dict[str, float]:
        """Of the values, those that are means."""
        return {name: value for name, value in self.values().items() if self._fields[name].kind == "mean"}

    def mean(self, name: str, default: float | None = None) -> float | None:
        """Total over weight, or `default` when nothing was logged."""
        return self.values().get(name, default)

    def reduce(self, gather: Gather) -> dict[str, float]:
        """The values over all processes, the same on each; all must call it, but they need not know the same names.

        `reduce(run.group.gather)`: sums are added in the order of the ranks before anything is divided, rates take the
        time of the slowest, a `last` is that of the last rank which has one.
        """
        states = gather(self.state_dict())
        return self.values() if len(states) == 1 else merged(states).values()

    def __contains__(self, name: object) -> bool:
        return name in self._fields

    def absorb(self, inner: Scope) -> None:
        """Takes over what an inner scope has gathered."""
        for name, field in inner._fields.items():
            self._open(name, field.kind).merge(field)

    def _read(self) -> Iterator[tuple[str, Mean]]:
        for name, field in self._fields.items():
            yield name, field.read()

    def state_dict(self) -> dict[str, Any]:
        """The sums, as exact as they are; asking for them changes nothing that is told later."""
        fields = {name: [field.kind, field.total, field.weight] for name, field in self._read()}
        return {"name": self.name, "seconds": self.seconds, "fields": fields}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.clear()
        self._begin -= state["seconds"]
        for name, (kind, total, weight) in state["fields"].items():
            self._fields[name] = KINDS[kind](name, total, weight, empty=False)


class Stack:
    """The open scopes of a run, innermost last."""

    def __init__(self) -> None:
        self.group: Any = Alone()  # of the processes that train together; the runner puts the real one
        self._kinds: dict[str, str] = {}
        self._open: list[Scope] = [Scope("run", root=True, kinds=self._kinds)]
        self._restored: dict[tuple[str, ...], Mapping[str, Any]] = {}  # by the names from the outermost scope inwards

    @property
    def current(self) -> Scope:
        return self._open[-1]

    def log(self, name: str, total: Any, weight: Any = 1) -> None:
        """Adds to the innermost scope; the ones around it get it when that closes."""
        self._open[-1].log(name, total, weight)

    def sum(self, name: str, value: Any) -> None:
        """A number that is told as the sum of all that was logged."""
        self._open[-1].add("sum", name, value)

    def rate(self, name: str, value: Any) -> None:
        """What is done a second: `rate("tokens", 512)` gives `time/tokens_per_s`."""
        self._open[-1].add("rate", f"time/{name}_per_s", value)

    def max(self, name: str, value: Any) -> None:
        self._open[-1].add("max", name, value)

    def min(self, name: str, value: Any) -> None:
        self._open[-1].add("min", name, value)

    def last(self, name: str, value: Any) -> None:
        """A number of which only the newest counts."""
        self._open[-1].add("last", name, value)

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
            scopes = [merged(parts).state_dict() for parts in zip(*ranks)]
            if not self.group.is_main:
                scopes = [scope | {"fields": {}} for scope in scopes]
        self._open[0].load_state_dict(scopes[0])
        names = [scope["name"] for scope in scopes]
        self._restored = {tuple(names[: place + 1]): scope for place, scope in enumerate(scopes) if place}
        for scope in scopes:  # a name keeps its kind also in a scope that is not open yet
            self._kinds |= {name: kind for name, (kind, _, _) in scope["fields"].items()}


def merged(states: Sequence[Mapping[str, Any]]) -> Scope:
    """One scope of those that several processes have of the same name."""
    whole = Scope(states[0]["name"])
    whole.pause(-max(state["seconds"] for state in states))
    for state in states:
        part = Scope(whole.name)
        part.load_state_dict(state)
        whole.absorb(part)
    return whole
