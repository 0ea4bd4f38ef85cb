"""`alchemy rm`, `gc` and `du`."""

from __future__ import annotations

import io
import json
import os
from pathlib import Path

import pytest

from tests.analysis.fake_runs import write_run
from tests.cli.run_command import run


def test_what_one_command_removed_is_restored_together(records: Path, capsys) -> None:
    names = [
        write_run(records, number, {}, status=status) for number, status in enumerate(["failed", "failed", "finished"])
    ]
    run(capsys, "rm", names[2], "--yes")
    run(capsys, "rm", "--filter", "status:failed", "--yes")
    assert os.listdir(records) == []
    listed = json.loads(run(capsys, "rm", "--list", "--json"))
    assert [row["id"] for row in listed] == [names[2], *names[:2]]
    run(capsys, "rm", "--undo")
    assert sorted(os.listdir(records)) == names[:2]
    run(capsys, "rm", "--undo", names[2][:16])
    assert sorted(os.listdir(records)) == names
    assert "the bin is empty" in run(capsys, "rm", "--undo", code=2)
    assert run(capsys, "rm", "--list") == "the bin is empty\n"


def test_children_stay_unless_asked_for(records: Path, capsys) -> None:
    name = write_run(records, 1, {})
    test = write_run(records, 2, {}, kind="test", parent=name)
    assert "tests and predictions that stay: 1" in run(capsys, "rm", name, "--yes")
    assert os.listdir(records) == [test]
    run(capsys, "rm", "--undo")
    rerun = write_run(records, 3, {}, parent=name)
    assert run(capsys, "archive", name, "--children", "-o", "a.tar").startswith("a.tar: 2 records, ")
    run(capsys, "rm", name, "--yes", "--children")
    assert os.listdir(records) == [rerun]


@pytest.mark.parametrize(("answer", "left"), [("y\n", 0), ("YES\n", 0), ("n\n", 1), ("", 1), ("\n", 1)])
def test_it_asks_on_a_terminal(records: Path, capsys, monkeypatch, answer: str, left: int) -> None:
    write_run(records, 1, {})
    terminal = io.StringIO(answer)
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", terminal)
    assert "move this record" in run(capsys, "rm", "last")
    assert len(os.listdir(records)) == left


@pytest.mark.parametrize("words", [["rm", "--yes"], ["tag", "+x"], ["archive", "-o", "a.tar"]])
def test_an_empty_filter_does_not_mean_all_records(records: Path, capsys, words: list[str]) -> None:
    write_run(records, 1, {})
    assert "--filter is empty; for all training runs" in run(capsys, *words, "--filter", " ", code=2)
    assert len(os.listdir(records)) == 1


def test_without_a_terminal_nothing_is_removed(records: Path, capsys, monkeypatch) -> None:
    write_run(records, 1, {})
    monkeypatch.setattr("sys.stdin", io.StringIO("y\n"))
    assert "pass --yes to agree" in run(capsys, "rm", "last", code=2)
    assert len(os.listdir(records)) == 1


def test_if_one_cannot_be_removed_none_is(records: Path, capsys, tmp_path_factory) -> None:
    write_run(records, 1, {})
    outside = tmp_path_factory.mktemp("outside")
    other = outside / write_run(outside, 2, {})
    assert "is not below" in run(capsys, "rm", "last", str(other), "--yes", code=2)
    assert len(os.listdir(records)) == 1
    assert other.exists()


def test_gc_deletes_only_with_yes(records: Path, capsys) -> None:
    record = records / write_run(records, 1, {})
    for update in (1, 2):
        (record / f"state/u{update}").mkdir(parents=True)
        (record / f"state/u{update}/model").write_bytes(b"x" * 1000)
    assert "1000 B could be deleted: add --yes" in run(capsys, "gc")
    assert run(capsys, "gc", "--keep", "all") == "nothing to delete\n"
    assert run(capsys, "gc", "--filter", "status:failed") == "nothing to delete\n"
    assert json.loads(run(capsys, "gc", "--json"))["found"][0]["items"] == ["u1"]
    assert os.listdir(record / "state") != ["u2"]
    assert "1000 B deleted" in run(capsys, "gc", "--yes")
    assert os.listdir(record / "state") == ["u2"]
    run(capsys, "rm", "last", "--yes")
    told = run(capsys, "gc")
    assert told.startswith("nothing to delete\nthe bin has 1 record (") and "`alchemy gc --bin-days 0`" in told
    assert "the bin has" not in run(capsys, "gc", "--bin-days", "0", "--yes")
    assert run(capsys, "rm", "--list") == "the bin is empty\n"


@pytest.mark.parametrize(
    "words", [["--keep", "first"], ["--keep", "all,best"], ["--bin-days=-1"], ["--cache-days", "nan"]]
)
def test_wrong_policies(records: Path, capsys, words: list[str]) -> None:
    assert "error: " in run(capsys, "gc", *words, code=2)


def test_du_sorts_by_size_and_counts_links_once(records: Path, capsys) -> None:
    small, large = (records / write_run(records, number, {}) for number in (1, 2))
    (large / "state/u1").mkdir(parents=True)
    (large / "state/u1/model").write_bytes(b"x" * 2**20)
    (large / "state/best").mkdir()
    os.link(large / "state/u1/model", large / "state/best/model")
    lines = run(capsys, "du").splitlines()
    assert lines[1].startswith("2026-03-01_14-00-00")
    assert "1.0 MiB" in lines[1]
    assert lines[3].startswith("2 records")
    data = json.loads(run(capsys, "du", "--json"))
    assert [row["id"] for row in data] == [large.name, small.name]
    assert data[0]["bytes"]["checkpoints"] == 2**20
    assert len(run(capsys, "du", "last~1").splitlines()) == 3
