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


def should_prune(rule: str, curve: Curve, others: Sequence[Curve], *, after: int = 1, since: int = 0) -> bool:
    """Return whether a run can be stopped; never before `after` evaluations.

    Only the evaluations after the first `since` are judged, so that each one is judged once.

    >>> should_prune("median", [3.0], [[1.0], [2.0], [2.0], [9.0]]), should_prune("median", [3.0], [[1.0]])
    (True, False)
    >>> should_prune("asha", [3.0], [[1.0], [2.0]]), should_prune("asha", [1.0], [[2.0], [3.0]])
    (True, False)
    """
    if rule == "median":
        counts = list(range(max(after, since + 1), len(curve) + 1))
        return any(_is_below_median(curve[:count], others) for count in counts)
    rungs = [after]
    while rungs[-1] * FACTOR <= len(curve):
        rungs.append(rungs[-1] * FACTOR)
    return any(_fails_rung(curve[:rung], others) for rung in rungs if since < rung <= len(curve))


def _is_below_median(curve: Curve, others: Sequence[Curve]) -> bool:
    """Return whether the best value so far is worse than the median of the other runs at this evaluation."""
    count = len(curve)
    peers = [_finite(other[count - 1]) for other in others if len(other) >= count]
    return len(peers) >= PEERS and _best(curve) > statistics.median(peers)


def _fails_rung(curve: Curve, others: Sequence[Curve]) -> bool:
    """Return whether a run is not in the best third of those that have reached a rung.

    Rungs are at `after`, 3 * `after`, 9 * `after`, .. evaluations, as in asynchronous successive halving (ASHA).
    """
    own = _best(curve)
    reached = [_best(other[: len(curve)]) for other in others if len(other) >= len(curve)]
    kept = (len(reached) + 1) // FACTOR
    return kept > 0 and sum(value < own for value in reached) >= kept


def _best(curve: Curve) -> float:
    return min(map(_finite, curve))


def _finite(value: float) -> float:
    return value if math.isfinite(value) else math.inf
