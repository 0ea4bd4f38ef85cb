"""Configs as TOML text that always reads back equal, with the order and comments of the file they came from.

The text is TOML 1.0, for other readers. None is written `{ none = true }`; see `alchemy.config.values`.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Iterator, Mapping
from typing import Any

from alchemy.config.scan import Path, scan_toml
from alchemy.config.tree import Table
from alchemy.config.values import decode, fail, is_spelling, quote, quote_key

WIDTH = 100  # characters: a longer list is written one element a line


def dumps(doc: Mapping[str, Any]) -> str:
    """A config, or any mapping of plain values, as TOML."""
    data = decode(doc.plain() if isinstance(doc, Table) else doc, spelt=False)
    source = source_of(doc)
    if source:
        text = _Writer(source).document(data)
        if same(_reread(text), data):
            return text
    return _Writer("").document(data)


def dump(doc: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Writes a config to a file, all of it or nothing."""
    from alchemy.files import write_atomic

    write_atomic(os.fspath(path), dumps(doc))


def inline(value: Any) -> str:
    """A value as TOML on one line."""
    if isinstance(value, dict):
        text = ", ".join(f"{quote_key(key)} = {inline(item)}" for key, item in value.items())
        text = f"{{ {text} }}" if text else "{}"
        return f"{{ toml = {quote(text)} }}" if is_spelling(value) else text
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(inline, value))}]"
    if value is None:
        return "{ none = true }"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        return quote(value)
    return _moment(value)


def same(one: Any, other: Any, *, ordered: bool = False) -> bool:
    """Whether two values are equal in type and content; nan equals nan. `ordered` compares the order of keys too."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        if one.keys() != other.keys() or (ordered and list(one) != list(other)):
            return False
        return all(same(item, other[key], ordered=ordered) for key, item in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(same(a, b, ordered=ordered) for a, b in zip(one, other, strict=True))
    return repr(one) == repr(other) if isinstance(one, float) else bool(one == other)


class _Writer:
    """Writes data in the manner of an older text: its comments, its spelling of what has not changed."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.layout = scan_toml(source)
        self.old = _reread(source) if source else {}
        self.lines: list[str] = []

    def document(self, data: dict[str, Any]) -> str:
        first = next(iter(self.layout.above), None)
        if first is not None:  # what a file opens with stays, whatever becomes of its first key
            self.lines += self.layout.above[first]
            self.layout.above[first] = []
        self.body(data, (), (), self.old)
        self.lines += self.layout.tail
        text = "\n".join(self.lines).strip("\n")
        return f"{text}\n" if text else ""

    def body(self, table: dict[str, Any], name: tuple[str, ...], at: Path | None, old: Any) -> None:
        """The keys of a table; `at` is the path where the older text has this table, None if it has not."""
        places = self.places(table, at, old)
        later = [key for key, value in table.items() if self.has_header(value, places[key])]
        for key in table:
            if key not in later:
                self.setting(key, table[key], places[key], old)
        for key in later:
            before = old[key] if places[key] is not None else None
            if isinstance(table[key], dict):
                self.table(table[key], (*name, key), places[key], before)
            else:
                self.tables(table[key], (*name, key), places[key], before)

    def places(self, table: dict[str, Any], at: Path | None, old: Any) -> dict[str, Path | None]:
        """Where the older text has each key of a table."""
        return {key: (*at, key) if at is not None and _holds(old, key) else None for key in table}

    def has_header(self, value: Any, at: Path | None) -> bool:
        """Whether a value is written under a `[header]`, as it was before, or as new tables are."""
        if isinstance(value, dict):
            return not is_spelling(value) and (at is None or at not in self.layout.spans)
        listed = isinstance(value, list) and len(value) > 0 and at is not None and (*at, 0) in self.layout.headers
        return listed and all(isinstance(item, dict) for item in value)

    def setting(self, key: str, value: Any, at: Path | None, old: Any) -> None:
        if at is not None:
            self.lines += self.layout.above.get(at, [])
        text = self.value(value, at, old[key] if at is not None else None, "")
        self.line(f"{quote_key(key)} = {text}", at)

    def line(self, text: str, at: Path | None) -> None:
        remark = self.layout.beside.get(at) if at is not None else None
        self.lines.append(f"{text}  {remark}" if remark else text)

    def table(self, table: dict[str, Any], name: tuple[str, ...], at: Path | None, old: Any) -> None:
        stands = at is not None and at in self.layout.headers
        places = self.places(table, at, old)
        only_tables = bool(table) and all(self.has_header(item, places[key]) for key, item in table.items())
        if stands or not only_tables:  # [a.b] says that there is an [a]
            self.header("[", "]", name, at)
        self.body(table, name, at, old)

    def tables(self, items: list[dict[str, Any]], name: tuple[str, ...], at: Path | None, old: Any) -> None:
        for item, index in _matched(items, old):
            place = (*at, index) if at is not None and index is not None else None
            self.header("[[", "]]", name, place)
            self.body(item, name, place, old[index] if place is not None else None)

    def header(self, left: str, right: str, name: tuple[str, ...], at: Path | None) -> None:
        above = self.layout.above.get(at) if at is not None else None
        if above is None and self.lines:
            above = [""]
        self.lines += above or []
        self.line(f"{left}{'.'.join(map(quote_key, name))}{right}", at)

    def value(self, value: Any, at: Path | None, old: Any, indent: str) -> str:
        """A value after `key =` or in a list: as it was written, if it is what it was."""
        span = self.layout.spans.get(at) if at is not None else None
        raw = self.source[slice(*span)] if span else ""
        if span and raw == self.layout.text[slice(*span)] and same(value, old, ordered=True):
            return raw
        if not isinstance(value, list) or not value:
            return inline(value)
        old = old if isinstance(old, list) else []
        text = inline(value)
        tall = "\n" in raw or len(indent) + len(text) > WIDTH or any(isinstance(item, dict) for item in value)
        return self.tall(value, at, old, indent) if tall else text

    def tall(self, items: list[Any], at: Path | None, old: list[Any], indent: str) -> str:
        rows = ["["]
        for item, index in _matched(items, old):
            place = (*at, index) if at is not None and index is not None else None
            if place is not None:
                rows += [f"{indent}    {remark}".rstrip() for remark in self.layout.above.get(place, [])]
            text = self.value(item, place, old[index] if index is not None else None, indent + "    ")
            remark = self.layout.beside.get(place, "") if place is not None else ""
            rows.append(f"{indent}    {text}, {remark}".rstrip())
        if at is not None:
            rows += [f"{indent}    {remark}".rstrip() for remark in self.layout.above.get((*at, len(old)), [])]
        return "\n".join([*rows, f"{indent}]"])


