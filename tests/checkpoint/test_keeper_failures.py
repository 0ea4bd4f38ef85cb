"""Failing saves: reported, retried, and never fatal for the run."""

from __future__ import annotations

import errno
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from alchemy.checkpoint import links
from alchemy.checkpoint.files import Disk
from alchemy.checkpoint.manifest import read_manifest
from alchemy.checkpoint.monitor import Monitor
from alchemy.checkpoint.policy import Watch
from tests.checkpoint.faults import FaultyDisk, Holder, names


def test_a_full_disk_is_told_and_tried_again(train: Any, tmp_path: Path, said: list[str]) -> None:
    training, state = train(monitor="dev/f1"), tmp_path / "state"
    training.step(0.1)
    training.step(0.2)
    training.keeper.saver.wait()
    training.keeper.saver.disk = FaultyDisk(room=100)
    training.step(0.9)  # the best, but it does not fit
    training.step()
    training.keeper.saver.wait()
    assert training.keeper.failed == 2
    told = [line for line in said if "could not write the checkpoint" in line]
    assert told[0] == (
        "could not write the checkpoint u3: OSError: [Errno 28] No space left on device; state/u2 is still valid, "
        "and the previous best is the best again; will retry at the next interval (1 failed so far)"
    )
    assert names(state) == ["u2"]
    assert list(state.glob(".tmp-*")) == []
    training.keeper.saver.disk = Disk()
    training.step(0.3)  # better than the saved one, but not than the lost one
    training.step()
    training.keeper.close()
    assert names(state) == ["u5", "u6"]
    assert read_manifest(state / "best").value == 0.3


def test_a_best_one_that_was_not_written_does_not_count(train: Any, tmp_path: Path) -> None:
    training = train(monitor="dev/f1", every={})
    training.keeper.watch(Watch(Monitor("dev/f1"), names=["best"]))
    training.step(0.5)
    training.keeper.saver.wait()
    training.keeper.saver.disk = FaultyDisk(room=100)
    training.step(0.9)
    training.keeper.saver.wait()
    training.keeper.saver.disk = Disk()
    training.step(0.4)  # worse than the saved one
    assert training.keeper.save(training.where, "signal") is not None
    training.keeper.close()
    assert names(tmp_path / "state") == ["u1", "u3"]
    assert json.loads((tmp_path / "best_info.json").read_text())["value"] == 0.5
    assert training.keeper.watches[0].rows == [(0.5, 1, "u1")]


@pytest.mark.parametrize("broken", ["replace_folder", "write_atomic"])
def test_names_that_were_not_given_are_given_after_the_next_save(
    train: Any, tmp_path: Path, said: list[str], monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    def refuse(*args: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    training, state = train(monitor="dev/f1", every=1), tmp_path / "state"
    training.keeper.watch(Watch(Monitor("dev/f1"), names=["best"]))
    training.step(0.5)
    training.keeper.saver.wait()
    with monkeypatch.context() as patched:
        patched.setattr(links, broken, refuse)
        training.step(0.9)
        training.keeper.saver.wait()
    assert said[-1] == (
        "u2 is saved, but last and best could not be updated: [Errno 28] No space left on device; "
        "will retry after the next save"
    )
    assert training.keeper.unsaved == ""
    again = train(monitor="dev/f1", every=1)  # a resume does so as well
    again.keeper.watch(Watch(Monitor("dev/f1"), names=["best"]))
    again.keeper.restore()
    again.update = 2
    again.steps(1)
    for folder in (state / "best", tmp_path / "checkpt" / "best"):
        assert read_manifest(folder).update == 2
    assert json.loads((tmp_path / "best_info.json").read_text())["value"] == 0.9


def test_the_best_that_somebody_removed_does_not_count(train: Any, tmp_path: Path) -> None:
    training = train(monitor="dev/f1", every=1)
    training.step(0.9)
    training.keeper.saver.wait()
    shutil.rmtree(tmp_path / "state")
    training.step()
    training.keeper.saver.wait()
    training.step(0.4)
    training.keeper.close()
    assert names(tmp_path / "state") == ["u3"]
    assert read_manifest(tmp_path / "state" / "best").value == 0.4


def test_a_state_that_somebody_removed_is_saved_again(train: Any, tmp_path: Path) -> None:
    training = train(every=1)
    training.step()
    training.keeper.saver.wait()
    shutil.rmtree(tmp_path / "state")
    assert training.keeper.save(training.where, "end") == tmp_path / "state" / "u1"
    assert (tmp_path / "state" / "u1").is_dir()


def test_a_save_that_fails_at_the_end_says_so(train: Any, said: list[str]) -> None:
    training = train(every={})
    training.keeper.saver.disk = FaultyDisk(call=3)
    training.step()
    assert training.keeper.save(training.where, "end") is None
    assert any("no checkpoint yet" in line for line in said)
    training.keeper.saver.disk = Disk()
    assert training.keeper.save(training.where, "end").name == "u1"


def test_a_part_that_cannot_give_its_state_does_not_stop_the_run(train: Any, tmp_path: Path, said: list[str]) -> None:
    training = train()
    training.keeper.parts["broken"] = Broken()
    training.steps(2)
    assert training.keeper.failed == 1
    assert "could not write the checkpoint u2" in said[-1]
    assert "state_dict() of the part 'broken' failed: RuntimeError('not now')" in said[-1]


class Broken:
    def state_dict(self) -> dict[str, Any]:
        raise RuntimeError("not now")

    def load_state_dict(self, state: Any) -> None:
        raise ValueError("never")


def test_what_cannot_be_saved_is_named_once(train: Any, said: list[str]) -> None:
    training = train(every=1)
    training.keeper.parts["pipe"] = Holder(hook=len, count=3)
    training.steps(3)
    warnings = [line for line in said if "leave out" in line]
    assert warnings == [
        "checkpoints leave out values that are neither JSON nor tensors: pipe.hook (builtin_function_or_method)"
    ]
    again = train()
    again.keeper.parts["pipe"] = pipe = Holder()
    again.keeper.restore()
    assert pipe.state == {"count": 3}
