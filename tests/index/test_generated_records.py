"""The records that the benchmark generates are like those of real runs."""

from pathlib import Path

import pytest

from alchemy.index.record_index import RecordIndex
from alchemy.records.record_json import FORMAT
from alchemy.records.status import read_info
from bench.record_generator import KEYS, METRICS, ROWS, RecordGenerator


def test_index_reads_generated_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    generator = RecordGenerator(tmp_path / "records")
    names = [generator.write(number) for number in range(4)]
    with RecordIndex.open() as index:
        rows = index.query(sort="created")
        assert [row.name for row in rows] == names
        assert [len(group) for group in index.query_groups(sort="created")] == [3, 1]  # three seeds of a setting
        assert not any(row.problem for row in rows)
        assert {len(config) for config in index.config(rows).values()} == {KEYS}
        for metrics in index.metrics(rows).values():
            assert {name: values["points"] for name, values in metrics.items()} == dict.fromkeys(METRICS, ROWS)
    assert read_info(tmp_path / "records" / names[0])["format"] == FORMAT


@pytest.mark.parametrize(("real", "values"), [(False, 1), (True, 7)])
def test_long_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, real: bool, values: int) -> None:
    monkeypatch.chdir(tmp_path)
    RecordGenerator(tmp_path / "records").write_long(2000, real=real)
    with RecordIndex.open() as index:
        (row,) = index.query()
        counts = [summary["points"] for summary in index.metrics([row])[row.id].values()]
    assert sorted(counts) == [2] * 3 * real + [2000] * values
