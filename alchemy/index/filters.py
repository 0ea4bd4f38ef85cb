"""The filter language for records: parse a filter and translate it to SQL with bound parameters.

    status:failed tag:baseline lr<1e-3 model.depth=12 best(val/acc)>0.9 created>-7d "focal loss" code:3fa2

Terms are combined with `and` by default; `or`, `not` (or a leading `-`) and parentheses are available. A term is

- `FIELD:TEXT`: the field, or config key, contains the text; `*` matches any characters;
- `NAME OP VALUE`, with `=`, `!=`, `<`, `<=`, `>`, `>=` or `~` (contains): NAME is a field, a metric such as `dev/f1`
  (its value at the best checkpoint), or a config key, which may be shortened: `lr` for `optim.lr`;
- `best(METRIC)`, `last(METRIC)`, `min(METRIC)`, `max(METRIC)` instead of NAME;
- any other word or quoted text: full-text search in purpose, README, notes, tags, config values and tracebacks.
"""

from __future__ import annotations

import datetime
import math
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from alchemy.errors import AlchemyError, did_you_mean, display_width, printable
from alchemy.index.schema import make_storable
from alchemy.index.value_format import parse_iso
from alchemy.index.words import query_terms
from alchemy.records.record_json import STATUSES

# fields that contain text, with their columns
TEXT_FIELDS = {
    "status": "r.status",
    "tag": "r.tag",
    "id": "r.name",
    "purpose": "r.purpose",
    "note": "r.notes",
    "reason": "r.reason",
    "host": "r.host",
    "kind": "r.kind",
    "parent": "r.parent",
    "variant": "r.variant",
    "seed": "r.seed",
    "cmd": "r.cmd",
    "path": "r.path",
}
HASH_FIELDS = {"code": "r.code_hash", "cfg": "r.cfg_hash", "git": "r.git"}  # compared by prefix
NUMBER_FIELDS = {"updates": "r.updates", "duration": "r.seconds", "gen": "r.gen"}
TIME_FIELDS = {"created": "r.started", "started": "r.started", "ended": "r.ended"}
FIELDS = (*TEXT_FIELDS, *HASH_FIELDS, *NUMBER_FIELDS, *TIME_FIELDS)
FUNCTIONS = {"best": "at_best", "last": "last", "min": "lowest", "max": "highest"}
LONGEST, MAX_TERMS, DEEPEST = 10_000, 300, 15  # characters, terms and nested parentheses
SHOWN = 60  # characters on each side of an error

