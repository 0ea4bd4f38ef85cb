"""The checkpoint policy: when to save, which to keep, links, and resuming from the latest."""

from __future__ import annotations

import errno
import math
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from alchemy.checkpoint.files import Disk
from alchemy.checkpoint.keeper import Checkpoints
from alchemy.checkpoint.manifest import Where, read_manifest, verify
from alchemy.errors import AlchemyError
from tests.checkpoint.faults import Holder, names
from tests.logs import warned


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return set(one) == set(other) and all(torch.equal(value, other[name]) for name, value in one.items())


@pytest.mark.parametrize("asynchronous", [True, False])
def test_a_run_goes_on_exactly_where_it_was(train: Any, tmp_path: Path, asynchronous: bool) -> None:
    first = train(asynchronous=asynchronous)
    first.steps(4)
    second = train()
    second.step()
    place = second.keeper.restore()
    assert place is not None
    assert (place["update"], place["folder"], place["passed"]) == (4, tmp_path / "state" / "u4", [])
    assert same(first.values(), second.values())


def test_the_state_is_that_of_the_moment_of_the_save(train: Any) -> None:
    """The thread writes during training: its data must not change."""
    training = train(every=3)
    gate = Gate()
    training.keeper.saver.disk = gate
    for _ in range(3):
        training.step()
    then = training.values()
    training.step()
    training.step()
    gate.open_it()
    training.keeper.close()
    again = train()
    assert again.keeper.restore()["update"] == 3
    assert same(again.values(), then)


class Gate(Disk):
    """Wait before the first folder is created."""

    def __init__(self) -> None:
        import threading

        self._gate = threading.Event()

    def open_it(self) -> None:
        self._gate.set()

    def make_folder(self, folder: Path) -> None:
        assert self._gate.wait(10)
        super().make_folder(folder)


