"""Plan the splits of an update into steps and processes, and compare their gradients."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

ONE_BY_ONE = 16  # up to this many samples, one of the splits has one step per sample
MEANS = (
    "this model returns mean losses without a count: each step of an update has the same weight, so the gradient is "
    "only approximate if steps differ in size; return a sum and its count for the exact gradient"
)

Gradients = dict[str, Tensor]


class Kind(NamedTuple):
    """The dtype, the relative tolerance, and the `floor` of `largest_difference`."""

    double: bool
    tolerance: float
    floor: float

    def __str__(self) -> str:
        return "float64" if self.double else "float32: this model cannot be cast to float64"


DOUBLE, SINGLE = Kind(True, 1e-6, 1e-6), Kind(False, 1e-3, 1e-2)


class UpdateCut(NamedTuple):
    """One split of the samples: batch size, number of steps and number of processes."""

    size: int | None  # None if the pipes create the batches
    steps: int
    ranks: int

    def __str__(self) -> str:
        return f"{pluralize(self.ranks, 'process', 'es')}, {pluralize(self.steps, 'step')}"


@dataclass
class Found:
    """The gradients of each split, returned by a `GradientCuts` run."""

    samples: int = 0
    unit: str = "sample"
    quiet: int = 0  # modules whose dropout was turned off
    means: bool = False
    unknown: str = ""  # why the gradients cannot be compared
    gradients: list[tuple[UpdateCut, Gradients]] = field(default_factory=list)


@dataclass
class _CutRow:
    """The largest difference between the gradients of a split and the reference, and the parameter where it occurs."""

    cut: str
    difference: float
    parameter: str


@dataclass
class CutReport:
    """The result of `verify parallel`."""

    head: str
    tolerance: float
    reference: str
    rows: list[_CutRow]
    notes: list[str]
    unknown: str = ""  # why there is no result

    @classmethod
    def of(cls, kind: Kind, found: Found) -> CutReport:
        """Compare the gradients of every split with the gradients of the first split."""
        if found.unknown:
            return cls(str(kind), kind.tolerance, "", [], [], found.unknown)
        (first, reference), *others = found.gradients
        rows = [_CutRow(str(cut), *largest_difference(reference, gradients, kind.floor)) for cut, gradients in others]
        batches = f"{pluralize(found.samples, 'batch', 'es')} as created by the pipes"
        head = [batches if found.unit == "batch" else pluralize(found.samples, "sample"), str(kind)]
        head += [f"dropout off in {pluralize(found.quiet, 'module')}"] if found.quiet else []
        return cls(", ".join(head), kind.tolerance, str(first), rows, [MEANS] if found.means else [])

    @property
    def equal(self) -> bool | None:
        return None if self.unknown else all(row.difference <= self.tolerance for row in self.rows)

    def plain(self) -> dict[str, Any]:
        rows = [vars(row) for row in self.rows]
        head = {"equal": self.equal, "tolerance": self.tolerance, "what": self.head, "reference": self.reference}
        return head | {"reason": self.unknown, "cuts": rows, "notes": self.notes}

    def __str__(self) -> str:
        if self.unknown:
            return "\n".join([*self.notes, f"unknown: {self.unknown}"])
        width = max(map(len, [self.reference, *(row.cut for row in self.rows)]))
        rows = [f"{row.cut:<{width}}  {row.difference:.1e} in {row.parameter}" for row in self.rows]
        lines = [self.head, f"{self.reference:<{width}}  the reference", *rows, *self.notes]
        return "\n".join([*lines, self._verdict()])

    def _verdict(self) -> str:
        if self.equal:
            return f"equal: no gradient differs by more than {self.tolerance:g} times its largest value"
        worst = max(self.rows, key=lambda row: row.difference)
        text = f"the gradient of {worst.parameter} differs by {worst.difference:.2g} times its largest value"
        return f"not equal: with {worst.cut} {text}"


def largest_difference(one: Gradients, other: Gradients, floor: float) -> tuple[float, str]:
    """Return the largest relative difference between two sets of gradients, and the name of its parameter.

    For tiny gradients, the relative difference would be mostly rounding error, so differences are never divided by less
    than `floor` times the largest gradient.
    """
    largest = max(map(_size, one.values()), default=0.0)
    found = (0.0, next(iter(one), ""))
    for name in {**one, **other}:
        a = one[name] if name in one else torch.zeros_like(other[name])
        b = other[name] if name in other else torch.zeros_like(a)
        if a.is_sparse != b.is_sparse:
            a, b = a.to_dense(), b.to_dense()
        scale = max(_size(a), _size(b), floor * largest)
        if scale > 0:
            found = max(found, (_size(a - b) / scale, name))
    return found


def _size(grad: Tensor) -> float:
    """Return the largest absolute value of a gradient."""
    values = grad.coalesce().values() if grad.is_sparse else grad
    return float(values.abs().max()) if values.numel() else 0.0


def plan(count: int, unit: str, here: int) -> Iterator[UpdateCut]:
    """Yield the splits for a group of `here` processes, including some with steps of unequal size.

    >>> [(cut.size, cut.steps) for cut in plan(8, "sample", 1)], [cut.size for cut in plan(8, "sample", 2)]
    ([(8, 1), (5, 2), (1, 8)], [8, 5])
    """
    if unit == "batch":
        yield UpdateCut(None, count // here, here)
        return
    sizes = [count, count // 2 + 1 if count > 2 else 1]
    if here == 1 and count > 2:
        sizes.append(1 if count <= ONE_BY_ONE else -(-count // 4))
    for size in sizes:
        yield UpdateCut(size, -(-count // size), here)


def pluralize(number: int, word: str, ending: str = "s") -> str:
    return f"{number:,} {word}{'' if number == 1 else ending}"