_SPACE = re.compile(r"\s*")
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_FUNCTION = re.compile(r"(\w+)\(\s*([^()\s]+)\s*\)")
_NAME = re.compile(r'[^\s()"<>=!~:]+')
_OPERATOR = re.compile(r"<=|>=|!=|=|<|>|~|:")
_VALUE = re.compile(r'[^\s()"]+')
_AGE = re.compile(r"-(\d+(?:\.\d+)?)(s|m|h|d|w)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


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


class UnknownName(BadFilter):
    """A filter with a config key or metric that no record has."""


class Names(Protocol):
    """The config keys and metrics that the index knows."""

    def find_keys(self, name: str) -> list[int]: ...
    def find_metrics(self, name: str) -> list[int]: ...
    def suggest(self, name: str) -> str: ...
    def text_match(self, column: str, param: str) -> str: ...
    def text_query(self, words: Iterable[str]) -> str: ...


class Condition(NamedTuple):
    """A condition in SQL on the table `records r`, its parameters, and the names of fields, keys and metrics in it."""

    sql: str
    params: dict[str, Any]
    names: frozenset[str] = frozenset()


def compile_filter(text: str, names: Names) -> Condition:
    """Translate a filter to SQL; an empty filter matches every record."""
    if len(text) > LONGEST:
        raise AlchemyError(f"the filter has {len(text)} characters, at most {LONGEST} are allowed")
    return _Parser(text, names).parse()


class _Parser:
    def __init__(self, text: str, names: Names) -> None:
        self._text, self._names, self._at = text, names, 0
        self._params: dict[str, Any] = {}
        self._used: set[str] = set()

    def parse(self) -> Condition:
        self._skip()
        sql = self._any_of(0) if self._at < len(self._text) else "1 = 1"
        if self._at < len(self._text):
            raise self._error("unexpected ')'" if self._text[self._at] == ")" else "cannot parse this")
        return Condition(sql, self._params, frozenset(self._used))

    def _any_of(self, depth: int) -> str:
        if depth > DEEPEST:
            raise self._error("too many nested parentheses")
        parts = [self._all_of(depth)]
        while self._word("or"):
            parts.append(self._all_of(depth))
        return parts[0] if len(parts) == 1 else f"({' OR '.join(parts)})"

    def _all_of(self, depth: int) -> str:
        parts: list[str] = []
        while self._at < len(self._text) and self._text[self._at] != ")" and not self._word("or", take=False):
            if self._word("and") and not parts:
                raise self._error("expected a term before 'and'")
            parts.append(self._single(depth))
        if not parts:
            raise self._error("expected a term")
        return parts[0] if len(parts) == 1 else f"({' AND '.join(parts)})"

    def _single(self, depth: int) -> str:
        negated = False
        while self._word("not") or self._take("-"):
            negated = not negated
            self._skip()
        if self._take("("):
            self._skip()
            sql = self._any_of(depth + 1)
            if not self._take(")"):
                raise self._error("expected ')'")
        else:
            sql = self._term()
        self._skip()
        return f"NOT ({sql})" if negated else sql

    def _term(self) -> str:
        start = self._at
        if len(self._params) >= MAX_TERMS:  # SQLite limits the size of an expression
            raise self._error(f"too many terms, at most {MAX_TERMS} are allowed")
        if quoted := self._match(_QUOTED):
            return self._search(_unquote(quoted[1]), start)
        function = self._match(_FUNCTION)
        name = function or self._match(_NAME)
        if name is None:
            raise self._error("expected a term")
        self._skip()
        operator = self._match(_OPERATOR)
        if operator is None:
            if function:
                raise self._error(f"expected a comparison after {function[0]}", self._at, "for example >0.9")
            return self._search(name[0], start)
        self._skip()
        place = self._at
        quoted = self._match(_QUOTED)
        value = quoted or self._match(_VALUE)
        if value is None:
            raise self._error(f"expected a value after {operator[0]!r}")
        text = _unquote(quoted[1]) if quoted else value[0]
        self._used.add(function[2] if function else name[0])
        if function:
            return self._compare_metric(function[2], function[1], operator[0], text, start, place)
        return self._compare(name[0], operator[0], text, start, place)

    def _compare(self, name: str, operator: str, text: str, start: int, place: int) -> str:
        if name == "status" and operator in (":", "=") and "*" not in text and text not in (*STATUSES, "unknown"):
            raise self._error(f"unknown status {text!r}", place, did_you_mean(text, STATUSES) or ", ".join(STATUSES))
        if name in HASH_FIELDS and operator in (":", "="):
            return self._like(HASH_FIELDS[name], f"{_escape(text)}%")
        if name in TIME_FIELDS and operator not in (":", "~"):
            return self._compare_time(TIME_FIELDS[name], operator, text, place)
        if name in NUMBER_FIELDS and operator not in (":", "~"):
            return f"{NUMBER_FIELDS[name]} {operator} {self._bind(self._number(name, text, place))}"
        if name in TEXT_FIELDS:
            return self._compare_text(name, operator, text, place)
        if name in FIELDS:
            raise self._error(f"{name} cannot be used with {operator!r}", place, "compare it with =, < or >")
        if keys := self._names.find_keys(name):
            return self._compare_key(keys, operator, text, place)
        if self._names.find_metrics(name):
            return self._compare_metric(name, "best", operator, text, start, place)
        if operator == ":":  # not a field of any record
            hint = did_you_mean(name, FIELDS) or self._names.suggest(name)
            raise UnknownName(self._text, start, f"no record has a field or config key {name!r}", hint)
        hint = self._names.suggest(name) or did_you_mean(name, FIELDS)
        raise UnknownName(self._text, start, f"no record has a config key or metric {name!r}", hint)

    def _compare_text(self, name: str, operator: str, text: str, place: int) -> str:
        column = TEXT_FIELDS[name]
        if operator in ("<", "<=", ">", ">="):
            if name != "seed":
                raise self._error(f"{name} is text and cannot be compared with {operator!r}", place, "use = or :")
            number = self._bind(self._number(name, text, place))
            return f"r.seed_number {operator} {number}"
        if name == "tag":  # the tag of the config, or one of the tags of the user
            own = self._matches("r.tag", "~" if operator == "~" else "=", text)
            part = "*" if operator == "~" else ""
            added = self._matches("r.tags", "=", f"*,{part}{text}{part},*")
            return f"NOT ({own} OR {added})" if operator == "!=" else f"({own} OR {added})"
        exact = operator == ":" and name in ("status", "kind", "seed", "variant")
        return self._matches(column, "=" if exact else operator, text)

    def _matches(self, column: str, operator: str, text: str) -> str:
        if operator in ("=", "!="):
            if "*" in text:
                sql = self._like(column, _escape(text))
                return sql if operator == "=" else f"NOT ({sql})"
            return f"{column} {'<>' if operator == '!=' else '='} {self._bind(text)}"
        return self._like(column, f"%{_escape(text)}%")

    def _like(self, column: str, pattern: str) -> str:
        return f"fold_case({column}) LIKE {self._bind(pattern.lower())} ESCAPE '\\'"

    def _compare_key(self, keys: Iterable[int], operator: str, text: str, place: int) -> str:
        if operator == "!=":
            return f"NOT ({self._compare_key(keys, '=', text, place)})"
        number = _parse_number(text)
        if operator in ("<", "<=", ">", ">="):
            if number is None:
                raise self._error(f"{text!r} is not a number", place)
            test = f"c.number {operator} {self._bind(number)}"
        elif operator == "=" and number is not None:
            test = f"c.number = {self._bind(number)}"
        else:
            test = self._matches("c.text", operator if operator != ":" else "~", text)
        chosen = ", ".join(map(str, keys))  # numbers from our own table
        return f"r.id IN (SELECT c.record FROM config c WHERE c.key IN ({chosen}) AND {test})"

    def _compare_metric(self, name: str, kind: str, operator: str, text: str, start: int, place: int) -> str:
        if kind not in FUNCTIONS:
            hint = did_you_mean(kind, FUNCTIONS) or ", ".join(FUNCTIONS)
            raise self._error(f"unknown function {kind!r}", start, hint)
        metrics = self._names.find_metrics(name)
        if not metrics:
            raise UnknownName(self._text, start, f"no record has a metric {name!r}", self._names.suggest(name))
        if operator in (":", "~"):
            raise self._error(f"a metric cannot be compared with {operator!r}", place, "use =, < or >")
        number = self._bind(self._number(name, text, place))
        column, test = f"m.{FUNCTIONS[kind]}", f"m.{FUNCTIONS[kind]} {operator} {number}"
        if operator in ("=", "!="):  # lists show rounded values: 0.9867 matches all values that are rounded to it
            sign = "<=" if operator == "=" else ">"
            test = f"ABS({column} - {number}) {sign} {self._bind(_half_digit(text))}"
        chosen = ", ".join(map(str, metrics))
        # the metrics of tests belong to the training run too
        return (
            f"r.id IN (SELECT COALESCE(p.id, m.record) FROM metrics m JOIN records t ON t.id = m.record "
            f"LEFT JOIN records p ON p.name = t.parent AND p.site = t.site AND t.parent <> '' "
            f"WHERE m.metric IN ({chosen}) AND {test})"
        )

    def _compare_time(self, column: str, operator: str, text: str, place: int) -> str:
        try:
            seconds = parse_time(text)
        except AlchemyError as error:
            raise self._error(error.problem.message, place, error.problem.hint) from None
        sign = "<>" if operator == "!=" else operator
        if sign in ("=", "<>") and not _AGE.fullmatch(text) and len(text) <= len("2026-11-01"):  # the whole day
            inside = f"({column} >= {self._bind(seconds)} AND {column} < {self._bind(_next_day(seconds))})"
            return inside if sign == "=" else f"NOT {inside}"
        return f"{column} {sign} {self._bind(seconds)}"

    def _search(self, text: str, start: int) -> str:
        terms = query_terms(text)
        if not terms:
            raise self._error(f"nothing to search for in {text!r}", start)
        return self._names.text_match("r.id", self._bind(self._names.text_query(terms))[1:])

    def _number(self, name: str, text: str, place: int) -> float:
        number = _parse_number(text)
        if number is None:
            raise self._error(f"{name} is a number, {text!r} is not", place)
        return number

    def _bind(self, value: str | float) -> str:
        name = f"p{len(self._params)}"
        self._params[name] = make_storable(value) if isinstance(value, str) else value
        return f":{name}"

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

    def _error(self, message: str, place: int | None = None, hint: str = "") -> BadFilter:
        return BadFilter(self._text, self._at if place is None else place, message, hint)


def looks_like_filter(text: str) -> bool:
    """Return whether a text that is not the name of a record is probably a filter.

    >>> looks_like_filter("lr=0.1"), looks_like_filter("status:failed"), looks_like_filter("last~2")
    (True, True, False)
    """
    return any(sign in text for sign in "=<>:")


def parse_time(text: str) -> float:
    """Parse a date such as `2026-11-01`, a time, or an age such as `-7d`; return seconds since the epoch."""
    if age := _AGE.fullmatch(text):
        return time.time() - float(age[1]) * _SECONDS[age[2]]
    if (seconds := parse_iso(text)) is not None:
        return seconds
    hint = "use a date such as 2026-11-01, or an age such as -7d (s, m, h, d, w)"
    raise AlchemyError(f"{text!r} is not a time", hint=hint)


def _next_day(seconds: float) -> float:
    try:
        return (datetime.datetime.fromtimestamp(seconds) + datetime.timedelta(days=1)).timestamp()
    except (ValueError, OverflowError):  # the last day that a date can represent
        return seconds + 86400


def _unquote(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)


def _escape(text: str) -> str:
    """Escape a text for LIKE; `*` stays a wildcard.

    >>> _escape("50%*")
    '50\\\\%%'
    """
    return re.sub(r"([\\%_])", r"\\\1", text).replace("*", "%")


def _half_digit(text: str) -> float:
    """Return half a unit of the last decimal place of a number, or 0 if it has no decimal places.

    >>> _half_digit("0.9867") > 0.00005, _half_digit("1"), _half_digit("1e-3")
    (True, 0.0, 0.0)
    """
    decimals = re.fullmatch(r"[+-]?\d*\.(\d+)", text)
    return 0.5000001 * 10 ** -len(decimals[1]) if decimals else 0.0


def _parse_number(text: str) -> float | None:
    """
    >>> _parse_number("1e-3"), _parse_number("true"), _parse_number("x"), _parse_number("nan")
    (0.001, 1.0, None, None)
    """
    lowered: Mapping[str, float] = {"true": 1.0, "false": 0.0}
    try:
        number = lowered[text] if text in lowered else float(text)
    except ValueError:
        return None
    return None if math.isnan(number) else number  # databases disagree on the order of NaN
