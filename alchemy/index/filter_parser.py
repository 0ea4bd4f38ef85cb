"""Parse the filter language for records into a tree of terms.

    status:failed tag:baseline lr<1e-3 model.depth=12 best(val/acc)>0.9 created>-7d "focal loss" code:3fa2

Terms are combined with `and` by default; `or`, `not` (or a leading `-`) and parentheses are available. A term is

- `FIELD:TEXT`: the field, or config key, contains the text; `*` matches any characters;
- `NAME OP VALUE`, with `=`, `!=`, `<`, `<=`, `>`, `>=` or `~` (contains): NAME is a field, a metric such as `dev/f1`
  (its value at the best checkpoint), or a config key, which may be shortened: `lr` for `optim.lr`;
- `best(METRIC)`, `last(METRIC)`, `min(METRIC)`, `max(METRIC)` instead of NAME;
- any other word or quoted text: full-text search in purpose, README, notes, tags, config values and tracebacks.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from alchemy.errors import AlchemyError, display_width, printable

LONGEST, MAX_TERMS, DEEPEST = 10_000, 300, 15  # characters, terms and nested parentheses
SHOWN = 60  # characters on each side of an error

_SPACE = re.compile(r"\s*")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FUNCTION = re.compile(r"(\w+)\(\s*([^()\s]+)\s*\)")
_NAME = re.compile(r'[^\s()"<>=!~:]+')
_OPERATOR = re.compile(r"<=|>=|!=|=|<|>|~|:")
_VALUE = re.compile(r'[^\s()"]+')


def join_filters(*texts: str) -> str:
    """Return a filter for the records that match all of several valid filters.

    >>> join_filters("a or b", " ", "c"), join_filters("", "a or b")
    ('(a or b) (c)', 'a or b')
    """
    parts = [text for text in texts if text.strip()]
    return " ".join(f"({part})" for part in parts) if len(parts) > 1 else "".join(parts)


class BadFilter(AlchemyError):
    """A filter that cannot be parsed; the message points at the error."""

    def __init__(self, text: str, place: int, message: str, hint: str = "") -> None:
        self.place = place
        first = max(0, place - SHOWN)  # only the part of a long filter around the error is shown
        before, after = (
            printable(re.sub(r"\s", " ", part)) for part in (text[first:place], text[place : place + SHOWN])
        )
        told = f"{message}; {hint}" if hint else message
        super().__init__(f"{told}\n  {before}{after}\n  {' ' * display_width(before)}^")


class Comparison(NamedTuple):
    """`NAME OPERATOR VALUE`, or `FUNCTION(NAME) OPERATOR VALUE`; it begins at `start`, and its value at `place`."""

    function: str
    name: str
    operator: str
    value: str
    start: int
    place: int


class Words(NamedTuple):
    """Words to search for."""

    text: str
    start: int


class Not(NamedTuple):
    term: Term


class AllOf(NamedTuple):
    terms: list[Term]


class AnyOf(NamedTuple):
    terms: list[Term]


Term: TypeAlias = Comparison | Words | Not | AllOf | AnyOf


def parse_filter(text: str) -> Term:
    """Parse a filter; an empty one is `AllOf` no terms."""
    if len(text) > LONGEST:
        raise AlchemyError(f"the filter has {len(text)} characters, at most {LONGEST} are allowed")
    return _Parser(text).parse()


def looks_like_filter(text: str) -> bool:
    """Return whether a text that is not the name of a record is probably a filter.

    >>> looks_like_filter("lr=0.1"), looks_like_filter("status:failed"), looks_like_filter("last~2")
    (True, True, False)
    """
    return any(sign in text for sign in "=<>:")


class _Parser:
    def __init__(self, text: str) -> None:
        self._text, self._at, self._terms = text, 0, 0

    def parse(self) -> Term:
        self._skip()
        found = self._any_of(0) if self._at < len(self._text) else AllOf([])
        if self._at < len(self._text):
            raise self._error("unexpected ')'" if self._text[self._at] == ")" else "cannot parse this")
        return found

    def _any_of(self, depth: int) -> Term:
        if depth > DEEPEST:
            raise self._error("too many nested parentheses")
        terms = [self._all_of(depth)]
        while self._word("or"):
            terms.append(self._all_of(depth))
        return terms[0] if len(terms) == 1 else AnyOf(terms)

    def _all_of(self, depth: int) -> Term:
        terms: list[Term] = []
        while self._at < len(self._text) and self._text[self._at] != ")" and not self._word("or", take=False):
            if self._word("and") and not terms:
                raise self._error("expected a term before 'and'")
            terms.append(self._single(depth))
        if not terms:
            raise self._error("expected a term")
        return terms[0] if len(terms) == 1 else AllOf(terms)

    def _single(self, depth: int) -> Term:
        negated = False
        while self._word("not") or self._take("-"):
            negated = not negated
            self._skip()
        if self._take("("):
            self._skip()
            term = self._any_of(depth + 1)
            if not self._take(")"):
                raise self._error("expected ')'")
        else:
            term = self._term()
        self._skip()
        return Not(term) if negated else term

    def _term(self) -> Term:
        start = self._at
        self._terms += 1
        if self._terms > MAX_TERMS:  # SQLite limits the size of an expression
            raise self._error(f"too many terms, at most {MAX_TERMS} are allowed")
        if quoted := self._match(_QUOTED):
            return Words(_unquote(quoted[1]), start)
        function = self._match(_FUNCTION)
        name = function or self._match(_NAME)
        if name is None:
            raise self._error("expected a term")
        self._skip()
        operator = self._match(_OPERATOR)
        if operator is None:
            if function:
                raise self._error(f"expected a comparison after {function[0]}", "for example >0.9")
            return Words(name[0], start)
        self._skip()
        place = self._at
        quoted = self._match(_QUOTED)
        value = quoted or self._match(_VALUE)
        if value is None:
            raise self._error(f"expected a value after {operator[0]!r}")
        text = _unquote(quoted[1]) if quoted else value[0]
        if function:
            return Comparison(function[1], function[2], operator[0], text, start, place)
        return Comparison("", name[0], operator[0], text, start, place)

    def _match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return match

    def _skip(self) -> None:
        self._match(_SPACE)

    def _take(self, letter: str) -> bool:
        if self._text.startswith(letter, self._at):
            self._at += len(letter)
            return True
        return False

    def _word(self, word: str, *, take: bool = True) -> bool:
        match = re.compile(rf"{word}(?=[\s(]|$)", re.IGNORECASE).match(self._text, self._at)
        if match and take:
            self._at = match.end()
            self._skip()
        return match is not None

    def _error(self, message: str, hint: str = "") -> BadFilter:
        return BadFilter(self._text, self._at, message, hint)


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
