"""The Sobol sequence: points that fill a space evenly, shifted by a seed."""

from __future__ import annotations

import random

BITS = 30
# primitive polynomials (degree and coefficients) and initial direction numbers of Joe and Kuo (2008), "new-joe-kuo-6"
_DIRECTIONS = (
    (1, 0, (1,)),
    (2, 1, (1, 3)),
    (3, 1, (1, 3, 1)),
    (3, 2, (1, 1, 1)),
    (4, 1, (1, 1, 3, 3)),
    (4, 4, (1, 3, 5, 13)),
    (5, 2, (1, 1, 5, 5, 17)),
    (5, 4, (1, 1, 5, 5, 5)),
    (5, 7, (1, 1, 7, 11, 19)),
    (5, 11, (1, 1, 5, 1, 1)),
    (5, 13, (1, 1, 1, 3, 11)),
    (5, 14, (1, 3, 5, 5, 31)),
    (6, 1, (1, 3, 3, 9, 7, 49)),
    (6, 13, (1, 1, 1, 15, 21, 21)),
    (6, 16, (1, 3, 1, 13, 27, 49)),
    (6, 19, (1, 1, 1, 15, 7, 5)),
    (6, 22, (1, 3, 1, 15, 13, 25)),
    (6, 25, (1, 1, 5, 5, 19, 61)),
    (7, 1, (1, 3, 7, 11, 23, 15, 103)),
    (7, 4, (1, 3, 7, 13, 13, 15, 69)),
)
MOST = len(_DIRECTIONS) + 1  # dimensions


def draw_sobol(number: int, dimensions: int, seed: int | None = None) -> list[float]:
    """Return a point of the sequence in the unit cube; a seed shifts all points alike, which keeps them even.

    >>> [draw_sobol(number, 2) for number in range(4)]
    [[0.0, 0.0], [0.5, 0.5], [0.75, 0.25], [0.25, 0.75]]
    """
    shifts = random.Random(seed)
    found = []
    for dimension in range(dimensions):
        bits = shifts.getrandbits(BITS) if seed is not None else 0
        gray = number ^ (number >> 1)
        for place, direction in enumerate(_list_directions(dimension)):
            if gray >> place & 1:
                bits ^= direction
        found.append(bits / 2**BITS)
    return found


def _list_directions(dimension: int) -> list[int]:
    if dimension == 0:
        return [1 << (BITS - 1 - place) for place in range(BITS)]
    degree, coefficients, initial = _DIRECTIONS[dimension - 1]
    found = [number << (BITS - 1 - place) for place, number in enumerate(initial)]
    for place in range(degree, BITS):
        new = found[place - degree] ^ (found[place - degree] >> degree)
        for back in range(1, degree):
            if coefficients >> (degree - 1 - back) & 1:
                new ^= found[place - back]
        found.append(new)
    return found