def _matched(items: list[Any], old: Any) -> Iterator[tuple[Any, int | None]]:
    """Each item with the index of the older element that it is, or has become."""
    start = 0
    rest = old if isinstance(old, list) else []
    for item in items:
        index = next((i for i in range(start, len(rest)) if same(rest[i], item)), None)
        if index is None and isinstance(item, dict):
            kinds = [part.get("type") if isinstance(part, dict) else None for part in rest]
            kind = item.get("type")
            index = next((i for i in range(start, len(rest)) if kind is not None and kinds[i] == kind), None)
        start = start if index is None else index + 1
        yield item, index


def _holds(table: Any, key: str) -> bool:
    return isinstance(table, dict) and key in table


def _reread(text: str) -> Any:
    from alchemy.config.toml import parse_toml

    try:
        return decode(parse_toml(text, "").data) if text else {}
    except Exception:  # whatever is wrong with the older text, the data can still be written plainly
        return {}


def source_of(doc: Mapping[str, Any]) -> str:
    """The TOML text that a mapping came from, if it remembers."""
    as_string = getattr(doc, "as_string", None)  # a tomlkit document
    return str(getattr(doc, "source", "") or (as_string() if callable(as_string) else ""))


def _moment(value: Any) -> str:
    zone = value.utcoffset() if isinstance(value, datetime.datetime | datetime.time) else None
    if zone is not None and (isinstance(value, datetime.time) or zone.total_seconds() % 60):
        fail(f"{value!r} has a time zone that TOML cannot write")
    return str(value.isoformat())
