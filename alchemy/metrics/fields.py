"""The kinds of numbers that a scope gathers: means, sums, rates, largest, smallest and last ones."""

from __future__ import annotations

from typing import Any

from alchemy.errors import AlchemyError


class Mean(list[tuple[Any, Any]]):
    """The rows that nobody has read yet, and what those before them came to: a total and a weight.

    Rows are read one by one, in their order, as Python floats: so the sums do not depend on when somebody asks, and a
    long epoch is counted in float64, whatever the tensors hold.
    """

    __slots__ = ("empty", "name", "total", "weight")
    kind = "mean"

    def __init__(self, name: str, total: float = 0.0, weight: float = 0.0, empty: bool = True) -> None:
        super().__init__()
        self.name, self.total, self.weight, self.empty = name, total, weight, empty

    def read(self) -> Mean:
        """Takes in the rows that wait; a device is asked for them here, and nowhere else."""
        rows = self[:]
        self.clear()  # first: a row that is no number is told once
        for total, weight in rows:
            self.add(self._number(total), self._number(weight))
        return self

    def _number(self, value: Any) -> float:
        try:
            # item(): a tensor that still has its graph warns when it is made a float directly
            return float(value.item() if hasattr(value, "item") else value)
        except (TypeError, ValueError, RuntimeError) as error:
            text = f"the metric {self.name!r} must be a single number, not {type(value).__name__} {str(value)[:60]!r}"
            raise AlchemyError(text, hint="log the sum of what it holds, and the count as the weight") from error

    def add(self, total: float, weight: float) -> None:
        self.total, self.weight, self.empty = self._joined(total), self.weight + weight, False

    def merge(self, other: Mean) -> None:
        """Takes over what another scope, or another process, has gathered under the same name."""
        self.read()
        if not other.read().empty:
            self.add(other.total, other.weight)

    def _joined(self, total: float) -> float:
        return self.total + total

    def value(self, seconds: float) -> float:
        return self.total / self.weight if self.weight else float("nan")


class _Plain(Mean):
    """A kind that has no weight of its own: it is logged through the method of its name, not through `log`."""

    __slots__ = ()

    def append(self, row: tuple[Any, Any]) -> None:
        raise unlike(self.name, self.kind, "mean")

    def take(self, value: Any) -> None:
        super().append((value, 1))

    def value(self, seconds: float) -> float:
        return self.total


class Sum(_Plain):
    __slots__ = ()
    kind = "sum"


class Rate(_Plain):
    """The sum over the seconds of its scope; evaluations inside are not counted."""

    __slots__ = ()
    kind = "rate"

    def value(self, seconds: float) -> float:
        return self.total / seconds if seconds > 0 else float("nan")


class Max(_Plain):
    __slots__ = ()
    kind = "max"

    def _joined(self, total: float) -> float:
        # not max(): a NaN must be seen, wherever it stands
        return self.total if not self.empty and not total > self.total and total == total else total


class Min(_Plain):
    __slots__ = ()
    kind = "min"

    def _joined(self, total: float) -> float:
        return self.total if not self.empty and not total < self.total and total == total else total


class Last(_Plain):
    __slots__ = ()
    kind = "last"

    def _joined(self, total: float) -> float:
        return total


KINDS: dict[str, type[Mean]] = {kind.kind: kind for kind in (Mean, Sum, Rate, Max, Min, Last)}


def unlike(name: str, known: str, kind: str) -> AlchemyError:
    """One name cannot be two kinds of number."""
    return AlchemyError(f"the metric {name!r} is a {known} and cannot be logged as a {kind}", hint="rename one of them")
