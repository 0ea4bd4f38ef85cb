"""Saved results: a table that no longer needs the records."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from alchemy.analysis.table_files import TableFile, read_table_file
from alchemy.analysis.table_results import SavedRun, load_results, merge_results, write_results
from alchemy.analysis.tables import ResultTable, build_table, collect_results
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from tests.analysis.fake_runs import write_run

TEXT = """\
metric = "dev/f1"
results = "t.json"
[[columns]]
name = "f1"
[[columns]]
name = "minutes"
metric = "minutes"
average = "median"
digits = 0
[[rows]]
name = "a"
filter = "tag:demo"
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TableFile:
    monkeypatch.chdir(tmp_path)
    Path("t.toml").write_text(TEXT)
    for number in (1, 2):
        write_run(tmp_path / "records", number, {"dev/f1": number / 4}, seed=number)
    return read_table_file(Path("t.toml"))


def build(file: TableFile) -> ResultTable:
    with RecordIndex.open() as index:
        return build_table(file, index)


def save(file: TableFile) -> None:
    with RecordIndex.open() as index:
        write_results(Path("t.json"), collect_results(file, index))


def test_saved_results_are_shown_without_the_records(file: TableFile) -> None:
    before = [list(map(str, cells)) for cells in build(file).cells]
    save(file)
    shutil.rmtree("records")
    table = build(file)
    assert [list(map(str, cells)) for cells in table.cells] == before == [["0.3750 ± 0.1768 (2)", "5"]]
    assert not table.warnings and not table.stale() and table.cells[0][0].kind == "saved"


def test_a_saved_cell_does_not_change_but_is_stale_if_a_newer_run_fits(file: TableFile, tmp_path: Path) -> None:
    save(file)
    new = write_run(tmp_path / "records", 3, {"dev/f1": 1.0}, seed=3)
    table = build(file)
    assert str(table.cells[0][0]) == "0.3750 ± 0.1768 (2)"
    assert table.stale()[0] == f"a / f1 is stale: a newer run fits: {new}"


def test_a_run_is_saved_with_its_origin(file: TableFile) -> None:
    save(file)
    first, second = load_results(Path("t.json"))["a", "f1"]
    assert first == SavedRun(
        "2026-03-01_13-00-00.000000", "1", "2026-03-01T13:00:00+00:00", {"dev/f1": 0.25, "minutes": 5.0},
        "alchemy run a.toml", {"alchemy": "1.0"}, {"dev/f1": [0.25]},
    )  # fmt: skip
    assert second.seed == "2" and len(Path("t.json").read_text().splitlines()) == 6


def test_cells_that_would_lose_seeds_are_kept() -> None:
    runs = [SavedRun("", str(seed), "", {}) for seed in (1, 2, 3)]
    saved = {("a", "f1"): runs, ("b", "f1"): runs[:1]}
    merged, kept = merge_results(saved, {("a", "f1"): runs[:2], ("c", "f1"): runs[:1]})
    assert merged == saved | {("c", "f1"): runs[:1]} and kept == {("a", "f1"): ["3"]}
    merged, kept = merge_results(saved, {("a", "f1"): runs[:2]}, replace=True)
    assert merged["a", "f1"] == runs[:2] and not kept


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{}",
        '{"format": 2, "cells": []}',
        '{"format": 1, "cells": [1]}',
        '{"format": 1, "cells": [{"row": "a", "columns": ["f1"], "runs": [{"metrics": {"x": "y"}}]}]}',
        '{"format": 1, "cells": [{"row": "a", "columns": ["f1"], "runs": [{"metrics": {"x": NaN}}]}]}',
        '{"format": 1, "cells": [{"row": "a", "columns": ["f1"], "runs": 3}]}',
    ],
)
def test_damaged_results_are_one_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(AlchemyError, match=r"t.json cannot be read as results of a table"):
        load_results(tmp_path / "t.json")


def test_missing_results_are_empty(tmp_path: Path) -> None:
    assert load_results(tmp_path / "t.json") == {}
