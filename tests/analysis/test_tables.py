"""Cells of result tables: typed, linked, computed and saved."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alchemy.analysis.table_files import Options, parse_table
from alchemy.analysis.tables import ResultTable, build_table, summarize_runs
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run

LINKED = '[[rows]]\nname = "b"\ncells."dev/f1" = { record = "%s" }\n'
HEAD = 'metric = "dev/f1"\nscale = 100\ndigits = 1\n'


@pytest.fixture
def records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "records"


def build(text: str) -> ResultTable:
    with RecordIndex.open() as index:
        return build_table(parse_table(text, Path("tables/t.toml")), index)


def shown(table: ResultTable) -> dict[tuple[str, str], str]:
    return {(row, column): str(cell) for row, column, cell in table.walk()}


def test_a_computed_cell_is_the_mean_over_seeds_at_the_best_checkpoint(records: Path) -> None:
    for number, (seed, f1) in enumerate([(1, 0.8), (2, 0.9), (3, 1.0)]):
        write_run(records, number, {"dev/f1": f1}, seed=seed, tag="a")
    write_run(records, 5, {"dev/f1": 0.1}, tag="b")
    table = build(HEAD + '[[rows]]\nname = "A"\nfilter = "tag:a"\n[[rows]]\nname = "B"\nfilter = "tag:b"\n')
    assert shown(table) == {("A", "dev/f1"): "90.0 ± 10.0 (3)", ("B", "dev/f1"): "10.0"}
    assert [cell.rank for (cell,) in table.cells] == [1, 2] and not table.warnings


def test_only_finished_training_runs_and_the_latest_run_of_a_seed_count(records: Path) -> None:
    write_run(records, 1, {"dev/f1": 0.1})
    write_run(records, 2, {"dev/f1": 0.7})  # the same config and seed again
    write_run(records, 3, {"dev/f1": 0.2}, seed=2, status="failed")
    write_run(records, 4, {"dev/f1": 0.3}, seed=3, kind="test")
    assert shown(build(HEAD + 'rows_by = "tag"\n')) == {("demo", "dev/f1"): "70.0"}
    failed = build(HEAD + 'filter = "status:failed"\nrows_by = "tag"\n')
    assert shown(failed) == {("demo", "dev/f1"): "20.0"}


def test_metrics_of_the_latest_test_belong_to_the_run(records: Path) -> None:
    run = write_run(records, 1, {"dev/f1": 0.5})
    write_run(records, 3, {"test/f1": 0.8}, kind="test", parent=run)
    write_run(records, 2, {"test/f1": 0.4}, kind="test", parent=run)
    write_run(records, 4, {"dev/f1": 0.5}, seed=2)
    table = build('metric = "test/f1"\nrows_by = "tag"\n')
    assert shown(table) == {("demo", "test/f1"): "0.8000"}
    (warning,) = map(str, table.warnings)
    assert warning.startswith("tables/t.toml:2 demo / test/f1: no finite value of test/f1 in 1 of 2 runs; `alchemy")


def test_rows_and_columns_by_config_keys(records: Path) -> None:
    for number, (kind, size, f1) in enumerate([("m.Cnn", 10, 0.1), ("m.Cnn", 9, 0.2), ("m.Lstm", 10, 0.3)]):
        write_run(records, number, {"dev/f1": f1}, {"model": {"type": kind, "size": size}})
    table = build('metric = "dev/f1"\ndigits = 1\nrows_by = "model.type"\ncolumns_by = "size"\n')
    assert [column.name for column in table.columns] == ["9", "10"]
    assert [row.name for row in table.rows] == ["Cnn", "Lstm"] and table.first_column == "type"
    assert list(shown(table).values()) == ["0.2", "0.1", "", "0.3"]


def test_a_row_in_the_file_is_merged_with_the_generated_row_of_the_same_name(records: Path) -> None:
    write_run(records, 1, {"dev/f1": 0.5}, {"lr": 0.1})
    write_run(records, 2, {"dev/f1": 0.6}, {"lr": 0.2})
    text = HEAD + 'rows_by = "lr"\n[[columns]]\nname = "f1"\n[[columns]]\nname = "note"\nmetric = "lr"\n'
    table = build(text + '[[rows]]\nname = "paper"\ncells.f1 = 77\n[[rows]]\nname = "0.2"\ncells.note = "high"\n')
    assert [(row.name, *map(str, cells)) for row, cells in zip(table.rows, table.cells, strict=True)] == [
        ("paper", "77", ""),
        ("0.2", "60.0", "high"),
        ("0.1", "50.0", "0.1000"),
    ]


def test_a_typed_cell_is_shown_as_written_and_ranked(records: Path) -> None:
    text = 'metric = "dev/f1"\nbetter = "higher"\n'
    for name, cell in [("a", "91.2"), ("b", '{ value = "90.90", std = 0.5, n = 3 }'), ("c", '"n/a"'), ("d", '"91.2"')]:
        text += f'[[rows]]\nname = "{name}"\ncells."dev/f1" = {cell}\n'
    table = build(text)
    assert list(shown(table).values()) == ["91.2", "90.90 ± 0.5 (3)", "n/a", "91.2"]
    assert [cell.rank for (cell,) in table.cells] == [1, 2, 0, 1]


def test_lower_losses_are_better_and_fields_are_not_ranked(records: Path) -> None:
    write_run(records, 1, {"dev/f1": 0.5, "dev/loss": 2.0}, {"lr": 0.1})
    write_run(records, 2, {"dev/f1": 0.6, "dev/loss": 1.0}, {"lr": 0.2}, minutes=9)
    columns = "".join(f'[[columns]]\nname = "{name}"\nmetric = "{name}"\n' for name in ("dev/loss", "minutes"))
    table = build(f'scale = 100\nrows_by = "lr"\n{columns}digits = 0\naverage = "median"\n')
    assert [[cell.rank for cell in cells] for cells in table.cells] == [[2, 0], [1, 0]]
    assert shown(table)["0.2", "minutes"] == "9"  # `scale` is for metrics


LINK = '[[rows]]\nname = "a"\ncells."dev/f1" = {{ record = {} }}\n'


def test_a_link_is_stale_if_a_newer_run_fits_or_the_record_is_gone(records: Path) -> None:
    old = write_run(records, 1, {"dev/f1": 0.5})
    assert shown(build(HEAD + LINK.format(f'"{old}"'))) == {("a", "dev/f1"): "50.0"}
    new = write_run(records, 2, {"dev/f1": 0.6})
    write_run(records, 3, {"dev/f1": 0.6}, {"lr": 3})  # another config
    (cell,) = build(HEAD + LINK.format(f'"{old}"')).cells[0]
    assert (cell.text, cell.stale, cell.kind) == ("50.0", f"a newer run fits: {new}", "linked")
    table = build(HEAD + LINK.format(f'["{old}", "{new}"]'))
    assert shown(table) == {("a", "dev/f1"): "55.0 ± 7.1 (2)"} and not table.stale()
    table = build(HEAD + LINK.format('"2020-01-01"'))
    assert table.stale() == ["a / dev/f1 is stale: record not found: '2020-01-01'"]


def test_the_filter_of_the_row_decides_which_newer_run_fits(records: Path) -> None:
    old = write_run(records, 1, {"dev/f1": 0.5}, {"lr": 1})
    write_run(records, 2, {"dev/f1": 0.6}, {"lr": 2})
    linked = HEAD + LINK.format(f'"{old}"')
    assert not build(linked + 'filter = "lr=1"\n').stale()
    assert build(linked + 'filter = "lr>=1"\n').stale()


def test_a_query_replaces_the_filters_of_row_and_column(records: Path) -> None:
    write_run(records, 1, {"dev/f1": 0.5}, {"lr": 1})
    write_run(records, 2, {"dev/f1": 0.6}, {"lr": 2}, status="failed")
    text = HEAD + '[[rows]]\nname = "a"\nfilter = "lr=2"\ncells."dev/f1" = { query = "lr>0" }\n'
    assert shown(build(text)) == {("a", "dev/f1"): "50.0"}


def test_a_mean_over_different_configs_is_reported(records: Path) -> None:
    write_run(records, 1, {"dev/f1": 0.5}, {"lr": 1})
    write_run(records, 2, {"dev/f1": 0.7}, {"lr": 2}, seed=2)
    table = build(HEAD + 'rows_by = "tag"\n')
    assert shown(table) == {("demo", "dev/f1"): "60.0 ± 14.1 (2)"}
    assert "demo / dev/f1: the mean is over runs that differ in lr; restrict" in str(table.warnings[0])


def test_a_mean_over_different_code_is_reported(records: Path) -> None:
    for number, (f1, code) in enumerate([(0.5, "a"), (0.7, "b")]):  # the same config and seed
        change_info(records / write_run(records, number, {"dev/f1": f1}), code_hash=code)
    table = build(HEAD + 'rows_by = "tag"\n')
    assert shown(table) == {("demo", "dev/f1"): "60.0 ± 14.1 (2)"}
    assert "demo / dev/f1: the mean is over runs that differ in code; restrict" in str(table.warnings[0])


def test_an_exact_rerun_does_not_replace_the_original(records: Path) -> None:
    first = write_run(records, 1, {"dev/f1": 0.5})
    write_run(records, 2, {"dev/f1": 0.4}, parent=first)
    write_run(records, 3, {"dev/f1": 0.3}, status="failed")
    table = build(HEAD + f'filter = "status!=killed"\n[[rows]]\nname = "a"\nfilter = "tag:demo"\n{LINKED % first}')
    assert shown(table) == {("a", "dev/f1"): "50.0", ("b", "dev/f1"): "50.0"}
    assert not table.stale()


def test_names_that_no_record_has_are_warnings_with_a_line(records: Path) -> None:
    write_run(records, 1, {"dev/f1": 0.5})
    table = build(
        'metric = "dev/f2"\n\n[[rows]]\nname = "a"\nfilter = "tag:demo"\n[[rows]]\nname = "b"\nfilter = "xyz=3"\n'
    )
    warnings = [str(warning) for warning in table.warnings]
    assert warnings[0].startswith("tables/t.toml:6 no record has a config key or metric 'xyz'")
    assert "tables/t.toml:3 unknown column 'dev/f2'" in warnings[1] and "did you mean 'dev/f1'?" in warnings[1]


def test_a_run_without_a_finite_value_is_reported(records: Path) -> None:
    write_run(records, 1, {"dev/f1": float("nan")})
    table = build(HEAD + 'rows_by = "tag"\n')
    assert shown(table) == {("demo", "dev/f1"): ""}
    assert "demo / dev/f1: no finite value of dev/f1 in 1 of 1 run" in str(table.warnings[0])


def test_a_filter_that_cannot_be_parsed_is_an_error_with_a_line(records: Path) -> None:
    write_run(records, 1, {"dev/f1": 0.5})
    with pytest.raises(AlchemyError, match=r"^tables/t.toml:4 expected '\)'"):
        build(HEAD + '[[rows]]\nname = "a"\nfilter = "(tag:x"\n')


def test_a_table_without_records_shows_its_typed_cells(records: Path) -> None:
    table = build(HEAD + '[[rows]]\nname = "a"\nfilter = "no_such_key=1"\n[[rows]]\nname = "b"\ncells."dev/f1" = 3\n')
    assert list(shown(table).values()) == ["", "3"]
    assert ["no records below" in str(warning) for warning in table.warnings] == [True]


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5))
def test_any_finite_values_have_a_summary(values: list[float]) -> None:
    cell = summarize_runs(values, Options("m/x", 1.0, 2, "mean"))
    assert cell.text and len(cell.text) < 30 and len(str(cell)) < 60
