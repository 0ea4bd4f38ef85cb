"""Groups of runs, chosen by name or filter."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from alchemy.analysis.groups import build_groups, changed_keys, fold_seeds, select_runs
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordIndex]:
    """Two seeds of two learning rates, and a test."""
    monkeypatch.chdir(tmp_path)
    for number, (lr, seed) in enumerate([(0.1, 1), (0.1, 2), (0.2, 1), (0.2, 2)]):
        write_run(tmp_path, number, {"dev/f1": 0.5 + number / 10}, {"optim": {"lr": lr}}, seed=seed)
    write_run(tmp_path, 9, {"test/f1": 0.3}, kind="test", parent="2026-03-01_12-00-00.000000")
    with RecordIndex.open() as found:
        yield found


def names(rows: list) -> list[str]:
    return [row.name[11:13] for row in rows]


def test_an_argument_is_a_record_or_a_filter(index: RecordIndex) -> None:
    assert names(select_runs(index, "last")) == ["15"]
    assert names(select_runs(index, "2026-03-01_13")) == ["13"]
    assert names(select_runs(index, "best(dev/f1, lr=0.1)")) == ["13"]
    assert names(select_runs(index, "lr=0.1")) == ["12", "13"]
    assert names(select_runs(index, "tag:demo best(dev/f1)>0.65")) == ["14", "15"]
    assert names(select_runs(index, "kind:test")) == ["21"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the record name is empty"),
        ("2026", "'2026' matches 5 records"),
        ("nothing", "record not found: 'nothing'"),
        ("tag:nothing", "no training run matches it as a filter"),
        ("lx=0.1", "no record has a config key or metric 'lx'"),
        ("best(dev/f2)", "no record has a metric 'dev/f2'"),
        ("lr=0.1 (", "expected a term"),
    ],
)
def test_wrong_arguments(index: RecordIndex, text: str, message: str) -> None:
    with pytest.raises(AlchemyError, match=message.replace("(", r"\(").replace(")", r"\)")):
        select_runs(index, text)


def test_seeds_are_added_on_request(index: RecordIndex) -> None:
    one, other = build_groups(index, ["last", "lr=0.1"], seeds=True)
    assert (one.label, other.label) == ("A", "B")
    assert names(one.rows) == ["14", "15"] and one.seeds == ["1", "2"]
    assert names(other.rows) == ["12", "13"]
    with pytest.raises(AlchemyError, match="27 groups of runs are too many"):
        build_groups(index, ["last"] * 27)


def test_runs_fold_by_seed_and_only_other_keys_have_changed(index: RecordIndex) -> None:
    groups = fold_seeds(select_runs(index, "tag:demo") + select_runs(index, "last"))
    assert [names(group) for group in groups] == [["12", "13"], ["14", "15"]]
    assert changed_keys(index, groups) == {"optim.lr": ["0.1", "0.2"]}


def test_keys_that_differ_within_a_group_have_changed(index: RecordIndex) -> None:
    rows = select_runs(index, "tag:demo")
    assert changed_keys(index, [rows, rows[:1]]) == {"optim.lr": ["0.1, 0.2", "0.1"]}


def test_runs_of_different_code_do_not_fold(index: RecordIndex) -> None:
    rows = select_runs(index, "lr=0.1")
    assert len(fold_seeds(rows)) == 1
    change_info(rows[0].folder, code_hash="b")
    with RecordIndex.open() as changed:
        assert len(fold_seeds(select_runs(changed, "lr=0.1"))) == 2
