"""A stack of scopes that gather numbers: a step window inside an epoch inside a run.

A number logged reaches the innermost scope and, when that closes, every scope around it up to the nearest root.
Totals may be 0-d tensors: they are kept where they are and read only when somebody asks for the mean.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any


class Scope:
    """What was logged since the scope was opened."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._pending: dict[str, list[tuple[Any, Any]]] = {}
        self._sums: dict[str, list[Any]] = {}  # name -> [total, weight]

    def log(self, name: str, total: Any, weight: Any = 1) -> None:
        """Adds a total that stands for `weight` tokens or samples."""
        rows = self._pending.get(name)
        if rows is None:
            rows = self._pending[name] = []
        rows.append((total, weight))

    def sums(self) -> dict[str, list[Any]]:
        """`name -> [total, weight]` of all that was logged."""
        for name, rows in self._pending.items():
            sums = self._sums.setdefault(name, [0, 0])
            for total, weight in rows:
                # not in place: the tensor may belong to the model's outputs
                sums[0] = sums[0] + total
                sums[1] = sums[1] + weight
        self._pending = {}
        return self._sums

    def mean(self, name: str, default: float | None = None) -> float | None:
        """Total over weight, or `default` when nothing was logged."""
        return self.means().get(name, default)

    def means(self) -> dict[str, float]:
        """The mean of every name logged; NaN where the weight is zero."""
        return {name: _ratio(total, weight) for name, (total, weight) in self.sums().items()}

    def reduce(self, sum_over: Callable[[list[float]], list[float]]) -> dict[str, float]:
        """The means over all processes; `sum_over` adds a list of numbers across them."""
        sums = self.sums()
        flat = sum_over([float(number) for name in sorted(sums) for number in sums[name]])
        pairs = zip(flat[::2], flat[1::2], strict=True)
        return {name: _ratio(total, weight) for name, (total, weight) in zip(sorted(sums), pairs, strict=True)}

    def __contains__(self, name: object) -> bool:
        return name in self._pending or name in self._sums

    def absorb(self, inner: Scope) -> None:
        """Takes over what an inner scope has gathered: as Python floats, since float32 cannot count a long epoch."""
        sums = self.sums()
        for name, (total, weight) in inner.sums().items():
            own = sums.setdefault(name, [0.0, 0.0])
            own[0] += float(total)
            own[1] += float(weight)

    def clear(self) -> None:
        self._pending, self._sums = {}, {}


class Stack:
    """The open scopes of a run, innermost last."""

    def __init__(self) -> None:
        self._open: list[tuple[Scope, bool]] = [(Scope("run"), True)]

    @property
    def current(self) -> Scope:
        return self._open[-1][0]

    def log(self, name: str, total: Any, weight: Any = 1) -> None:
        """Adds to the innermost scope; the ones around it get it when that closes."""
        self._open[-1][0].log(name, total, weight)

    @contextlib.contextmanager
    def scope(self, name: str, root: bool = False) -> Iterator[Scope]:
        """Opens a scope; a root keeps what it gathers from the scopes around it. Also works as a decorator."""
        scope = Scope(name)
        self._open.append((scope, root))
        try:
            yield scope
        finally:
            while self._open.pop()[0] is not scope:  # an inner scope was left open by an error
                pass
            if not root:
                self.current.absorb(scope)

    def turn_over(self) -> dict[str, float]:
        """The means of the innermost scope, which then starts afresh; the scopes around it keep the numbers."""
        scope, root = self._open[-1]
        means = scope.means()
        if not root and len(self._open) > 1:
            self._open[-2][0].absorb(scope)
        scope.clear()
        return means


def _ratio(total: Any, weight: Any) -> float:
    weight = float(weight)
    return float(total) / weight if weight else float("nan")
