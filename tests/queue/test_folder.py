"""The files of a queue: atomic, complete, and readable whatever happens to them."""

import errno
import json
import os
import shutil
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.queue import Needs, NewEntry, Queue, folder
from tests.queue.commands import add

ROOT = Path(__file__).parents[2]


def test_an_entry_is_read_as_it_was_added(queue):
    spec = NewEntry(argv=("a b", "中"), cwd="/x", env={"A": "1"}, group="g", needs=Needs(devices=2), retries=1)
    (entry,) = queue.add([replace(spec, note={"point": {"lr": 0.1}})])
    assert Queue().get(entry.id) == entry
    assert (entry.id, entry.state, entry.note) == (1, "waiting", {"point": {"lr": 0.1}})


def test_numbers_are_never_used_again(queue):
    add(queue, "pass", "pass")
    queue.update(2, lambda entry: replace(entry, state="removed"))
    assert [entry.id for entry in add(queue, "pass")] == [3]
    (queue.folder / "last_id").unlink()
    assert [entry.id for entry in add(queue, "pass")] == [4]
    assert sorted(path.name for path in queue.folder.glob("*.json")) == ["000001.json", "000003.json", "000004.json"]


def test_entries_are_added_together_or_not_at_all(queue, monkeypatch):
    write = folder.write_json
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def write_first(path, value):
        if path.name != "000001.json":
            raise full
        write(path, value)

    monkeypatch.setattr(folder, "write_json", write_first)
    with pytest.raises(AlchemyError, match=r"cannot write to the queue .*: No space left on device; free some space"):
        add(queue, "pass", "pass")
    assert queue.list() == []


def test_concurrent_changes_are_not_lost(queue):
    add(queue, "pass")

    def count():
        for _ in range(20):
            Queue().update(1, lambda entry: replace(entry, priority=entry.priority + 1))

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert queue.get(1).priority == 80


DAMAGES = {
    "empty": lambda table: "",
    "not json": lambda table: "{",
    "a list": lambda table: "[]",
    "another format": lambda table: json.dumps(table | {"format": 2}),
    "a missing key": lambda table: json.dumps({key: table[key] for key in table if key != "needs"}),
    "another type": lambda table: json.dumps(table | {"argv": "ls -l"}),
    "an unknown state": lambda table: json.dumps(table | {"state": "asleep"}),
    "another id": lambda table: json.dumps(table | {"id": 7}),
    "needs of another type": lambda table: json.dumps(table | {"needs": {"devices": "two"}}),
    "attempts of another type": lambda table: json.dumps(table | {"attempts": [1]}),
    "no command": lambda table: json.dumps(table | {"argv": []}),
    "running without an attempt": lambda table: json.dumps(table | {"state": "running"}),
    "an infinite pause": lambda table: json.dumps(table | {"not_before": float("inf")}),
    "a position that is not a number": lambda table: json.dumps(table | {"position": float("nan")}),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_does_not_hide_the_others(queue, damage):
    add(queue, "pass", "pass")
    queue.path(1).write_text(DAMAGES[damage](json.loads(queue.path(1).read_text())))
    assert [entry.id for entry in queue.list()] == [2]
    assert list(queue.damaged) == ["000001.json"]
    with pytest.raises(AlchemyError, match=r"cannot read .*000001.json: .*; repair or remove the file"):
        queue.get(1)
    assert [entry.id for entry in add(queue, "pass")] == [3]


@pytest.mark.parametrize("target", ["000001.json", "gone"])
def test_a_link_to_nowhere_is_a_damaged_entry(queue, target):
    add(queue, "pass", "pass")
    queue.path(1).unlink()
    queue.path(1).symlink_to(target)
    assert [entry.id for entry in queue.list()] == [2]
    assert list(queue.damaged) == ["000001.json"]
    with pytest.raises(AlchemyError, match=r"cannot read .*000001.json: .*; repair or remove the file"):
        queue.get(1)


def test_an_entry_needs_a_command(queue):
    with pytest.raises(AlchemyError, match="an entry needs a command; pass at least one word as argv"):
        queue.add([NewEntry(argv=("true",)), NewEntry(argv=())])
    assert queue.list() == []


def test_other_people_cannot_read_commands_and_variables(queue):
    add(queue, "pass")
    assert queue.folder.stat().st_mode & 0o777 == 0o700


def test_a_thousand_entries(queue, monkeypatch):
    monkeypatch.setattr(folder, "write_json", lambda path, value: path.write_text(json.dumps(value)))
    add(queue, *["pass"] * 1000)
    assert len(queue.list()) == 1000
    queue.update(500, lambda entry: replace(entry, priority=1))
    assert queue.list()[0].id == 500


MOUNTS = {
    "read-only": "mount --bind . . && mount -o remount,ro,bind . && cd .",
    "full": "mount -t tmpfs -o size=16k none new && cp -r .alchemy new && cd new && ! cat /dev/zero > filler",
    "small": "mount -t tmpfs -o size=64k none new && cp -r .alchemy new && cd new",
}


def run_on_disk(mount, script):
    """Run a shell script in a folder on another disk; `$queue` is `alchemy queue`."""
    prefix = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*prefix, f'cd "$PWD" && {MOUNTS[mount]}'], capture_output=True, check=False).returncode:
        pytest.skip("no disk can be mounted here")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "queue": f"{sys.executable} -m alchemy queue"}
    command = [*prefix, f'cd "$PWD" && {MOUNTS[mount]} 2>/dev/null\n{script}']
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)


@pytest.fixture
def small_queue(queue):
    if shutil.which("unshare") is None:
        pytest.skip("needs unshare, to mount a disk without root")
    Path("new").mkdir()
    return queue


@pytest.mark.parametrize("mount", ["read-only", "full"])
def test_a_disk_that_cannot_be_written_to(small_queue, mount):
    """Entries are listed, and adding one is refused in one line."""
    add(small_queue, "pass")
    done = run_on_disk(mount, "$queue ls --json; $queue add -- true")
    assert json.loads(done.stdout)[0]["id"] == 1
    assert done.returncode == 2
    assert done.stderr.startswith("error: cannot write to the queue") and len(done.stderr.splitlines()) == 1


def test_a_disk_that_is_full_while_a_run_ends(small_queue):
    """The exit code is not lost, and the worker continues once there is space."""
    small_queue.add([NewEntry(argv=("sh", "-c", "cat /dev/zero > ../../filler; true"), cwd=".alchemy/queue")])
    done = run_on_disk("small", "(sleep 1; rm filler) & $queue start --until-empty; $queue ls --all --json")
    assert "warning: cannot write to the queue" in done.stderr and len(done.stderr.splitlines()) == 1
    (row,) = json.loads(done.stdout[done.stdout.index("[\n") :])
    assert (row["state"], len(row["attempts"])) == ("done", 1)
