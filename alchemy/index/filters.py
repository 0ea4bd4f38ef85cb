"""Translate filters for records, see `filter_parser.py`, to SQL with bound parameters."""

from __future__ import annotations

import datetime
import math
import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from alchemy.errors import AlchemyError, did_you_mean
from alchemy.index.filter_parser import AllOf, AnyOf, BadFilter, Comparison, Not, Term, Words, parse_filter
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
    "sweep": "r.sweep",
    "seed": "r.seed",
    "cmd": "r.cmd",
    "path": "r.path",
}
HASH_FIELDS = {"code": "r.code_hash", "cfg": "r.cfg_hash", "git": "r.git"}  # compared by prefix
NUMBER_FIELDS = {"updates": "r.updates", "duration": "r.seconds", "gen": "r.gen", "point": "r.point"}
TIME_FIELDS = {"created": "r.started", "started": "r.started", "ended": "r.ended"}
FIELDS = (*TEXT_FIELDS, *HASH_FIELDS, *NUMBER_FIELDS, *TIME_FIELDS)
FUNCTIONS = {"best": "at_best", "last": "last", "min": "lowest", "max": "highest"}

_AGE = re.compile(r"-(\d+(?:\.\d+)?)(s|m|h|d|w)")
_DAYS = {"today": 0, "yesterday": 1}  # days before today
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


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
    compiler = _Compiler(text, names)
    return Condition(compiler.translate(parse_filter(text)), compiler.params, frozenset(compiler.used))


class _Compiler:
    """Translates the terms of a filter; collects the parameters and the names of fields, keys and metrics in them."""

    def __init__(self, text: str, names: Names) -> None:
        self._text, self._names = text, names
        self.params: dict[str, Any] = {}
        self.used: set[str] = set()

    def translate(self, term: Term) -> str:
        match term:
            case AllOf(terms):
                return f"({' AND '.join(map(self.translate, terms))})" if terms else "1 = 1"
            case AnyOf(terms):
                return f"({' OR '.join(map(self.translate, terms))})"
            case Not(inner):
                return f"NOT ({self.translate(inner)})"
            case Words(words, start):
                return self._search(words, start)
            case Comparison(function, name, operator, text, start, place):
                self.used.add(name)
                if function:
                    return self._compare_metric(name, function, operator, text, start, place)
                return self._compare(name, operator, text, start, place)

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
        exact = operator == ":" and name in ("status", "kind", "seed", "variant", "sweep")
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
        name = f"p{len(self.params)}"
        self.params[name] = make_storable(value) if isinstance(value, str) else value
        return f":{name}"

    def _error(self, message: str, place: int, hint: str = "") -> BadFilter:
        return BadFilter(self._text, place, message, hint)


def parse_time(text: str) -> float:
    """Parse a date such as `2026-11-01` or `today`, a time, or an age such as `-7d`; return seconds since the epoch."""
    if age := _AGE.fullmatch(text):
        return time.time() - float(age[1]) * _SECONDS[age[2]]
    if text in _DAYS:
        text = (datetime.date.today() - datetime.timedelta(days=_DAYS[text])).isoformat()
    if (seconds := parse_iso(text)) is not None:
        return seconds
    hint = "use a date such as 2026-11-01, yesterday, or an age such as -7d (s, m, h, d, w)"
    raise AlchemyError(f"{text!r} is not a time", hint=hint)


def _next_day(seconds: float) -> float:
    try:
        return (datetime.datetime.fromtimestamp(seconds) + datetime.timedelta(days=1)).timestamp()
    except (ValueError, OverflowError):  # the last day that a date can represent
        return seconds + 86400


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
