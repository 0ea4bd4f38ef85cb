"""The bin: a removed record can be restored, whatever it contains and wherever it was."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.files import lock_file
from alchemy.records.bin import delete_forever, list_bin, move_to_bin, restore_record
from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run


def make(project: Path) -> Path:
    record = project / "records" / write_run(project / "records", 1, {"dev/f1": 0.5})
    (record / "state/u1").mkdir(parents=True)
    (record / "state/u1/model").write_bytes(b"weights")
    (record / "state/best").mkdir()
    os.link(record / "state/u1/model", record / "state/best/model")
    (record / "inside").symlink_to("cfg.toml")
    return record


def content(folder: Path) -> dict[str, object]:
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.name != ".lock")
    return {
        name: os.readlink(p) if (p := folder / name).is_symlink() else p.is_dir() or p.read_bytes() for name in names
    }


@pytest.mark.parametrize("other_disk", [False, True])
def test_a_record_is_restored_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other_disk: bool) -> None:
    record, home, rename = make(tmp_path), tmp_path / ".alchemy", os.rename
    before = content(record)

    def rename_on_one_disk(old: Path, new: Path) -> None:
        if (home in Path(old).parents) != (home in Path(new).parents):
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        rename(old, new)

    if other_disk:
        monkeypatch.setattr(os, "rename", rename_on_one_disk)
    removed = move_to_bin(home, record, [tmp_path], "now")
    assert not record.exists()
    assert list_bin(home) == [removed]
    assert restore_record(removed, [tmp_path]) == record
    assert content(record) == before
    assert os.path.samefile(record / "state/u1/model", record / "state/best/model")
    assert list_bin(home) == []
    assert os.listdir(tmp_path / ".alchemy/bin") == []


def test_two_records_with_the_same_id_are_kept_apart(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        record = tmp_path / folder / write_run(tmp_path / folder, 1, {})
        move_to_bin(tmp_path / ".alchemy", record, [tmp_path], folder)
    one, two = list_bin(tmp_path / ".alchemy")
    assert {one.path, two.path} == {str(tmp_path / folder / one.id) for folder in ("a", "b")}
    assert two.id == f"{one.id}-1"
    delete_forever(one)
    assert list_bin(tmp_path / ".alchemy") == [two]


def test_a_running_record_stays(tmp_path: Path) -> None:
    from alchemy.records.status import now

    record = make(tmp_path)
    change_info(record, status="running", heartbeat=now(), ended=None)
    with pytest.raises(AlchemyError, match="is still running on elsewhere"):
        move_to_bin(tmp_path / ".alchemy", record, [tmp_path], "")
    assert record.exists()


def test_a_locked_record_stays_even_if_it_is_damaged(tmp_path: Path) -> None:
    import subprocess
    import sys

    record = make(tmp_path)
    (record / "record.json").write_text("{")
    code = f"import time\nfrom alchemy.files import lock_file\nwith lock_file({str(record / '.lock')!r}):\n"
    code += "    print(1, flush=True)\n    time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(AlchemyError, match="another process is writing to"):
            move_to_bin(tmp_path / ".alchemy", record, [tmp_path], "")
        assert os.listdir(tmp_path / ".alchemy/bin") == []
        process.kill()
    assert move_to_bin(tmp_path / ".alchemy", record, [tmp_path], "").folder.is_dir()


def test_only_records_below_the_roots_are_moved(tmp_path: Path) -> None:
    record = make(tmp_path)
    with pytest.raises(AlchemyError, match="is not below"):
        move_to_bin(tmp_path / ".alchemy", record, [tmp_path / "other"], "")
    (tmp_path / "link").symlink_to(record)
    with pytest.raises(AlchemyError, match="is a link"):
        move_to_bin(tmp_path / ".alchemy", tmp_path / "link", [tmp_path], "")
    (tmp_path / "other").symlink_to(tmp_path / "records")
    with pytest.raises(AlchemyError, match="is not below"):
        move_to_bin(tmp_path / ".alchemy", tmp_path / "other" / record.name, [tmp_path / "third"], "")
    assert record.exists()


def test_nothing_is_overwritten_by_restoring(tmp_path: Path) -> None:
    record = make(tmp_path)
    removed = move_to_bin(tmp_path / ".alchemy", record, [tmp_path], "")
    record.mkdir()
    with pytest.raises(AlchemyError, match="exists already"):
        restore_record(removed, [tmp_path])
    record.rmdir()
    with pytest.raises(AlchemyError, match="outside of the project"):
        restore_record(removed, [tmp_path / "records" / "other"])
    assert restore_record(removed, [tmp_path]).is_dir()


@pytest.mark.parametrize("kind", ["folder", "fifo", "link"])
def test_a_strange_lock_is_not_used(tmp_path: Path, kind: str) -> None:
    record = make(tmp_path)
    if kind == "folder":
        (record / ".lock").mkdir()
    elif kind == "fifo":
        os.mkfifo(record / ".lock")
    else:
        (record / ".lock").symlink_to(tmp_path / "victim")
    assert move_to_bin(tmp_path / ".alchemy", record, [tmp_path], "").folder.is_dir()
    assert not (tmp_path / "victim").exists()


def test_foreign_files_in_the_bin_are_ignored(tmp_path: Path) -> None:
    folder = tmp_path / ".alchemy/bin"
    folder.mkdir(parents=True)
    (folder / "a.json").write_text("[")
    (folder / "b.json").write_text('{"path": 3}')
    (folder / "c.json").write_text('{"path": "/x", "when": "", "batch": ""}')
    assert list_bin(tmp_path / ".alchemy") == []
    with lock_file(folder / "lock"):
        assert list_bin(tmp_path / "none") == []
