"""`alchemy table`: create, show, edit and save tables of results."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from alchemy.cli import main
from tests.analysis.fake_runs import write_run

TABLE = """\
title = "Scores"
metric = "dev/f1"
[[columns]]
name = "f1"
[[rows]]
name = "ours"  # computed
filter = "tag:demo"
[[rows]]
name = "linked"
"""


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for number in (1, 2):
        write_run(tmp_path / "records", number, {"dev/f1": number / 4}, seed=number)
    Path("tables").mkdir()
    Path("tables/t.toml").write_text(TABLE)
    return tmp_path / "records"


def show(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    capsys.readouterr()
    assert main(["table", "show", "t", *words]) == 0
    return capsys.readouterr().out


def test_typed_linked_and_computed_cells_survive_the_index(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "set", "t", "Kim 2014", "f1", "0.9", "--source", "table 2", "--new-row"]) == 0
    assert main(["table", "link", "t", "linked", "f1", "last"]) == 0
    before = show(capsys, "--json")
    cells = [row["cells"]["f1"] for row in json.loads(before)["rows"]]
    assert [(cell["kind"], cell["text"]) for cell in cells] == [
        ("computed", "0.3750 ± 0.1768 (2)"),
        ("linked", "0.5000"),
        ("typed", "0.9"),
    ]
    shutil.rmtree(".alchemy")
    assert show(capsys, "--json") == before
    assert main(["index", "--rebuild"]) == 0
    assert show(capsys, "--json") == before


def test_text_has_title_sources_and_no_escapes_without_a_terminal(
    records: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["table", "set", "t", "linked", "f1", "0.90", "--source", "Kim 2014"]) == 0
    assert show(capsys).splitlines() == [
        "Scores",
        "",
        "        f1",
        "ours    0.3750 ± 0.1768 (2)",
        "linked  0.90",
        "",
        "Kim 2014: linked / f1",
    ]
    assert 'name = "ours"  # computed' in Path("tables/t.toml").read_text()


def test_a_narrow_terminal_shortens_names_but_no_numbers(
    records: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("tables/t.toml").write_text(TABLE.replace('"ours"', '"ours, with a long name"'))
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 24)))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert "\nours, with …  0.3750 ± 0.1768 (2)\n" in show(capsys)


def test_a_link_to_a_removed_record_is_stale(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "link", "t", "linked", "f1", "last", "last~1"]) == 0
    assert "linked  0.3750 ± 0.1768 (2)" in show(capsys)
    shutil.rmtree(max(records.iterdir()))
    assert main(["table", "show", "t"]) == 0
    printed = capsys.readouterr()
    assert "linked  0.2500 †" in printed.out and "† stale" in printed.out
    assert "warning: linked / f1 is stale: record not found: '2026-03-01_14-00-00.000000'" in printed.err


def test_a_new_table_shows_the_records(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("tables")
    assert main(["table", "new", "main"]) == 0
    assert main(["table", "show", "main"]) == 0
    assert "demo  0.3750 ± 0.1768 (2)" in capsys.readouterr().out
    assert main(["table", "new", "main"]) == 2
    assert "main.toml exists already" in capsys.readouterr().err
    assert main(["table", "new", "../x"]) == 2
    assert "invalid table name '../x'" in capsys.readouterr().err


def test_a_new_table_has_rows_for_a_key_that_most_runs_have(records: Path) -> None:
    for number in range(3, 7):
        write_run(records, number, {"dev/f1": 0.5}, {"optim": {"lr": number}, "log_every": number})
    write_run(records, 7, {}, {"checkpoint": {"every": 5}, "model": {"depth": 1}, "optim": {"lr": 1}})
    write_run(records, 8, {}, {"depth": 2}, status="failed")
    assert main(["table", "new", "main"]) == 0
    assert 'rows_by = "optim.lr"\n' in Path("tables/main.toml").read_text()


def test_ls_lists_damaged_tables_too(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tables/bad.toml").write_text("metrc = 1\n")
    assert main(["table", "ls", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["name"], row["title"]) for row in rows] == [("bad", ""), ("t", "Scores")]
    assert rows[0]["problem"].startswith("tables/bad.toml:1 unknown key 'metrc'; did you mean 'metric'?")


def test_into_replaces_the_table_of_a_page(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("page.md").write_text("a\n<!-- table t -->\nold\n<!-- end of table -->\nb\n")
    assert main(["table", "show", "t", "--into", "page.md"]) == 0
    lines = Path("page.md").read_text().splitlines()
    assert lines[:2] == ["a", "<!-- table t -->"] and lines[-2:] == ["<!-- end of table -->", "b"]
    assert "| ours | 0.3750 ± 0.1768 (2) |" in lines
    assert main(["table", "show", "t", "--into", "tables/t.toml"]) == 2
    assert "has no place for the table; add a line <!-- table t -->" in capsys.readouterr().err


def test_save_keeps_the_results_when_the_records_are_gone(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["table", "save", "t"]) == 0
    assert "updated 1 of 1 cells in tables/t.json" in capsys.readouterr().out
    before = show(capsys)
    shutil.rmtree(records)
    assert show(capsys) == before
    assert main(["table", "save", "t"]) == 0  # nothing is lost
    assert show(capsys) == before


@pytest.mark.parametrize("form", ["latex", "markdown", "csv", "html"])
def test_every_format_shows_the_computed_number(records: Path, capsys: pytest.CaptureFixture[str], form: str) -> None:
    assert "0.375" in show(capsys, "--format", form)


def test_mistakes_on_the_command_line(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, message in [
        (["show", "tt"], "there is no table 'tt'; did you mean 't'?"),
        (["show", "no/such.toml"], "file not found: no/such.toml"),
        (["show", "t", "--format", "pdf"], "'pdf' is not a valid --format"),
        (["show", "t", "--format", "tex"], "'tex' is not a valid --format; did you mean 'latex'?"),
        (["set", "t", "ours", "f2", "1"], "has no column 'f2'; expected f1"),
        (["set", "t", "our", "f1", "1"], "has no row 'our'; did you mean 'ours'?"),
        (["set", "t", "ours", "f1", "1", "--n", "0"], "n must be at least 1"),
        (["link", "t", "ours", "f1", "2020"], "record not found: '2020'"),
    ]:
        assert main(["table", *words]) == 2
        assert message in capsys.readouterr().err


def test_table_names_are_completed(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["__complete", "table", "show", ""]) == 0
    assert capsys.readouterr().out == "t\n"
