"""Filters: any text is either a query with bound parameters, or an error that points into the text."""

from __future__ import annotations

import datetime
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from alchemy.errors import AlchemyError
from alchemy.index.filter_parser import DEEPEST, LONGEST, MAX_TERMS, BadFilter
from alchemy.index.filters import FIELDS, FUNCTIONS, Condition, compile_filter, parse_time
from alchemy.index.record_index import RecordIndex
from alchemy.index.store import URL
from tests.analysis.fake_runs import write_run
from tests.index.five_records import write_five

OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "~", ":")
KEYS = ("lr", "optim.lr", "depth", "name", "dev/f1", "unknown")
VALUES = st.one_of(
    st.sampled_from(["1", "1e-3", "-7d", "2026-03-01", "nan", "inf", "1e999", "true", "finished", "a*", "%", "_", "*"]),
    st.text(max_size=8),
    st.floats().map(str),
)  # fmt: skip
TERMS = st.one_of(
    st.builds("{}{}{}".format, st.sampled_from([*FIELDS, *KEYS]), st.sampled_from(OPERATORS), VALUES),
    st.builds("{}({}){}".format, st.sampled_from([*FUNCTIONS, "sum"]), st.sampled_from(KEYS), st.sampled_from("=<>~:")),
    st.sampled_from(["(", ")", "or", "and", "not", "-", '"', "焦点", "focal"]),
    VALUES,
)  # fmt: skip
TEXTS = st.one_of(
    st.text(max_size=30), st.lists(TERMS, max_size=6).map(" ".join), st.lists(TERMS, max_size=6).map("".join)
)
# all that SQL may consist of: our own columns, functions and keywords, numbers and parameters
SQL = re.compile(r"(?:[\s()=<>,.-]|!=|:p\d+|:root\d|:below\d|'(?:\\|test)?'|\d+|\b[rcmtp]\.[a-z_]+|\b[A-Za-z_]+\b)*")
KEYWORDS = {
    "ABS",
    "AND",
    "OR",
    "NOT",
    "IN",
    "SELECT",
    "FROM",
    "WHERE",
    "JOIN",
    "LEFT",
    "ON",
    "LIKE",
    "ESCAPE",
    "MATCH",
    "COALESCE",
}
TABLES = {"config", "metrics", "records", "search", "rowid", "fold_case", "c", "m", "r", "t", "p"}


class Names:
    """The names of an index, without an index."""

    def find_keys(self, name: str) -> list[int]:
        return {"lr": [1, 2], "optim.lr": [1], "depth": [3], "name": [4]}.get(name, [])

    def find_metrics(self, name: str) -> list[int]:
        return [5] if name == "dev/f1" else []

    def suggest(self, name: str) -> str:
        return ""

    def text_match(self, column: str, param: str) -> str:
        return f"{column} IN (SELECT rowid FROM search WHERE search MATCH :{param})"

    def text_query(self, words: Any) -> str:
        return " ".join(words)


def compile_or_check(text: str) -> Condition | None:
    """Compile a filter; if it is wrong, check that the error points into the text."""
    try:
        return compile_filter(text, Names())
    except BadFilter as error:
        problem = error
    assert 0 <= problem.place <= len(text)
    *_, line, caret = str(problem).split("\n")
    assert caret.strip() == "^" and len(caret) <= 2 * len(line) + 3
    return None


@given(TEXTS)
@example("dev/f1=0")
def test_sql_contains_no_text_of_the_user(text: str) -> None:
    condition = compile_or_check(text)
    if condition is not None:
        assert SQL.fullmatch(condition.sql), condition.sql
        bare = re.sub(r"'\\?'|:p\d+|\b[rcmtp]\.[a-z_]+", " ", condition.sql)
        assert set(re.findall(r"[A-Za-z_]+", bare)) <= KEYWORDS | TABLES
        assert set(re.findall(r":(p\d+)", condition.sql)) == condition.params.keys()


