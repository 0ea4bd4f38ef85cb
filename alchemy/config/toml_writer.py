"""Write configs as TOML that parses to equal values, keeping the order and comments of the original file.

The output is TOML 1.0, which any reader accepts. None is written as `{ none = true }` (see `alchemy.config.values`).
A comment belongs to the key or element below it or on the same line, and is dropped with it. A comment inside a
multi-line inline table moves above the table. Comments are lost if a line starts with a comma.
"""

from __future__ import annotations

import datetime
from bisect import bisect_left
from collections.abc import Iterator, Mapping
from operator import methodcaller
from typing import Any

from alchemy.config.line_numbers import Path, scan_toml
from alchemy.config.tree import Document, Table
from alchemy.config.values import decode, fail, is_spelling, quote, quote_key

_WIDTH = 100  # characters: longer lists are written with one element per line


def dumps(doc: Mapping[str, Any]) -> str:
    """Format a config, or any mapping of plain values, as TOML."""
    data = decode(doc.plain() if isinstance(doc, Table) else doc, spelt=False)
    text = _Writer(toml_source(doc)).document(data)
    return text if is_same(_read_back(text), data) else _Writer("").document(data)


def format_inline(value: object) -> str:
    """Format a value as TOML on one line."""
    if isinstance(value, dict):
        text = ", ".join(f"{quote_key(key)} = {format_inline(item)}" for key, item in value.items())
        text = f"{{ {text} }}" if text else "{}"
        return f"{{ toml = {quote(text)} }}" if is_spelling(value) else text
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(format_inline, value))}]"
    if value is None:
        return "{ none = true }"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return quote(value)
    if not isinstance(value, datetime.date | datetime.time):
        fail(f"{value!r} cannot be written as TOML")
    zone = value.utcoffset() if isinstance(value, datetime.datetime | datetime.time) else None
    if zone is not None and (isinstance(value, datetime.time) or zone.total_seconds() % 60):
        fail(f"{value!r} has a time zone that TOML cannot represent")
    return value.isoformat()


