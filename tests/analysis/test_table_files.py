"""Table files: all mistakes are found at once, with file and line; edits keep everything else."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.analysis.table_edit import set_cell, set_results
from alchemy.analysis.table_files import find_table, list_tables, parse_table, read_table_file
from alchemy.errors import AlchemyError, ConfigError

WRONG = """\
titel = "x"
metric = 3
better = "more"

[[rows]]
name = "a"
fliter = "tag:x"
cells.TREC = { value = 3, record = "x" }
cells.foo = 1
cells.dev = { record = "x", n = 3 }

[[rows]]
name = "a"

[[columns]]
name = "TREC"
scale = nan

[[columns]]
name = "dev"
"""


def test_all_mistakes_are_reported_with_their_lines() -> None:
    with pytest.raises(ConfigError, match="titel") as caught:
        parse_table(WRONG, Path("t.toml"))
    assert str(caught.value).splitlines() == [
        "t.toml:1 unknown key 'titel'; did you mean 'title'?",
        "t.toml:2 metric must be a string, not 3",
        "t.toml:3 better must be one of 'higher', 'lower', 'none', not the string 'more'",
        "t.toml:7 [rows] unknown key 'fliter'; did you mean 'filter'?",
        "t.toml:8 [rows] a cell needs a value, a record or a query, got value and record",
        "t.toml:9 [rows] there is no column 'foo'; expected TREC, dev",
        "t.toml:10 [rows] std and n belong to a value that is typed in; they are computed from records",
        "t.toml:13 [rows] the name 'a' is used twice; first in t.toml:5",
        "t.toml:17 [columns] scale must be a finite number, not nan",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the table has no columns"),
        ('metric = "m"', "the table has no rows"),
        ('[[columns]]\nname = "a"\n[[rows]]\nname = "b"\nfilter = ""', "the table has no metric"),
        ('[[columns]]\nname = "a"\n[[rows]]\nname = "b"\ncells.a = { query = "" }', "the cell has no metric"),
        ('metric = "m"\n[[rows]]\nname = " "', "name is missing"),
        ('metric = "m"\n[[rows]]\nname = "a"\ncells.m = { record = [] }', "record is empty"),
        ('metric = "m"\n[[rows]]\nname = "a"\ncells.m = {}', "got none of them"),
        ("metric = ", "a value is missing"),
        ('metric = "m"\nrows_by = "tag"\nresults = "../x.json"', "results must be the name of a .json file"),
    ],
)
def test_incomplete_tables_are_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_table(text, Path("t.toml"))


@pytest.mark.parametrize(("text", "got"), [('[rows]\nname = "a"', "a table"), ("rows = [1]", r"the list \[1\]")])
def test_rows_that_are_not_a_list_of_tables(text: str, got: str) -> None:
    message = rf"^t.toml:2 rows must be a list of tables, not {got}; begin each of them with a line \[\[rows\]\]"
    with pytest.raises(ConfigError, match=message):
        parse_table(f'metric = "m"\n{text}', Path("t.toml"))


def test_tables_are_found_by_name_up_to_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = 'metric = "m"\nrows_by = "tag"\n'
    for name in ("tables/main.toml", "sub/tables/main.toml", "sub/tables/.hidden.toml", "tables/other.toml"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / ".alchemy").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert list_tables() == [tmp_path / "sub/tables/main.toml", tmp_path / "tables/other.toml"]
    assert find_table("other") == tmp_path / "tables/other.toml"
    with pytest.raises(AlchemyError, match="no table 'mian'; did you mean 'main'"):
        find_table("mian")


STYLES = {
    "none": "",
    "dotted": "cells.T = 3 # typed\n",
    "two": 'cells.T = 3\ncells."S 2" = { value = 3 }\nfilter = "x"\n',
    "header": "[rows.cells]\nT = 3 # three\n",
    "inline": "cells = { T = 3 }\n",
}
BODY = """\
# top
metric = "m"  # the metric

[[columns]]
name = "T"
[[columns]]
name = "S 2"

# first row
[[rows]]
name = "a" # first
{}
# second row
[[rows]]
name = "b"
# end
"""


@pytest.mark.parametrize("column", ["T", "S 2"])
@pytest.mark.parametrize("style", STYLES)
def test_setting_a_cell_changes_nothing_else(tmp_path: Path, style: str, column: str) -> None:
    path = tmp_path / "t.toml"
    path.write_text(text := BODY.format(STYLES[style]))
    wanted: dict[str, Any] = copy.deepcopy(read_table_file(path).data)
    set_cell(path, "a", column, {"value": 1.5, "source": "x"})
    wanted["rows"][0].setdefault("cells", {})[column] = {"value": 1.5, "source": "x"}
    assert read_table_file(path).data == wanted
    changed = set(path.read_text().splitlines()) ^ set(text.splitlines())
    assert len(changed) <= 2 and all("1.5" in line or "= 3" in line for line in changed)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_can_be_typed_into_any_row(tmp_path_factory: pytest.TempPathFactory, row: str, value: str) -> None:
    path = tmp_path_factory.mktemp("table") / "t.toml"
    path.write_text(BODY.format(""))
    name = f"x{row}"
    set_cell(path, name, "T", {"value": value}, new_row=True)
    set_cell(path, name, "T", {"value": value + "!"})
    last = read_table_file(path).rows[-1]
    assert last.name == name and last.cells["T"].value == value + "!"


def test_results_are_set_above_the_rows(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_bytes(BODY.format("").replace("\n", "\r\n").encode())
    set_results(path, "t.json")
    assert read_table_file(path).results_path == tmp_path / "t.json"
    assert b'# the metric\r\nresults = "t.json"\r\n' in path.read_bytes()


def test_misspelled_rows_and_columns_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.toml"
    path.write_text(BODY.format(""))
    with pytest.raises(AlchemyError, match="no column 'S'; expected T, S 2"):
        set_cell(path, "a", "S", {"value": 1})
    with pytest.raises(AlchemyError, match="no row 'c'; --new-row adds it"):
        set_cell(path, "c", "T", {"value": 1})
    path.write_text('metric = "m"\nrows = [{ name = "a" }]\n')
    with pytest.raises(AlchemyError, match="cannot be edited automatically; write the rows as"):
        set_cell(path, "c", "m", {"value": 1}, new_row=True)
