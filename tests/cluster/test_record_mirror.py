"""Records that come home from another machine: never half, and never with metrics behind their checkpoints."""

import os
from pathlib import Path

import pytest

from alchemy.cluster.ray_node import CHUNK, list_record_files
from alchemy.cluster.record_mirror import RecordMirror


class Machine:
    """A folder as another machine; `vanish` is a file that is removed before it is read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.reads: list[str] = []
        self.vanish = ""

    def list_files(self):
        return {"records/a": list_record_files(self.folder / "records/a")}

    def read(self, name, offset):
        self.reads.append(name)
        if name == self.vanish:
            return None
        with open(self.folder / name, "rb") as file:
            file.seek(offset)
            return file.read(CHUNK)


@pytest.fixture
def machine(tmp_path):
    there = Machine(tmp_path / "there")
    put(there, "record.json", "{}")
    put(there, "metrics.jsonl", "1\n")
    return there


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def put(machine: Machine, name: str, text: str) -> None:
    path = machine.folder / "records/a" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_record_appears_when_it_is_complete(machine, home):
    seen: list[list[str]] = []
    read = machine.read

    def watch(name, offset):
        seen.append([path.name for path in home.glob("records/*") if not path.name.startswith(".")])
        return read(name, offset)

    machine.read = watch
    new: list[Path] = []
    RecordMirror(machine, home, new.append).sync()
    assert not any(seen) and new == [home / "records/a"]
    assert (home / "records/a/metrics.jsonl").read_text() == "1\n" and os.listdir(home / "records") == ["a"]


def test_only_changes_are_copied_and_checkpoints_first(machine, home):
    mirror = RecordMirror(machine, home, print)
    mirror.sync()
    machine.reads.clear()
    put(machine, "metrics.jsonl", "1\n2\n")
    put(machine, "state/u2/model", "weights")
    put(machine, "state/u2/manifest.json", "{}")
    mirror.sync()
    names = list(dict.fromkeys(name.removeprefix("records/a/") for name in machine.reads))
    assert sorted(names[:2]) == ["state/u2/manifest.json", "state/u2/model"] and names[2:] == ["metrics.jsonl"]
    assert (home / "records/a/state/u2/model").read_text() == "weights"


def test_hard_links_are_copied_once_and_unfinished_checkpoints_not_at_all(machine, home):
    put(machine, "state/u2/model", "weights")
    put(machine, "state/.tmp-9-u4/model", "half")
    record = machine.folder / "records/a"
    (record / "state/last").mkdir()
    os.link(record / "state/u2/model", record / "state/last/model")
    mirror = RecordMirror(machine, home, print)
    mirror.sync()
    (record / "checkpt/best").mkdir(parents=True)
    os.link(record / "state/u2/model", record / "checkpt/best/model")
    mirror.sync()
    assert len([name for name in machine.reads if name.endswith("/model")]) == 2  # once until its end
    copies = [home / "records/a" / name / "model" for name in ("state/u2", "state/last", "checkpt/best")]
    assert {path.read_text() for path in copies} == {"weights"}
    assert len({path.stat().st_ino for path in copies}) == 1
    assert not (home / "records/a/state/.tmp-9-u4").exists()


def test_a_checkpoint_that_is_removed_while_it_is_copied_does_not_come(machine, home):
    mirror = RecordMirror(machine, home, print)
    mirror.sync()
    put(machine, "state/u2/model", "weights")
    put(machine, "state/u2/manifest.json", "{}")
    machine.vanish = "records/a/state/u2/model"
    mirror.sync()
    assert not list(home.glob("records/a/state/*"))


def test_removed_checkpoints_are_removed_at_home(machine, home):
    put(machine, "state/u2/model", "weights")
    mirror = RecordMirror(machine, home, print)
    mirror.sync()
    (machine.folder / "records/a/state/u2/model").unlink()
    put(machine, "state/u4/model", "more")
    mirror.sync()
    assert [path.name for path in (home / "records/a/state").iterdir()] == ["u4"]


def test_a_machine_that_is_lost_while_it_is_copied_leaves_no_checkpoint_without_its_metrics(machine, home):
    mirror = RecordMirror(machine, home, print)
    mirror.sync()
    put(machine, "state/u2/model", "weights")
    put(machine, "metrics.jsonl", "1\n2\n")
    read = machine.read

    def fail(name, offset):
        if name.endswith("metrics.jsonl"):
            raise ConnectionError("the machine is gone")
        return read(name, offset)

    machine.read = fail
    with pytest.raises(ConnectionError, match="the machine is gone"):
        mirror.sync()
    assert not (home / "records/a/state/u2").exists() and (home / "records/a/metrics.jsonl").read_text() == "1\n"
    machine.read = read
    mirror.sync()
    assert (home / "records/a/state/u2/model").read_text() == "weights"
    assert (home / "records/a/metrics.jsonl").read_text() == "1\n2\n"
