"""Where everything stands in a TOML or JSON text: the line of every key, its value's text and its comments."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

Path = tuple[str | int, ...]

DEEPEST = 100  # levels: deeper nesting is an accident or an attack, and every walk over the tree is recursive

BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_STRINGS = [  # the long forms first: each starts like a short one
    re.compile(r'"""(?:\\.|[^\\])*?"{3,5}', re.DOTALL),
    re.compile(r"'''.*?'{3,5}", re.DOTALL),
    re.compile(r'"(?:\\.|[^"\\\n])*"'),
    re.compile(r"'[^'\n]*'"),
]


@dataclass
class Layout:
    """What a scan found. `text` is the source with what TOML 1.0 and JSON do not know blanked out, same length."""

    text: str
    lines: dict[Path, int] = field(default_factory=dict)
    spans: dict[Path, tuple[int, int]] = field(default_factory=dict)  # of values
    above: dict[Path, list[str]] = field(default_factory=dict)  # comments and blank lines over a key
    beside: dict[Path, str] = field(default_factory=dict)  # the comment at the end of a key's line
    headers: dict[Path, str] = field(default_factory=dict)  # '[' or '[[' for tables with a header of their own
    twice: list[tuple[Path, int, int]] = field(default_factory=list)  # path, first line, second line
    tail: list[str] = field(default_factory=list)  # comments after the last key
    too_deep: int = 0  # the line where nesting went beyond DEEPEST
    stopped: int = 0  # the line of the statement that could not be read; a parser will say why
    starts: list[int] = field(default_factory=list)  # of lines

    def line_at(self, offset: int) -> int:
        return bisect_right(self.starts, offset)


def scan_toml(text: str) -> Layout:
    """Scans TOML 1.0 and the inline tables of TOML 1.1, which may span lines and end in a comma."""
    return _Scanner(text, equals="=", comment="#", unquote=_unquote_toml).run(lambda scanner: scanner.statements())


def scan_json(text: str) -> Layout:
    """Scans JSON, where we also accept `// comments`, `# comments` and trailing commas."""
    return _Scanner(text, equals=":", comment="//", unquote=_unquote_json).run(lambda scanner: scanner.root())


def split_key(text: str) -> tuple[list[str], str] | None:
    """The parts of the dotted key that `text` starts with, and what follows; None if it starts with no key.

    >>> split_key('a."b.c".d = 1')
    (['a', 'b.c', 'd'], '= 1')
    """
    scanner = _Scanner(text, equals="=", comment="#", unquote=_unquote_toml)
    try:
        return scanner.key(), text[scanner.pos :]
    except _Stop:
        return None


class _Stop(Exception):
    """The text is not what it should be here."""