@pytest.mark.parametrize(
    ("every", "saved"),
    [
        (2, ["u2", "u4"]),
        ({"updates": 3}, ["u3"]),
        ({"epochs": 1}, ["u2", "u4", "u5"]),
        ({"epochs": 2}, ["u4"]),
        ({"updates": 3, "epochs": 2}, ["u3", "u4"]),
        ({}, []),
        ({"minutes": 30}, []),
        ({"minutes": 1e-9}, ["u1", "u2", "u3", "u4", "u5"]),
    ],
)
def test_every(train: Any, tmp_path: Path, every: Any, saved: list[str]) -> None:
    training = train(every=every, last=9)
    for update in range(1, 6):  # epochs of two updates
        training.step()
        if update % 2 == 0 or update == 5:
            training.keeper.after_epoch(Where(update, (update - 1) // 2, update))
    training.keeper.close()
    assert names(tmp_path / "state") == saved


def test_the_best_and_the_last_are_kept_and_linked(train: Any, tmp_path: Path) -> None:
    training, state = train(monitor="dev/f1", best=2, last=2, every=1), tmp_path / "state"
    for score in (0.1, 0.7, 0.5, 0.7, 0.2, math.nan, 0.3):
        training.step(score)
    training.keeper.close()
    assert names(state) == ["u2", "u4", "u6", "u7"]
    assert read_manifest(state / "best").update == 2  # the older one of equal scores
    assert read_manifest(state / "last").update == 7
    assert [read_manifest(state / name).why for name in ("u2", "u4", "u7")] == [
        ["every", "best"],
        ["every", "best"],
        ["every"],
    ]
    assert (read_manifest(state / "best").metric, read_manifest(state / "best").value) == ("dev/f1", 0.7)
    assert verify(state / "best") == verify(state / "last") == ""
    assert {file.stat().st_nlink for file in (state / "u2").iterdir()} == {2}
    assert {file.stat().st_nlink for file in (state / "u4").iterdir()} == {1}
    assert os.path.samefile(state / "best" / "model.safetensors", state / "u2" / "model.safetensors")


def test_a_new_best_is_told(train: Any, tmp_path: Path) -> None:
    training, told = train(monitor="dev/f1", best=2, every=1), []

    def tell(**fields: Any) -> None:
        told.append(fields["best"])
        raise OSError(errno.ENOSPC, "No space left on device")  # must not reach training

    training.keeper.note = tell
    for score in (0.1, 0.7, 0.5, math.nan, 0.8):
        training.step(score)
    training.keeper.close()
    rows = [("dev/f1", 0.1, 1), ("dev/f1", 0.7, 2), ("dev/f1", 0.8, 5)]
    assert [tuple(row.values()) for row in told] == rows
    again = train(monitor="dev/f1", best=2)
    again.keeper.note = tell
    again.keeper.restore()
    assert told[3:] == [{"metric": "dev/f1", "value": 0.8, "update": 5}]


def test_the_smallest_can_be_the_best(train: Any, tmp_path: Path) -> None:
    training = train(monitor="dev/f1", mode="min", every={})
    for score in (0.5, math.inf, -math.inf, 0.4, 0.4, 0.6):
        training.step(score)
    training.keeper.close()
    assert names(tmp_path / "state") == ["u4"]


def test_a_resumed_run_knows_the_best(train: Any, tmp_path: Path) -> None:
    training = train(monitor="dev/f1")
    for score in (0.5, 0.9, 0.1, 0.2):
        training.step(score)
    training.keeper.close()
    again = train(monitor="dev/f1")
    again.update = again.keeper.restore()["update"]
    again.step(0.8)
    again.step(0.7)
    again.keeper.close()
    assert again.keeper.watches[0].rows == [(0.9, 2, "u2")]
    assert names(tmp_path / "state") == ["u2", "u6"]
    assert read_manifest(tmp_path / "state" / "best").update == 2


def test_a_best_amid_a_window_is_saved_at_once_as_weights(train: Any, tmp_path: Path) -> None:
    training, state = train(monitor="dev/f1", every=2), tmp_path / "state"
    training.step()
    training.step()
    weights = training.values()
    training.keeper.after_evaluation("dev", {"f1": 1.0}, training.where, mid_window=True)
    training.keeper.saver.wait()
    assert names(state) == ["u2", "u2-2"]
    assert read_manifest(state / "best").kind == "weights"
    assert sorted(path.name for path in (state / "u2-2").iterdir()) == [
        "manifest.json",
        "model.safetensors",
        "state.json",
    ]
    training.step()
    again = train(monitor="dev/f1")
    place = again.keeper.restore()
    assert place["folder"].name == "u2"
    assert place["passed"] == ["skipping state/u2-2: it contains only weights"]
    assert same(again.values(), weights)


def test_weights_that_have_moved_on_are_not_saved_as_the_best(train: Any, tmp_path: Path, said: list[str]) -> None:
    training = train(monitor="dev/f1", every={})
    training.step()
    training.keeper.after_evaluation("dev", {"f1": 1.0}, training.where)  # invalid: within a window
    training.step()
    training.keeper.close()
    assert names(tmp_path / "state") == []
    assert "the best weights (update 1) were not saved: they have changed since" in said


def test_a_state_that_is_there_is_not_written_again(train: Any, tmp_path: Path) -> None:
    training, state = train(every={"epochs": 1}), tmp_path / "state"
    training.step()
    training.keeper.after_epoch(training.where)
    training.keeper.saver.wait()
    inode = (state / "u1" / "model.safetensors").stat().st_ino
    assert training.keeper.save(training.where, "end") == state / "u1"
    assert names(state) == ["u1"]
    assert read_manifest(state / "u1").why == read_manifest(state / "last").why == ["every", "end"]
    assert verify(state / "u1") == verify(state / "last") == ""
    assert (state / "u1" / "model.safetensors").stat().st_ino == inode
    training.keeper.after_epoch(training.where)  # something happened: it is another state
    assert training.keeper.save(training.where, "signal") == state / "u1-2"


def test_the_end_can_be_left_out(train: Any, tmp_path: Path) -> None:
    training = train(every={}, at_end=False)
    training.step()
    assert training.keeper.save(training.where, "end") is None
    assert names(tmp_path / "state") == []
    assert training.keeper.save(training.where, "signal") == tmp_path / "state" / "u1"


def test_nothing_is_written_when_it_is_off(train: Any, tmp_path: Path) -> None:
    training = train(every=1, enabled=False)
    training.step()
    assert training.keeper.save(training.where, "end") is None
    assert not (tmp_path / "state").exists()


def test_restoring_is_strict(train: Any) -> None:
    train().steps(2)
    extra = train()
    extra.keeper.parts["pipe"] = Holder()
    with pytest.raises(AlchemyError, match=r"state/u2 has no state for 'pipe'; resume with the config that wrote it"):
        extra.keeper.restore()
    fewer = train()
    del fewer.keeper.parts["optim"]
    with pytest.raises(AlchemyError, match="state/u2 has state for 'optim', which this run does not have"):
        fewer.keeper.restore()
    other = train()
    other.module.append(nn.Linear(1, 1))
    with pytest.raises(AlchemyError, match=r"load_state_dict\(\) of the part 'model' failed: RuntimeError"):
        other.keeper.restore()


def test_newer_broken_ones_are_passed_over_with_a_word(train: Any, tmp_path: Path, said: list[str]) -> None:
    train(last=3).steps(6)
    (tmp_path / "state" / "u6" / "model.safetensors").write_bytes(b"half")
    again = train(last=3)
    assert again.keeper.restore()["update"] == 4
    size = read_manifest(tmp_path / "state" / "u4").files["model.safetensors"].bytes
    assert f"skipping state/u6: model.safetensors has 4 bytes, expected {size}" in said
    again.update = 4
    again.steps(2)
    assert names(tmp_path / "state") == ["u2", "u4", "u6-2"]  # the broken one is removed


def test_an_empty_state_is_none(train: Any) -> None:
    assert train().keeper.restore() is None


def test_leftovers_of_a_killed_save_are_removed_at_the_next_start(train: Any, tmp_path: Path, said: list[str]) -> None:
    train().steps(2)
    (tmp_path / "state" / ".tmp-99-u4").mkdir()
    train().keeper.restore()
    assert not (tmp_path / "state" / ".tmp-99-u4").exists()
    assert "removed leftovers of an interrupted save: .tmp-99-u4" in said


def test_a_file_system_without_links_gets_copies(train: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refuse)
    train().steps(2)
    assert verify(tmp_path / "state" / "last") == ""


def test_what_must_be_on_the_disk_first_is_called_before(train: Any, tmp_path: Path) -> None:
    training, seen = train(), []
    training.keeper.saver.before = lambda state: seen.append(names(tmp_path / "state"))
    training.steps(4)
    assert seen == [[], ["u2"]]


def test_a_long_wait_for_the_one_before_is_told(train: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alchemy.checkpoint.async_saver.LONG_WAIT", 0.0)
    training = train(every=1)
    training.keeper.saver.before = lambda state: time.sleep(0.02)
    with warned("DEBUG") as said:
        training.steps(2)
    assert any("s for the previous checkpoint: save less often" in line for line in said)


def test_a_metric_that_is_not_there_is_told_once(train: Any, said: list[str]) -> None:
    keeper = train(monitor="dev/f2").keeper
    for _ in range(2):
        keeper.after_evaluation("dev", {"f1": 1.0, "loss": 2.0}, Where(1, 0, 1))
        keeper.after_evaluation("test", {}, Where(1, 0, 1))
    text = "monitor = 'dev/f2' is not among the scores of 'dev'; the evaluation returned f1, loss"
    assert said == [f"cannot keep the best model: {text}"]


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"monitor": "f1"}, r"monitor = 'f1' does not name a split and a metric; write it like 'dev/f1'"),
        ({"mode": "up"}, r"mode must be one of 'max', 'min', not the string 'up'"),
        ({"best": -1}, "best must be at least 0, not -1"),
        ({"last": 0}, "last must be at least 1, not 0"),
        ({"last": True}, "last must be an integer, not true"),
        ({"every": 0}, "every must be at least 1, not 0"),
        ({"every": 1.5}, "every must be an integer or a table, not 1.5"),
        ({"every": {"epoch": 1}}, r"every has no option 'epoch'; did you mean 'epochs'?"),
        ({"every": {"minutes": 0}}, r"every: minutes must be a finite number above 0, not 0"),
        ({"every": {"epochs": 0.5}}, r"every: epochs must be a positive integer, not 0.5"),
    ],
)
def test_a_wrong_table_is_one_clear_error(tmp_path: Path, table: dict[str, Any], message: str) -> None:
    with pytest.raises(AlchemyError, match=message):
        Checkpoints(tmp_path, **table)