def is_same(one: object, other: object, *, ordered: bool = False) -> bool:
    """Return whether two values have equal types, contents (nan equals nan) and, if `ordered`, the same key order."""
    if isinstance(one, dict) and isinstance(other, dict):
        keys = list(one) == list(other) if ordered else one.keys() == other.keys()
        return keys and all(is_same(item, other[key], ordered=ordered) for key, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(is_same(*pair, ordered=ordered) for pair in zip(one, other, strict=True))
    return type(one) is type(other) and (repr(one) == repr(other) if isinstance(one, float) else one == other)


class _Writer:
    """Writes data with the comments of an older text, and with its formatting where the values are unchanged."""

    def __init__(self, source: str) -> None:
        self.source, self.layout = source, scan_toml(source)
        self.old = dict(_walk(_read_back(source), ()))
        self.parts: list[str] = []

    def document(self, data: dict[str, Any]) -> str:
        first = next(iter(self.layout.above), ())
        self.parts.append(self.layout.above.pop(first, "").rstrip(" \t").removesuffix("\n"))  # kept if the key is gone
        self.body(data, (), ())
        text = "".join([*self.parts, self.layout.tail]).strip("\n")
        return f"{text}\n" if text else ""

    def body(self, table: dict[str, Any], name: tuple[str, ...], at: Path) -> None:
        """Write the keys of a table; `at` is its path in the older text, if it exists there."""
        later = [key for key, value in table.items() if self.has_header(value, (*at, key))]
        for key, value in table.items():
            if key not in later:
                self.parts.append(self.entry(f"{quote_key(key)} = ", value, (*at, key), "\n"))
        for key in later:
            if isinstance(table[key], dict):
                self.table("[%s]", table[key], (*name, key), (*at, key))
            else:
                for item, place in self.matched(table[key], (*at, key)):
                    self.table("[[%s]]", item, (*name, key), place)

    def has_header(self, value: object, at: Path) -> bool:
        """Return whether a value is written under a `[header]`, as in the older text or because it is a new table."""
        if isinstance(value, dict):
            return not is_spelling(value) and at not in self.layout.spans
        if not isinstance(value, list) or not value or at in self.layout.spans:
            return False
        if not isinstance(self.old.get(at), list):  # a new list, or a delta table that became a list
            return False
        return all(isinstance(item, dict) and not is_spelling(item) for item in value)

    def table(self, header: str, table: dict[str, Any], name: tuple[str, ...], at: Path) -> None:
        only_tables = table and all(self.has_header(item, (*at, key)) for key, item in table.items())
        if at in self.layout.above or header == "[[%s]]" or not only_tables:  # [a.b] implies [a]
            above = self.layout.above.get(at, "\n\n")
            self.parts += [above, header % ".".join(map(quote_key, name)), self.layout.beside.get(at, "")]
        self.body(table, name, at)

    def entry(self, head: str, value: object, at: Path, pad: str) -> str:
        """Format an entry or list element with its comments; `pad` is the newline and indent before it."""
        above = self.layout.above.get(at, "")
        above = above if "\n" in above else pad
        if isinstance(value, dict):
            remarks = [self.source[slice(*blank)] for blank in self.blanks(at)]
            above += "".join(f"{remark}{pad}" for remark in remarks if remark.startswith("#"))
        comma = "" if head else ","
        return f"{above}{head}{self.value(value, at, pad)}{comma}{self.layout.beside.get(at, '')}"

    def value(self, value: object, at: Path, pad: str) -> str:
        """Format a value, or keep its text if unchanged; lists of tables and long lists get one element per line."""
        old, raw = self.old.get(at), self.source[slice(*self.layout.spans.get(at, (0, 0)))]
        if raw and not self.blanks(at) and is_same(value, old, ordered=True):
            return raw
        text = format_inline(value)
        long = "\n" in raw or len(pad + text) > _WIDTH
        if not isinstance(value, list) or not (long or any(isinstance(item, dict) for item in value)):
            return text
        rows = [self.entry("", item, place, pad + "    ") for item, place in self.matched(value, at)]
        last = self.layout.above.get((*at, len(old)), "") if isinstance(old, list) else ""
        return "".join(["[", *rows, last if "\n" in last else pad, "]"])

    def blanks(self, at: Path) -> list[tuple[int, int]]:
        """Return the ranges of a value that TOML 1.0 does not allow."""
        start, end = self.layout.spans.get(at, (0, 0))
        return self.layout.blanks[bisect_left(self.layout.blanks, (start,)) : bisect_left(self.layout.blanks, (end,))]

    def matched(self, items: list[Any], at: Path) -> Iterator[tuple[Any, Path]]:
        """Yield each item with the path of the corresponding element in the older text."""
        old, start = self.old.get(at), 0
        rest = old if isinstance(old, list) else []
        for item in items:
            index = next((i for i in range(start, len(rest)) if is_same(rest[i], item)), -1)
            if index < 0 and _type(item) is not None:
                index = next((i for i in range(start, len(rest)) if _type(rest[i]) == _type(item)), -1)
            start = max(start, index + 1)
            yield item, (*at, index)


def _type(item: object) -> Any:
    return item.get("type") if isinstance(item, dict) else None


def _walk(value: object, path: Path) -> Iterator[tuple[Path, Any]]:
    yield path, value
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield from _walk(item, (*path, key))


def _read_back(text: str) -> Any:
    from alchemy.config.toml_reader import parse_toml

    try:
        return decode(parse_toml(text, "").data)
    except Exception:  # the data can still be written without the older text
        return {}


def toml_source(doc: Mapping[str, Any]) -> str:
    """Return the TOML text that a mapping came from, if it is a `Document` or a tomlkit document."""
    if isinstance(doc, Document):
        return doc.source
    return str(methodcaller("as_string")(doc)) if type(doc).__module__ == "tomlkit.toml_document" else ""