class _Scanner:
    def __init__(self, text: str, *, equals: str, comment: str, unquote: Callable[[str], str]) -> None:
        self.text, self.pos = text, 0
        self.equals, self.json, self.unquote = equals, comment == "//", unquote
        self.marks = ("//", "#") if self.json else ("#",)
        self.scalar = re.compile(r"[^,\]}#/\n]+" if self.json else r"[^,\]}#\n]+")
        self.layout = Layout(text, starts=[0, *(match.end() for match in re.finditer("\n", text))])
        self.defined: set[Path] = set()
        self.counts: dict[Path, int] = {}  # elements so far of each array of tables
        self.blanks: list[tuple[int, int]] = []
        self.loose: list[str] = []  # comments inside an inline table, which go above the whole
        self.braces = 0

    def run(self, read: Callable[[_Scanner], None]) -> Layout:
        try:
            read(self)
        except (_Stop, RecursionError):
            self.layout.stopped = self.layout.stopped or self.line()
        pieces, end = [], 0
        for start, stop in sorted(self.blanks):
            pieces += [self.text[end:start], " " * (stop - start)]
            end = stop
        self.layout.text = "".join([*pieces, self.text[end:]])
        return self.layout

    # -- small steps
    def line(self, pos: int | None = None) -> int:
        return self.layout.line_at(self.pos if pos is None else pos)

    def at(self, *marks: str) -> bool:
        return self.text.startswith(marks, self.pos)

    def expect(self, mark: str) -> None:
        if not self.at(mark):
            raise _Stop
        self.pos += len(mark)

    def spaces(self) -> None:
        while self.at(" ", "\t"):
            self.pos += 1

    def comment(self) -> str:
        end = self.text.find("\n", self.pos)
        start, self.pos = self.pos, len(self.text) if end < 0 else end
        return self.text[start : self.pos].rstrip()

    def gap(self) -> list[tuple[int, str]]:
        """Steps over blanks, lines and comments between values; blanks them where the format has no such thing."""
        comments = []
        while True:
            self.spaces()
            start, line = self.pos, self.line()
            if self.at("\n"):
                self.pos += 1
            elif self.at(*self.marks):
                comments.append((line, self.comment()))
            else:
                return comments
            if self.braces or (self.json and self.text[start] != "\n"):
                self.blanks.append((start, self.pos))

    def note(self, path: Path, *, start: int) -> None:
        if len(path) > DEEPEST:
            self.layout.too_deep = self.line(start)
            raise _Stop
        line = self.line(start)
        if path in self.defined:
            self.layout.twice.append((path, self.layout.lines[path], line))
        self.defined.add(path)
        self.layout.lines[path] = line
        for depth in range(len(path) - 1, 0, -1):  # tables that only a dotted key mentions
            if path[:depth] in self.layout.lines:
                break
            self.layout.lines[path[:depth]] = line

    # -- statements of a TOML document
    def statements(self) -> None:
        table: Path = ()
        pending: list[str] = []
        while True:
            self.spaces()
            if self.pos >= len(self.text):
                self.layout.tail = pending
                return
            if self.at("\n"):
                pending.append("")
            elif self.at("#"):
                pending.append(self.comment())
            else:
                self.layout.stopped, self.loose = self.line(), []
                if self.at("["):
                    path = table = self.header()
                else:
                    path = self.setting(table)
                self.spaces()
                if self.at("#"):
                    self.layout.beside[path] = self.comment()
                self.layout.above[path] = [*pending, *self.loose]
                self.layout.stopped, pending = 0, []
            if self.pos < len(self.text):
                self.expect("\n")

    def header(self) -> Path:
        start, double = self.pos, self.at("[[")
        self.pos += 2 if double else 1
        *parents, last = self.key()
        self.expect("]]" if double else "]")
        path: Path = ()
        for key in parents:
            path = self.enter((*path, key))
        path = (*path, last)
        if double:
            self.counts[path] = self.counts.get(path, 0) + 1
            self.layout.lines.setdefault(path, self.line(start))
            path = self.enter(path)
        self.note(path, start=start)
        self.layout.headers[path] = "[[" if double else "["
        return path

    def enter(self, path: Path) -> Path:
        """The last element, where `path` is an array of tables."""
        return (*path, self.counts[path] - 1) if path in self.counts else path

    def setting(self, table: Path) -> Path:
        start = self.pos
        path = (*table, *self.key())
        self.expect(self.equals)
        self.spaces()
        self.note(path, start=start)
        self.value(path)
        return path

    def key(self) -> list[str]:
        keys = []
        while True:
            self.spaces()
            start, bare = self.pos, BARE_KEY.match(self.text, self.pos)
            if self.at('"', "'"):
                self.string()
                keys.append(self.unquote(self.text[start : self.pos]))
            elif bare and not self.json:
                self.pos = bare.end()
                keys.append(bare.group())
            else:
                raise _Stop
            self.spaces()
            if self.json or not self.at("."):
                return keys
            self.pos += 1

    # -- values
    def root(self) -> None:
        """The one value that a JSON document is."""
        self.gap()
        self.layout.lines[()] = self.line()
        self.value(())
        self.gap()

    def value(self, path: Path) -> None:
        start = self.pos
        if self.at("{"):
            self.table(path)
        elif self.at("["):
            self.array(path)
        elif self.at('"', "'"):
            self.string()
        else:
            match = self.scalar.match(self.text, self.pos)
            if match is None:
                raise _Stop
            self.pos += len(match.group().rstrip())
        self.layout.spans[path] = (start, self.pos)

    def string(self) -> None:
        for pattern in _STRINGS:
            match = pattern.match(self.text, self.pos)
            if match and not (match.end() - match.start() == 2 and self.at('"""', "'''")):
                self.pos = match.end()
                return
        raise _Stop

    def table(self, path: Path) -> None:
        self.pos += 1
        self.braces += not self.json
        comma = -1
        while True:
            self.loose += [text for _, text in self.gap()]
            if self.at("}"):
                break
            start = self.pos
            keys = self.key()
            self.loose += [text for _, text in self.gap()]
            self.expect(self.equals)
            self.loose += [text for _, text in self.gap()]
            self.note((*path, *keys), start=start)
            self.value((*path, *keys))
            self.loose += [text for _, text in self.gap()]
            comma = self.pos if self.at(",") else -1
            if comma >= 0:
                self.pos += 1
            elif not self.at("}"):
                raise _Stop
        self.end_list("}", comma)
        self.braces -= not self.json

    def array(self, path: Path) -> None:
        self.pos += 1
        index, comma = 0, -1
        ended = 0  # the line on which the element before ended: a comment there belongs to it
        while True:
            above: list[str] = []
            for line, text in self.gap():
                if index and line == ended:
                    self.layout.beside[(*path, index - 1)] = text
                else:
                    above.append(text)
            item = (*path, index)
            if above:
                self.layout.above[item] = above
            if self.at("]"):
                break
            self.note(item, start=self.pos)
            outer, self.loose = self.loose, []
            self.value(item)
            if self.loose:
                self.layout.above[item] = [*above, *self.loose]
            self.loose, ended, index = outer, self.line(), index + 1
            between = self.gap()
            if between:
                self.layout.above.setdefault((*path, index - 1), []).extend(text for _, text in between)
            comma = self.pos if self.at(",") else -1
            if comma >= 0:
                self.pos, ended = self.pos + 1, self.line()
            elif not self.at("]"):
                raise _Stop
        self.end_list("]", comma if self.json else -1)

    def end_list(self, mark: str, comma: int) -> None:
        if comma >= 0:  # a trailing comma
            self.blanks.append((comma, comma + 1))
        self.expect(mark)


def _unquote_toml(text: str) -> str:
    if text.startswith(('"""', "'''")) and len(text) > 2:
        raise _Stop  # no key
    if text[0] == "'" or "\\" not in text:
        return text[1:-1]
    import tomllib

    try:
        return str(tomllib.loads(f"key = {text}")["key"])
    except ValueError:
        raise _Stop from None


def _unquote_json(text: str) -> str:
    import json

    try:
        return str(json.loads(text))
    except ValueError:
        raise _Stop from None
