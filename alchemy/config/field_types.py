"""Fields of samples as pipes declare them: a dtype, and behind it a shape, such as `int64[T]` or `float32[3,H,W]`."""

from __future__ import annotations


def fits(wanted: str, given: str) -> bool:
    """Whether a field is what a pipe takes; what one side does not tell fits, and letters stand for any size.

    >>> fits("int64", "int64[T]"), fits("float32[3,H,W]", "float32[C,28,28]"), fits("", "str")
    (True, True, True)
    >>> fits("int64[T]", "int64[T,D]"), fits("float32[3,H,W]", "float32[1,28,28]"), fits("int64", "int32[T]")
    (False, False, False)
    """
    (kind, shape), (other, told) = map(_parts, (wanted, given))
    if kind and other and kind != other:
        return False
    if shape is None or told is None:
        return True
    return len(shape) == len(told) and all(map(_meet, shape, told))


def _parts(text: str) -> tuple[str, list[str] | None]:
    """The dtype, and the sizes where the text has them: `int64[]` is a single number."""
    kind, bracket, rest = text.partition("[")
    inner = rest.rstrip("] ")
    return kind.strip(), ([size.strip() for size in inner.split(",")] if inner else []) if bracket else None


def _meet(one: str, other: str) -> bool:
    return one == other or not (one.isdecimal() and other.isdecimal())
