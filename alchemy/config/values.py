"""The value types of a config, and how to write values that a format does not support.

`{ none = true }` is None, and `{ toml = "1979-05-27" }` is the TOML value in the string: a date or an infinity in
JSON, or a table that would otherwise be read as one of these forms.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from operator import methodcaller
from typing import Any, Never, Protocol, runtime_checkable

from alchemy.config.line_numbers import BARE_KEY, DEEPEST, Path, scan_toml
from alchemy.errors import ConfigError, Problem

_SCALARS = (bool, int, float, str, datetime.datetime, datetime.date, datetime.time, type(None))
# types that need no conversion, unlike their subclasses, such as tomlkit and numpy numbers
_EXACT = frozenset(_SCALARS) - {str}


@dataclass
class Parsed:
    """A config file as plain data; `source` is its text if it is TOML, so that comments can be written back."""

    data: dict[str, Any]
    lines: Mapping[Path, int] = field(default_factory=dict)
    source: str = ""
    digest: str = ""  # hash of the file content


def fail(message: str, *, where: str = "", section: str = "", hint: str = "") -> Never:
    raise ConfigError([Problem(message, where=where, section=section, hint=hint)])


def _at(name: str, lines: Mapping[Path, int], path: Path) -> str:
    """Return the `file:line` of the value at `path`, or of the nearest enclosing table."""
    line = line_of(lines, path)
    return f"{name}:{line}" if line else name


def line_of(lines: Mapping[Path, int], path: Path) -> int:
    """Return the line of the value at `path`, or of the nearest enclosing table; 0 if unknown."""
    while path and path not in lines:
        path = path[:-1]
    return lines.get(path, 0)


def dotted_key(path: Path) -> str:
    """Format a path as a dotted key, e.g. `plugins.1.log_dir`, with quotes where needed.

    >>> dotted_key(("a", 0, "b.c"))
    'a.0."b.c"'
    """
    return ".".join(quote_key(str(key)) for key in path)


def quote_key(key: str) -> str:
    return key if BARE_KEY.fullmatch(key) else quote(key)


def quote(text: str) -> str:
    """Format text as a TOML string on one line."""
    if "\\" in text and "'" not in text and text.isprintable():
        return f"'{text}'"
    return f'"{"".join(map(_escape_char, text))}"'


def _escape_char(char: str) -> str:
    return _ESCAPES.get(char) or (char if char.isprintable() else f"\\U{ord(char):08x}")


_ESCAPES = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\t": "\\t", "\r": "\\r", "\b": "\\b", "\f": "\\f"}


def literal(text: str) -> Any:
    """Parse a TOML literal; raise ValueError if `text` is not one.

    >>> literal("[1, 2]")
    [1, 2]
    """
    import tomllib

    text = text.replace("\r\n", "\n").strip()
    try:
        data = tomllib.loads(scan_toml(f"value = {text}").text)
    except (ConfigError, RecursionError):
        raise ValueError("set twice, or nested too deeply") from None
    if list(data) != ["value"]:
        raise ValueError("more than one value")
    return data["value"]


def decode(
    value: object, name: str = "", lines: Mapping[Path, int] | None = None, path: Path = (), *, spelt: bool = True
) -> Any:
    """Convert data from a file or program to plain data; with `spelt`, replace tables such as `{ none = true }`."""
    if isinstance(value, Mapping | list | tuple):
        if len(path) + bool(value) > DEEPEST:
            fail(f"tables are nested more than {DEEPEST} levels deep", where=_at(name, lines or {}, path))
        if isinstance(value, list | tuple):
            rows = enumerate(value)
            return [r if _is_plain(r) else decode(r, name, lines, (*path, i), spelt=spelt) for i, r in rows]
        if spelt and path and is_spelling(value):
            return _parse_form(value, _at(name, lines or {}, path))
        table = {}
        for key, item in value.items():
            here = (*path, key)
            key = key if _is_plain(key) and isinstance(key, str) else _check_text(key, _at(name, lines or {}, path))
            table[key] = item if _is_plain(item) else decode(item, name, lines, here, spelt=spelt)
        return table
    where = _at(name, lines or {}, path)
    value = _unwrap_scalar(value)
    if isinstance(value, str):
        return _check_text(value, where)
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, type) and path[-1:] == ("type",):
        return _import_path(value, where)
    plain = "use strings, numbers, true/false, dates, lists and tables"
    return fail(
        f"{dotted_key(path)} is a {type(value).__name__}, which a config cannot contain", where=where, hint=plain
    )


def _import_path(part: type, where: str) -> str:
    """Return the import path of a class given as a `type`, so that a record can name it."""
    if "<locals>" in part.__qualname__:
        text = f"{part.__qualname__} is defined inside a function, so a config cannot name it"
        fail(text, where=where, hint="define it at the top level of a module")
    return f"{part.__module__}.{part.__qualname__}"


def _is_plain(value: object) -> bool:
    return type(value) in _EXACT or (type(value) is str and str.isascii(value))


def from_tomlkit(value: object) -> object:
    """Unwrap a tomlkit item; return any other value unchanged."""
    return methodcaller("unwrap")(value) if type(value).__module__.startswith("tomlkit") else value


@runtime_checkable
class _Number(Protocol):
    """A numpy or torch scalar."""

    ndim: int

    def item(self) -> object: ...


def _unwrap_scalar(value: object) -> object:
    """Unwrap a scalar: tomlkit items, numpy numbers, enum members, paths."""
    value = from_tomlkit(value)
    if isinstance(value, _Number) and value.ndim == 0:
        return value.item()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int):
        return value if isinstance(value, bool) else int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


def is_spelling(table: Mapping[str, Any]) -> bool:
    """Return whether a table represents another value, as `{ none = true }` does."""
    return len(table) == 1 and (table.get("none") is True or isinstance(table.get("toml"), str))


def _parse_form(table: Mapping[str, Any], where: str) -> Any:
    if "none" in table:
        return None
    try:
        return literal(table["toml"])
    except ValueError:
        fail(f"{table['toml']!r} is not a TOML value", where=where, hint='write it like { toml = "1979-05-27" }')


def _check_text(text: object, where: str) -> str:
    if not isinstance(text, str):
        fail(f"the key {text!r} is not a string", where=where, hint=f'write "{text}"')
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        fail(f"{text!r} contains an unpaired surrogate, which no file can store", where=where)
    return str(text)
