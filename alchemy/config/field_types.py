"""Compare the field types that pipes declare: a dtype and an optional shape, e.g. `int64[T]` or `float32[3,H,W]`."""

from __future__ import annotations


def fits(wanted: str, given: str) -> bool:
    """Return whether a field matches the type that a pipe accepts; letters and omitted dtypes or shapes match anything.

    >>> fits("int64", "int64[T]"), fits("float32[3,H,W]", "float32[C,28,28]"), fits("", "str")
    (True, True, True)
    >>> fits("int64[T]", "int64[T,D]"), fits("float32[3,H,W]", "float32[1,28,28]"), fits("int64", "int32[T]")
    (False, False, False)
    """
    (kind, shape), (other, sizes) = map(_parse, (wanted, given))
    if kind and other and kind != other:
        return False
    if shape is None or sizes is None:
        return True
    return len(shape) == len(sizes) and all(map(_sizes_match, shape, sizes))


def _parse(text: str) -> tuple[str, list[str] | None]:
    """Split a type into dtype and sizes; the sizes are None if there is no shape (`int64[]` is a scalar)."""
    kind, bracket, rest = text.partition("[")
    inner = rest.rstrip("] ")
    return kind.strip(), ([size.strip() for size in inner.split(",")] if inner else []) if bracket else None


def _sizes_match(one: str, other: str) -> bool:
    return one == other or not (one.isdecimal() and other.isdecimal())
