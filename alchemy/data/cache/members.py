"""What an object is made of, whatever its class tells of itself to those who copy it."""

from __future__ import annotations

import contextlib
import copyreg
import sys
import types
from collections.abc import Iterator
from typing import Any

HEAP = 1 << 9  # a flag of types that were not compiled in
SCALARS: tuple[Any, ...] = (str, bytes, int, float, complex)
SEQUENCES: tuple[Any, ...] = (list, tuple, set, frozenset)
TELLING = ("__reduce_ex__", "__reduce__", "__getstate__", "__getnewargs_ex__", "__getnewargs__")


class Opaque(Exception):
    """An object that cannot be looked into."""


def members(value: Any) -> dict[str, Any]:
    """All that the attributes of an object hold, those in slots too."""
    found = dict(getattr(value, "__dict__", {}))
    # those of Python's own classes tell of themselves, and keep what they have once computed in slots
    for base in (base for base in type(value).__mro__ if "__slots__" in vars(base) and not _is_standard(base)):
        for name, member in vars(base).items():
            if isinstance(member, types.MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # nothing was put there
                    found[name if name not in found else f"{base.__qualname__}.{name}"] = member.__get__(value)
    return found


def parts(value: Any) -> list[Any] | str:
    """What a copy of an object would be made of, and what its class hides from copies; a text is a global name."""
    kind = type(value)
    reduce = copyreg.dispatch_table.get(kind, lambda value: value.__reduce_ex__(4))
    try:
        made = reduce(value)
    except Exception as error:
        raise Opaque(f"cannot be looked into: {error}") from error
    telling = [function for name in TELLING if isinstance(function := getattr(kind, name, None), types.FunctionType)]
    if isinstance(made, str) and not telling:
        return made
    found = [list(part) if isinstance(part, Iterator) else part for part in ([made] if isinstance(made, str) else made)]
    base = extended(kind)
    if telling and base not in (object, dict, *SCALARS, *SEQUENCES) and not all(map(_is_standard, telling)):
        raise Opaque(f"hides its state: it has a {telling[0].__name__} of its own, and extends {base.__qualname__}")
    content = held(value)
    return found if content is None and not telling else [*found, content, members(value)]


def extended(kind: type) -> type:
    """The type written in C that a class extends; that of most is object, which holds nothing."""
    for base in kind.__mro__:
        new: Any = base.__new__
        if not base.__flags__ & HEAP or (isinstance(new, types.BuiltinFunctionType) and new.__self__ is base):
            return base
    return object


def held(value: Any) -> Any:
    """What an object holds as the built-in value or container that its class extends; None for any other."""
    for scalar in SCALARS:
        if isinstance(value, scalar):
            return scalar.__getnewargs__(value)[0]
    for kind in SEQUENCES:
        if isinstance(value, kind):
            return kind(kind.__iter__(value))
    return dict(dict.items(value)) if isinstance(value, dict) else None


def _is_standard(made: type | types.FunctionType) -> bool:
    return made.__module__.partition(".")[0] in sys.stdlib_module_names
