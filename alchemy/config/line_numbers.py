"""Locate every key in TOML or JSON text: its line, and the comments around its value.

The scan is lenient: tomllib and json do the parsing and report syntax errors. Scanning is several times slower than
parsing, so a config is scanned only when a line number is needed, and then only lines are recorded.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Never

from alchemy.errors import ConfigError, Problem

Path = tuple[str | int, ...]

DEEPEST = 100  # nesting levels: deeper nesting is a mistake or an attack, and all tree walks are recursive

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SHORT = r'"(?:\\.|[^"\\\n])*"' + r"|'[^'\n]*'"
_LONG = r'"""(?s:\\.|[^\\])*?"{3,5}' + r"|'''(?s:.)*?'{3,5}"
_PART = rf"(?:{_SHORT}|{BARE_KEY.pattern})"
_KEY = rf"[ \t]*{_PART}(?:[ \t]*\.[ \t]*{_PART})*[ \t]*"
# a key with more parts than the nesting limit, at the start of a line or after a bracket or comma
LONG_KEY = re.compile(rf"(?m:^|[\[{{,])[ \t]*+(?>{_PART}[ \t]*+\.[ \t]*+){{{DEEPEST}}}")
_HEADER = re.compile(rf"(\[\[?)({_KEY})\]\]?")
_TOML_ENTRY = re.compile(rf"({_KEY})=[ \t]*")
_JSON_ENTRY = re.compile(rf"({_SHORT})\s*:\s*")
_SCALAR = re.compile(rf"{_LONG}|(?!\"\"\"|''')(?:{_SHORT})|[^\s,\[\]{{}}#/\"'][^,\]}}#/\n]*")
_NOT_LONG = r"(?!\"\"\"|''')"
# values to skip when only lines are needed: a list of scalars, a table on one line; `++` never backtracks
_FLAT = re.compile(
    rf"\[(?>[^][{{}}\"'#/]++|{_NOT_LONG}(?:{_SHORT}))*+\]" + rf"|\{{(?>[^][{{}}\"'#/\n]++|{_NOT_LONG}(?:{_SHORT}))*+\}}"
)
# most lines of TOML: a header, or a bare key with a value on the same line; with trailing blanks and comments
_PLAIN_LINE = re.compile(
    r"(?:(?P<mark>\[\[?)(?P<header>[\w-]++(?:\.[\w-]++)*+)\]\]?"
    + r"|(?P<key>[\w-]++)[ \t]*+=[ \t]*+(?:[\w+.:-]++|\"[^\"\\\n]++\"))"
    + r"[ \t]*+(?:#[^\n]*+)?(?:\n(?:\s++|#[^\n]*+)*+|\Z)",
    re.ASCII,
)
_LINE_END = re.compile(r"(?:[ \t]*,)?([ \t]*(?:#[^\n]*)?)")  # what may follow a value on its line, possibly nothing


@dataclass
class Scan:
    """The result of a scan."""

    text: str  # the source, with syntax that TOML 1.0 or JSON does not allow blanked out
    starts: list[int]  # offset of each line
    lines: dict[Path, int] = field(default_factory=dict)
    spans: dict[Path, tuple[int, int]] = field(default_factory=dict)  # of values; tables with a [header] have no span
    above: dict[Path, str] = field(default_factory=dict)  # the text between a key or element and the previous one
    beside: dict[Path, str] = field(default_factory=dict)  # the comment at the end of a key's line
    blanks: list[tuple[int, int]] = field(default_factory=list)  # ranges blanked out in `text`
    statement: int = 0  # line of the last statement
    tail: str = ""  # the text after the last statement

    def line_at(self, offset: int) -> int:
        return bisect_right(self.starts, offset)


def scan_toml(text: str, name: str = "") -> Scan:
    """Scan TOML 1.0 with the inline tables of TOML 1.1, which may span lines and end with a comma."""
    return _Scanner(text, name, json=False).run()


def scan_json(text: str, name: str = "") -> Scan:
    """Scan JSON that may contain `// comments`, `# comments` and trailing commas."""
    return _Scanner(text, name, json=True).run()


class Lines(Mapping[Path, int]):
    """The line of every key in a text, computed on first access."""

    def __init__(self, text: str, *, json: bool = False) -> None:
        self.text, self.json = text, json

    @cached_property
    def found(self) -> dict[Path, int]:
        return _Scanner(self.text, "", json=self.json, only_lines=True).run().lines

    __eq__, __hash__ = object.__eq__, object.__hash__

    def __getstate__(self) -> dict[str, Any]:
        return {"text": self.text, "json": self.json}

    def __getitem__(self, path: Path) -> int:
        return self.found[path]

    def __iter__(self) -> Iterator[Path]:
        return iter(self.found)

    def __len__(self) -> int:
        return len(self.found)


def split_key(text: str) -> tuple[list[str], str] | None:
    """Return the components of the dotted key at the start of `text`, and the rest, or None if there is no key.

    >>> split_key('a."b.c".d = 1')
    (['a', 'b.c', 'd'], '= 1')
    """
    match = re.match(_KEY, text)
    return (_parts(match[0]), text[match.end() :]) if match else None


def _parts(key: str) -> list[str]:
    return [_unquote(part) for part in re.findall(_PART, key)]


def _unquote(part: str) -> str:
    if part[0] == '"' and "\\" in part:
        import tomllib

        with suppress(ValueError):  # an escape that is only valid in JSON
            return str(tomllib.loads(f"part = {part}")["part"])
    return part[1:-1] if part[0] in "\"'" else part


class _Stop(Exception):
    """Raised on a syntax error, which the parser will report."""


class _Scanner:
    def __init__(self, text: str, name: str, *, json: bool, only_lines: bool = False) -> None:
        self.text, self.name, self.json, self.only_lines = text, name, json, only_lines
        self.gap = re.compile(r"\s+|(?:#|//)[^\n]*" if json else r"\s+|#[^\n]*")
        self.layout = Scan(text, starts=[0, *(match.end() for match in re.finditer("\n", text))])
        self.pos = 0
        self.defined: set[Path] = set()
        self.counts: dict[Path, int] = {}  # number of elements so far in each array of tables
        self.braces = 0  # open inline tables, which must be on one line in TOML 1.0

    def run(self) -> Scan:
        with suppress(_Stop):
            self.skip()
            self.value(()) if self.json else self.statements()
            self.skip()
        self.layout.blanks.sort()
        pieces, done = [], 0
        for start, end in self.layout.blanks:
            pieces += [self.text[done:start], " " * (end - start)]
            done = end
        self.layout.text = "".join([*pieces, self.text[done:]])
        return self.layout

    def at(self, mark: str) -> bool:
        return self.text.startswith(mark, self.pos)

    def take(self, pattern: re.Pattern[str]) -> re.Match[str]:
        match = pattern.match(self.text, self.pos)
        if match is None:
            raise _Stop
        self.pos = match.end()
        return match

    def skip(self) -> None:
        """Skip whitespace, newlines and comments."""
        while match := self.gap.match(self.text, self.pos):
            self.pos = match.end()
            if match[0].strip(" \t" if self.braces else None) and (self.braces or self.json):
                self.layout.blanks.append(match.span())

    def begin(self, path: Path, start: int, after: int) -> None:
        """Record the key or element at `start`; the text starting at `after` belongs to it."""
        layout, line = self.layout, self.layout.line_at(start)
        if self.only_lines:
            if len(path) > DEEPEST:
                raise _Stop
            self.note(path, line)
            return
        if len(path) > DEEPEST:
            self.fail(f"tables are nested more than {DEEPEST} levels deep", line)
        if path in self.defined and path[-1] != "//":
            self.fail(f"{'.'.join(map(str, path))} is set twice", line, f"it is first set on line {layout.lines[path]}")
        self.defined.add(path)
        layout.above[path] = self.text[after:start]
        self.note(path, line)

    def note(self, path: Path, line: int) -> None:
        lines = self.layout.lines
        lines[path] = line
        while len(path) > 1 and (path := path[:-1]) not in lines:  # tables that appear only in dotted keys
            lines[path] = line

    def end(self, path: Path) -> int:
        """Record the comment at the end of the line; return the end of the text that belongs to the item."""
        if self.only_lines:
            return self.pos
        start, match = self.pos, self.take(_LINE_END)
        self.pos = start  # the comma and the comment are parsed later
        self.layout.beside[path] = match[1].rstrip()
        return match.end()

    def fail(self, message: str, line: int, hint: str = "") -> Never:
        raise ConfigError([Problem(message, f"{self.name}:{line}", hint=hint)])

    def statements(self) -> None:
        """Scan the headers and entries of a TOML document."""
        table: Path = ()
        after = 0
        while self.pos < len(self.text):
            if self.only_lines and (match := _PLAIN_LINE.match(self.text, self.pos)):
                table = self.plain_line(match, table)
                continue
            self.layout.statement = self.layout.line_at(self.pos)
            path = self.header(after) if self.at("[") else self.entry(table, after)
            table = table if path in self.layout.spans else path
            after = self.end(path)
            self.skip()
        self.layout.tail = self.text[after:]

    def plain_line(self, match: re.Match[str], table: Path) -> Path:
        """Record the line of a header or an entry; return the table that the next entry belongs to."""
        line, self.pos = self.layout.line_at(self.pos), match.end()
        if key := match["key"]:
            self.layout.lines[(*table, key)] = line
        else:
            table = self.opened(match["mark"], match["header"].split("."))
            self.note(table, line)
        return table

    def header(self, after: int) -> Path:
        start, match = self.pos, self.take(_HEADER)
        path = self.opened(match[1], _parts(match[2]))
        self.begin(path, start, after)
        return path

    def opened(self, mark: str, keys: list[str]) -> Path:
        """Return the path of the table that a header opens."""
        path: Path = ()
        for key in keys[: DEEPEST + 1]:
            if path in self.counts:  # below the last element of an array of tables
                path = (*path, self.counts[path] - 1)
            path = (*path, key)
        if mark == "[[":
            self.counts[path] = self.counts.get(path, 0) + 1
            path = (*path, self.counts[path] - 1)
        return path

    def entry(self, table: Path, after: int) -> Path:
        """Scan an entry, `key = value`."""
        start, match = self.pos, self.take(_JSON_ENTRY if self.json else _TOML_ENTRY)
        path = (*table, *_parts(match[1]))
        self.begin(path, start, after)
        self.value(path)
        return path

    def element(self, path: Path, after: int) -> Path:
        self.begin(path, self.pos, after)
        self.value(path)
        return path

    def value(self, path: Path) -> None:
        start = self.pos
        flat = _FLAT.match(self.text, start) if self.only_lines and path else None
        if flat:
            self.pos = flat.end()
        elif self.at("{") or self.at("["):
            self.pos += 1
            self.items(path, "}" if self.text[start] == "{" else "]")
        else:
            self.pos = start + len(self.take(_SCALAR)[0].rstrip())
        self.layout.spans[path] = (start, self.pos)

    def items(self, path: Path, close: str) -> None:
        """Scan the entries of an inline table or the elements of an array, up to the closing bracket."""
        in_braces = close == "}" and not self.json
        self.braces += in_braces
        index, after = 0, self.pos
        self.skip()
        while not self.at(close):
            item = self.entry(path, after) if close == "}" else self.element((*path, index), after)
            index, after = index + 1, self.end(item)
            self.skip()
            comma = self.pos
            if self.at(","):
                self.pos += 1
                self.skip()
                if self.at(close) and (in_braces or self.json):  # a trailing comma
                    self.layout.blanks.append((comma, comma + 1))
            elif not self.at(close):
                raise _Stop
        self.layout.above[(*path, index)] = self.text[after : self.pos]
        self.braces -= in_braces
        self.pos += 1
