"""Random spaces for property tests."""

from __future__ import annotations

from hypothesis import strategies as st

from alchemy.sweep.space import Choice, Range, Space

VALUES = st.lists(st.sampled_from([1, 2, 3, 0.5, "x", "y", True, None, [1, 2]]), min_size=1, max_size=4, unique_by=repr)


@st.composite
def choices(draw, key: str, when) -> Choice:
    if draw(st.booleans()):
        low = draw(st.integers(-3, 3))
        return Choice(key, range(low, low + draw(st.integers(3, 6)), draw(st.integers(1, 2))), when)
    values = [value for value in draw(VALUES) if value is not True] or [1]  # True equals 1
    return Choice(key, tuple(values), when)


@st.composite
def ranges(draw, key: str, when) -> Range:
    low, width = draw(st.sampled_from([1e-4, 0.5, 1.0])), draw(st.sampled_from([0.1, 3.0, 100.0]))
    if draw(st.booleans()):
        return Range(key, 1, 1 + int(width * 10), log=True, integer=True, when=when)
    return Range(key, low, low + width, log=draw(st.booleans()), when=when)


@st.composite
def spaces(draw, *, discrete: bool = False, numeric: int = 0) -> Space:
    """Return a space with conditions; `numeric` dimensions without one are ranges."""
    found: list[Choice | Range] = [draw(ranges(f"r{number}", {})) for number in range(numeric)]
    for number in range(draw(st.integers(0 if found else 1, 3))):
        parents = [own for own in found if isinstance(own, Choice)]
        when = {}
        if parents and draw(st.booleans()):
            parent = draw(st.sampled_from(parents))
            when = {parent.key: tuple(parent.values[: draw(st.integers(1, len(parent.values)))])}
        make = choices if discrete or draw(st.booleans()) else ranges
        found.append(draw(make(f"k{number}", when)))
    return Space(tuple(found))
