"""Shorten the ids of records to prefixes that still name them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def unique_prefix(name: str, names: Sequence[str]) -> str:
    """Return a prefix of a name that no other one of the sorted `names` has, or an empty string if it occurs twice.

    >>> names = ["2026-01-02_03-04-05.111", "2026-01-02_03-04-05.117", "2026-01-02_03-04-06.000"]
    >>> [unique_prefix(name, names) for name in names]
    ['2026-01-02_03-04-05.111', '2026-01-02_03-04-05.117', '2026-01-02_03-04-06']
    """
    place = bisect_left(names, name)
    neighbors = [*names[max(0, place - 1) : place], *names[place + 1 : place + 2]]
    if name in neighbors:
        return ""
    differences = (
        next((place for place, (one, two) in enumerate(zip(name, other)) if one != two), min(len(name), len(other)))
        for other in neighbors
    )
    return name[: max(len(name.partition(".")[0]), max(differences, default=0) + 1)]
