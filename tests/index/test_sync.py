"""Every command notices records that appear, change or vanish, and the index can be deleted at any time."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from alchemy.index.record_index import RecordIndex
from alchemy.index.store import DATABASE
from alchemy.index.sync import Changes
from alchemy.records.readme import set_purpose
from alchemy.records.status import process_start
from tests.analysis.fake_curves import change_info, write_curves
from tests.analysis.fake_runs import write_run
from tests.index.contents import read_contents
from tests.index.postgres_server import drop_tables


def changes(*roots: Path) -> Changes:
    with RecordIndex.open(roots) as index:
        return index.changes


def test_records_appear_change_and_vanish(project: Path) -> None:
    first = project / "records" / write_run(project / "records", 0, {"dev/f1": 0.5})
    second = project / "elsewhere" / "deep" / write_run(project / "elsewhere" / "deep", 1, {"dev/f1": 0.6})
    assert changes() == Changes(added=2)
    assert changes() == Changes()
    set_purpose(first, "why not")
    second.rename(project / "moved")
    assert changes() == Changes(added=1, updated=1, removed=1)
    shutil.rmtree(first)
    with RecordIndex.open() as index:
        assert [row.path for row in index.query()] == [str(project / "moved")]
        assert index.query('"why not"') == []  # nor in the full text
    shutil.rmtree(project / "moved")
    (project / "moved").mkdir()  # an empty folder is no record
    assert changes() == Changes(removed=1)


def test_named_records(project: Path) -> None:
    """If only some records are needed, changes to others may wait, but not new, deleted or running ones."""
    first, second, third, running = (project / write_run(project, number, {"dev/f1": 0.5}) for number in range(4))
    pid = os.getpid()
    change_info(running, status="running", pid=pid, pid_started=process_start(pid), host=os.uname().nodename)
    changes()
    for folder in (first, second, running):
        set_purpose(folder, "why not")
    shutil.rmtree(third)
    fourth = write_run(project, 4, {})
    with RecordIndex.open(names=[second.name[:16]]) as index:
        assert index.changes.added == index.changes.removed == 1
        assert {row.name: row.purpose for row in index.query()}.items() >= {
            second.name: "why not",
            running.name: "why not",
        }.items()
        assert index.find(fourth).name == fourth
    for name in ("last", "best(dev/f1)", str(first)):
        with RecordIndex.open(names=[name]) as index:
            assert index.find(str(first)).purpose == "why not"


def test_a_copy_that_keeps_its_times_is_noticed(project: Path) -> None:
    """As with `rsync -a`: the folder and all files have the times of the original."""
    here = project / write_run(project, 0, {"dev/f1": 0.5})
    changes()
    there = project / ".other" / here.name
    shutil.copytree(here, there)
    change_info(there, reason="a longer file")
    shutil.copystat(here / "record.json", there / "record.json")
    shutil.copystat(here, there)
    shutil.rmtree(here)
    shutil.copytree(there, here)
    with RecordIndex.open() as index:
        assert index.changes == Changes(updated=1)
        assert index.query()[0].reason == "a longer file"


def test_roots(project: Path) -> None:
    """Records outside the roots stay in the index, and are not listed."""
    for name in ("one", "One", "one_more", "two"):
        write_run(project / name, 0, {"dev/f1": 0.5})
    assert changes() == Changes(added=4)
    with RecordIndex.open([project / "one", project / "two"]) as index:
        assert sorted(Path(row.path).parent.name for row in index.query()) == ["one", "two"]
    shutil.rmtree(project / "One")
    assert changes(project / "two") == Changes(removed=1)
    (project / ".alchemy" / "config.toml").write_text('roots = ["one_more"]\n')
    with RecordIndex.open() as index:
        assert [Path(row.path).parent.name for row in index.query()] == ["one_more"]


def test_what_is_not_looked_at(project: Path) -> None:
    """Hidden folders, links, folders inside records, and names that no database can store."""
    inside = project / write_run(project, 0, {}) / "backup"
    for folder in (inside, project / ".hidden", project / "node_modules", project / ".alchemy" / "bin"):
        write_run(folder, 1, {})
    (project / "link").symlink_to(inside, target_is_directory=True)
    (project / "round").symlink_to(project, target_is_directory=True)
    strange = os.fsencode(project) + b"/\xff"
    shutil.copytree(project / ".hidden", os.fsdecode(strange))
    write_run(project.joinpath(*["x" * 250] * 12), 1, {})
    assert changes() == Changes(added=1)


def test_a_record_of_alchemy_0x(project: Path) -> None:
    folder = project / "2024-05-06_07-08-09"
    folder.mkdir()
    (folder / "cfg.toml").write_text('tag = "old"\nseed = 3\n')
    (folder / "run.log").touch()
    with RecordIndex.open() as index:
        (row,) = index.query("seed=3")
        assert (row.status, row.problem) == ("unknown", "")
    assert changes() == Changes()


def test_a_run_that_dies_without_a_word(project: Path) -> None:
    folder = project / write_run(project, 0, {}, status="running")
    pid = os.getpid()
    life = {"pid": pid, "pid_started": process_start(pid), "host": os.uname().nodename, "ended": None}
    change_info(folder, **life)
    with RecordIndex.open() as index:
        assert [row.status for row in index.query()] == ["running"]
    change_info(folder, pid_started=1)  # as if another process had taken its pid
    with RecordIndex.open() as index:
        assert [row.status for row in index.query()] == ["killed"]


def test_a_folder_removed_while_it_is_indexed(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.index import sync

    folders = [project / write_run(project, number, {"dev/f1": 0.5}) for number in range(3)]
    read = sync.read_record

    def remove_first(folder: Path, *more: object) -> object:
        if folder == folders[1]:
            shutil.rmtree(folder)
        return read(folder, *more)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(sync, "read_record", remove_first)
        changes()
    with RecordIndex.open() as index:
        assert {row.path for row in index.query()} == {str(folders[0]), str(folders[2])}


def test_an_unexpected_error_in_one_record_hides_no_other(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.index import sync

    names = [write_run(project, number, {"dev/f1": 0.5}) for number in range(2)]
    read = sync.read_record

    def fail(folder: Path, *more: object) -> object:
        if folder.name == names[0]:
            raise OverflowError("the number \ud800\0 is too large")
        return read(folder, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(sync, "read_record", fail)
    with RecordIndex.open() as index:
        rows = {row.name: row for row in index.query(sort="id")}
    assert rows[names[0]].problem.endswith("cannot be read: OverflowError: the number ? is too large")
    assert rows[names[1]].problem == ""


def test_deleting_the_index_brings_everything_back(project: Path, request: pytest.FixtureRequest) -> None:
    for number in range(6):
        folder = project / write_run(project, number, {"dev/f1": number / 7}, {"lr": 10.0**-number}, seed=number % 3)
        set_purpose(folder, ("focal loss", "焦点损失")[number % 2])
    write_curves(project, 7, {"loss": [number % 11 / 3 for number in range(20_000)]})
    before = read_contents()
    assert len(before["records"]) == 7
    (project / ".alchemy" / DATABASE).unlink(missing_ok=True)
    if "postgres" in request.node.callspec.id:
        drop_tables(request.getfixturevalue("postgres_url"))
    assert read_contents() == before
    assert read_contents(rebuild=True) == before


def test_many_records_are_read_in_several_processes(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.index import sync

    for number in range(30):
        write_run(project, number, {"dev/f1": number / 30})
    alone = read_contents()
    monkeypatch.setattr(sync, "PARALLEL", 10)
    monkeypatch.setattr(sync, "_may_fork", lambda: True)  # tests import torch, but do not use its threads
    assert read_contents(rebuild=True) == alone


def test_a_reading_process_that_is_killed_loses_nothing(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.index import sync

    for number in range(30):
        write_run(project, number, {"dev/f1": number / 30})
    alone, read, main = read_contents(), sync.read_record, os.getpid()

    def die(folder: Path, *more: object) -> object:
        if os.getpid() != main and folder.name.endswith("3-00-00.000000"):
            os.kill(os.getpid(), 9)
        return read(folder, *more)  # type: ignore[arg-type]

    monkeypatch.setattr(sync, "PARALLEL", 10)
    monkeypatch.setattr(sync, "_may_fork", lambda: True)
    monkeypatch.setattr(sync, "read_record", die)
    assert read_contents(rebuild=True) == alone


def test_machines_that_share_a_database_see_their_own_records(
    shared_project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(shared_project, 0, {"dev/f1": 0.5}, {"lr": 0.1})
    before = read_contents()
    with monkeypatch.context() as other:
        other.setattr("socket.gethostname", lambda: "other")
        other.chdir(shared_project / ".alchemy")
        write_run(shared_project / ".alchemy" / "theirs", 3, {"dev/f2": 0.6})
        with RecordIndex.open([shared_project / ".alchemy" / "theirs"]) as index:
            assert len(index.query()) == 1
            assert [row.name for row in index.query("dev/f1>0")] == []
    assert read_contents()["records"] == before["records"]
    assert read_contents(rebuild=True)["records"] == before["records"]
    with monkeypatch.context() as other:
        other.setattr("socket.gethostname", lambda: "other")
        with RecordIndex.open([shared_project / ".alchemy" / "theirs"]) as index:
            assert index.changes == Changes()  # the rebuild of one machine leaves the others alone


def test_a_growing_file_is_read_from_its_new_lines_on(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from alchemy.index import metric_entries

    folder = write_curves(project, 0, {"loss": [number % 11 / 3 for number in range(25_000)]}, status="running")
    change_info(folder, heartbeat="2999-01-01T00:00:00+00:00")  # it runs on another machine
    read_contents()
    with open(folder / "metrics.jsonl", "a") as file:
        for update in range(25_001, 25_101):
            row = {"update": update, "step": 1, "epoch": 9999, "t": 1.0, "gen": 0, "values": {"loss": -1.0}}
            file.write(json.dumps(row) + "\n")
    starts = []
    read = metric_entries.read_curves
    with monkeypatch.context() as patch:
        patch.setattr(metric_entries, "read_curves", lambda path, start: starts.append(start) or read(path, start))
        grown = read_contents()
    assert len(starts) == 1 and starts[0].lines > 20_000
    assert read_contents(rebuild=True) == grown
