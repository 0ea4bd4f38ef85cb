"""Tables fit the terminal: wide columns are shortened, then optional ones are left out."""

from __future__ import annotations

import os
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.cli.table_format import NARROWEST, fit_table
from alchemy.errors import display_width


@pytest.fixture
def terminal(monkeypatch):
    def resize(columns: int) -> None:
        monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))
        monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)

    return resize


ROWS = [["1", "焦点损失" * 20, "x" * 30, "2026"], ["2", "", "", "2027"]]


@pytest.mark.parametrize(
    ("width", "left_out"), [(200, []), (60, []), (33, ["when"]), (26, ["when", "name"]), (10, ["when", "name"])]
)
def test_a_table_fits(terminal, width: int, left_out: list[str]) -> None:
    terminal(width)
    lines, missing = fit_table(["id", "purpose", "name", "when"], ROWS, ["purpose", "name"], ["when", "none", "name"])
    assert missing == left_out
    least = 2 + 2 + NARROWEST
    assert all(display_width(line) <= max(width, least) for line in lines)


def test_a_file_gets_the_whole_text() -> None:
    lines, missing = fit_table(["id", "purpose", "name", "when"], ROWS, ["purpose"], ["when"])
    assert ROWS[0][1] in lines[1]
    assert not missing


@given(st.lists(st.lists(st.text(max_size=30), min_size=3, max_size=3), max_size=4))
def test_any_text_stays_on_one_line(rows: list[list[str]]) -> None:
    lines, _ = fit_table(["a", "b", "c"], rows, ["a", "b", "c"])
    assert len(lines) == len(rows) + 1
    assert all(line.isprintable() or not set(line) & set("\n\r\t\x1b\x00") for line in lines)
