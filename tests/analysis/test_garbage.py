"""What `alchemy gc` finds: nothing that is needed, and nothing of a run that is active."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from alchemy.analysis.garbage import find_checkpoints, find_in_bin, find_leftovers
from alchemy.errors import AlchemyError
from alchemy.index.record_index import RecordIndex
from alchemy.index.row import Row
from alchemy.records.bin import delete_forever, list_bin, move_to_bin
from alchemy.records.status import now
from tests.analysis.fake_curves import change_info
from tests.analysis.fake_runs import write_run

SIZE = 1000


def make(root: Path, *, best: int | None = 2, status: str = "finished") -> Row:
    """Write a record with checkpoints after updates 1 to 4; `state/best` and `state/last` are hard links."""
    record = root / write_run(root, 1, {"dev/f1": 0.5}, status=status)
    links = {"last": 4} | ({} if best is None else {"best": best})
    for update in range(1, 5):
        add_checkpoint(record / f"state/u{update}", [name for name, own in links.items() if own == update])
    with RecordIndex.open([root]) as index:
        return index.find(str(record))


def add_checkpoint(folder: Path, links: list[str]) -> None:
    folder.mkdir(parents=True)
    for name in ("manifest.json", "model.safetensors"):
        (folder / name).write_bytes(b"x" * (SIZE // 2))
    for link in links:
        folder.with_name(link).mkdir()
        for name in os.listdir(folder):
            os.link(folder / name, folder.with_name(link) / name)


@pytest.fixture(autouse=True)
def _in_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("keep", "doomed", "size"),
    [
        (("best", "last"), {"u1", "u3"}, 2 * SIZE),
        (("best",), {"u1", "u3", "u4", "last"}, 3 * SIZE),
        (("last",), {"u1", "u2", "u3", "best"}, 3 * SIZE),
    ],
)
def test_superseded_checkpoints(tmp_path: Path, keep: tuple[str, ...], doomed: set[str], size: int) -> None:
    row = make(tmp_path / "records")
    (found,) = find_checkpoints(row, keep)
    assert (set(found.items), found.bytes) == (doomed, size)
    before = set(os.listdir(row.folder / "state"))
    found.delete()
    assert set(os.listdir(row.folder / "state")) == before - doomed
    assert list(find_checkpoints(row, keep)) == []


def test_the_last_checkpoint_stays_if_there_is_no_best_one(tmp_path: Path) -> None:
    row = make(tmp_path / "records", best=None)
    (found,) = find_checkpoints(row, ("best",))
    assert set(found.items) == {"u1", "u2", "u3"}


@pytest.mark.parametrize("status", ["failed", "stopped", "killed", "running"])
def test_only_finished_runs_lose_checkpoints(tmp_path: Path, status: str) -> None:
    row = make(tmp_path / "records", status=status)
    assert list(find_checkpoints(row, ("best",))) == []


def test_a_run_that_was_resumed_in_the_meantime_is_left_alone(tmp_path: Path) -> None:
    row = make(tmp_path / "records")
    (found,) = find_checkpoints(row, ("best",))
    change_info(row.folder, status="running", heartbeat=now())
    with pytest.raises(AlchemyError, match="is running"):
        found.delete()
    assert (row.folder / "state/u1").is_dir()


def test_weights_of_the_project_keep_their_space(tmp_path: Path) -> None:
    row = make(tmp_path / "records")
    (row.folder / "checkpt/best").mkdir(parents=True)
    os.link(row.folder / "state/u1/model.safetensors", row.folder / "checkpt/best/model.safetensors")
    (found,) = find_checkpoints(row, ("best", "last"))
    assert found.bytes == 2 * SIZE - SIZE // 2
    found.delete()
    assert (row.folder / "checkpt/best/model.safetensors").is_file()


def test_links_are_not_followed(tmp_path: Path) -> None:
    row = make(tmp_path / "records")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (row.folder / "state/u9").symlink_to(outside)
    for found in find_checkpoints(row, ("best",)):
        assert "u9" not in found.items
        found.delete()
    assert (outside / "file").exists()


def test_leftovers_of_killed_runs(tmp_path: Path) -> None:
    row = make(tmp_path / "records", status="killed")
    (row.folder / "state/.tmp-12-u5").mkdir()
    (row.folder / "state/.tmp-12-u5/model").write_bytes(b"x" * 10)
    (found,) = find_leftovers(row)
    assert (found.items, found.bytes) == ((".tmp-12-u5",), 10)
    found.delete()
    assert list(find_leftovers(row)) == []


def test_the_bin_is_emptied_by_age(tmp_path: Path) -> None:
    row = make(tmp_path / "records")
    removed = move_to_bin(tmp_path / ".alchemy", row.folder, [tmp_path], "")
    assert list(find_in_bin(tmp_path / ".alchemy", 1)) == []
    (found,) = find_in_bin(tmp_path / ".alchemy", 0)
    found.delete()
    assert not removed.folder.exists()
    assert list(find_in_bin(tmp_path / ".alchemy", 0)) == []


def test_a_killed_deletion_leaves_nothing_to_restore(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row, home = make(tmp_path / "records"), tmp_path / ".alchemy"
    removed = move_to_bin(home, row.folder, [tmp_path], "")
    with monkeypatch.context() as patch:
        patch.setattr("shutil.rmtree", lambda *_, **__: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            delete_forever(removed)
    assert (list_bin(home), list(find_in_bin(home, 0))) == ([], [])
    (left,) = (home / "bin").iterdir()
    os.utime(left, (0, 0))
    (found,) = find_in_bin(home, 30)
    found.delete()
    assert (found.what, os.listdir(home / "bin")) == ("leftovers", [])