@given(st.text(st.characters(codec="utf-8", exclude_characters="*\0"), max_size=10))
def test_quotes_protect_any_text(text: str) -> None:
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    condition = compile_filter(f'purpose="{quoted}" depth=3', Names())
    assert list(condition.params.values()) == [text, 3.0]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=10)
@given(texts=st.lists(TEXTS, min_size=40, max_size=40))
def test_both_databases_give_the_same_answers(
    shared_project: Path, monkeypatch: pytest.MonkeyPatch, postgres_url: str, texts: list[str]
) -> None:
    if not list(shared_project.glob("2026*")):
        write_five(shared_project)
    monkeypatch.setenv(URL, postgres_url)
    shared = answer(texts)
    monkeypatch.delenv(URL)
    assert answer(texts) == shared


def answer(texts: list[str]) -> list[list[str] | str]:
    """Return the names of the records that match each filter, or the error."""
    found: list[list[str] | str] = []
    with RecordIndex.open() as index:
        for text in texts:
            try:
                found.append([row.name for row in index.query(text)])
            except AlchemyError as error:
                found.append(str(error))
    return found


def test_today_and_yesterday_are_whole_days() -> None:
    today = datetime.date.today().isoformat()
    assert parse_time("yesterday") < parse_time("today") == parse_time(today)
    assert compile_filter("created=today", Names()) == compile_filter(f"created={today}", Names())


@pytest.mark.parametrize(
    ("text", "place", "message"),
    [
        ("lr<", 3, "expected a value after '<'"),
        ("lr<x", 3, "'x' is not a number"),
        ("status:fail", 7, "unknown status 'fail'; did you mean 'failed'?"),
        ("created>x", 8, "'x' is not a time"),
        ("(a", 2, r"expected '\)'"),
        ("a)", 1, r"unexpected '\)'"),
        ("best(dev/f1)", 12, r"expected a comparison after best\(dev/f1\)"),
        ("depth=3 sum(dev/f1)>1", 8, "unknown function 'sum'"),
        ("unknown=1", 0, "no record has a config key or metric 'unknown'"),
        ("a or", 4, "expected a term"),
        ("dev/f1:3", 7, "a metric cannot be compared with ':'"),
        ("purpose<3", 8, "purpose is text and cannot be compared with '<'"),
        ("...", 0, "nothing to search for"),
        ("(" * 60 + "a", DEEPEST + 1, "too many nested parentheses"),
    ],
)
def test_errors_point_at_the_place(text: str, place: int, message: str) -> None:
    with pytest.raises(BadFilter, match=f"^{message}") as caught:
        compile_filter(text, Names())
    assert caught.value.place == place


def test_the_caret_is_below_the_error_behind_chinese_characters() -> None:
    with pytest.raises(BadFilter, match="expected a value") as caught:
        compile_filter("焦点 lr<", Names())
    assert str(caught.value).splitlines()[-2:] == [
        "  焦点 lr<",
        "          ^",
    ]  # a Chinese character is two columns wide


def test_a_filter_has_a_largest_length() -> None:
    with pytest.raises(AlchemyError, match=f"the filter has {LONGEST + 1} characters, at most {LONGEST} are allowed"):
        compile_filter("a" * (LONGEST + 1), Names())
    with pytest.raises(BadFilter, match=f"too many terms, at most {MAX_TERMS} are allowed"):
        compile_filter("a " * (MAX_TERMS + 1), Names())


def test_the_longest_filters_can_be_run(project: Path) -> None:
    write_run(project, 0, {"dev/f1": 0.5})
    with RecordIndex.open() as index:
        assert len(index.query(" or ".join(["demo"] * MAX_TERMS))) == 1
        assert len(index.query("not " * 2000 + "demo")) == 1
        assert len(index.query("(" * DEEPEST + "demo -none" + ")" * DEEPEST)) == 1
        assert len(index.query("-(x " * DEEPEST + "demo" + ")" * DEEPEST)) == 1