class Pair:
    """One of two processes; both make the same calls, and the first one decides."""

    size = 2

    def __init__(self, is_main: bool, late: bool = False) -> None:
        self.is_main, self.late = is_main, late
        self.asked = 0

    def broadcast(self, value: Any) -> Any:
        return value

    def any(self, flag: bool) -> bool:
        self.asked += 1
        return flag or self.late


def test_only_the_first_process_writes_and_all_give_their_state(train: Any, tmp_path: Path) -> None:
    training = train()
    training.keeper.group = Pair(is_main=False)
    asked: list[int] = []
    training.keeper.parts["gathers"] = Asked(asked)
    training.steps(4)
    assert asked == [1, 1]
    assert not (tmp_path / "state").exists()


def test_several_processes_agree_on_the_minutes(train: Any, tmp_path: Path) -> None:
    training = train(every={"minutes": 30})
    training.keeper.group = group = Pair(is_main=True, late=True)  # decided by the clock of the other process
    training.steps(17)
    assert group.asked == 1
    assert names(tmp_path / "state") == ["u16"]


class Asked:
    def __init__(self, asked: list[int]) -> None:
        self.asked = asked

    def state_dict(self) -> dict[str, Any]:
        self.asked.append(1)
        return {}

    def load_state_dict(self, state: Any) -> None:
        pass
