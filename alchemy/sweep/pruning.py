"""Decide from the curves of a metric whether a run is worth finishing.

Runs are compared after the same number of evaluations. Lower values are better.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

PEERS = 4  # runs that have come as far, before the median counts
FACTOR = 3  # ASHA keeps one run in three at each rung

Curve = Sequence[float]


def is_hopeless(rule: str, curve: Curve, others: Sequence[Curve], *, after: int = 1) -> bool:
    """Return whether a run can be stopped; never before `after` evaluations."""
    if len(curve) < after:
        return False
    return (_is_below_median if rule == "median" else _fails_rung)(curve, others, after)


def _is_below_median(curve: Curve, others: Sequence[Curve], after: int) -> bool:
    """Return whether the best value so far is worse than the median of the other runs at this evaluation.

    >>> is_hopeless("median", [3.0], [[1.0], [2.0], [2.0], [9.0]]), is_hopeless("median", [3.0], [[1.0]])
    (True, False)
    """
    count = len(curve)
    peers = [_finite(other[count - 1]) for other in others if len(other) >= count]
    return len(peers) >= PEERS and _best(curve) > statistics.median(peers)


def _fails_rung(curve: Curve, others: Sequence[Curve], after: int) -> bool:
    """Return whether a run is not in the best third of those that have reached its last rung.

    Rungs are at `after`, 3 * `after`, 9 * `after`, .. evaluations, as in asynchronous successive halving (ASHA).

    >>> is_hopeless("asha", [3.0], [[1.0], [2.0]]), is_hopeless("asha", [1.0], [[2.0], [3.0]])
    (True, False)
    """
    rung = after
    while rung * FACTOR <= len(curve):
        rung *= FACTOR
    own = _best(curve[:rung])
    reached = [_best(other[:rung]) for other in others if len(other) >= rung]
    kept = (len(reached) + 1) // FACTOR
    return kept > 0 and sum(value < own for value in reached) >= kept


def _best(curve: Curve) -> float:
    return min(map(_finite, curve))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf
