"""Saving in the background: memory is reused, shapes may change, errors do not reach training."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from alchemy.checkpoint.async_saver import Buffers, Saver
from alchemy.checkpoint.manifest import Manifest, verify
from alchemy.checkpoint.run_state import Collected
from tests.checkpoint.faults import FaultyDisk, PowerCut, is_exactly, save, tensors_of


def manifest(update: int = 1) -> Manifest:
    return Manifest(update=update, epoch=0, step=update, time="")


def test_the_copies_use_the_same_memory_again() -> None:
    buffers = Buffers()
    first = buffers.copy({"a": torch.ones(3, 2), "b": torch.ones(2, 3).t()})
    places = [tensor.data_ptr() for tensor in first.values()]
    second = buffers.copy({"a": torch.full((3, 2), 5.0), "b": torch.zeros(2, 3).t()})
    assert [tensor.data_ptr() for tensor in second.values()] == places
    assert list(buffers.copy({"b": torch.zeros(2, 3).t()})) == ["b"]  # weights only
    assert buffers.copy({"a": second["a"].clone()})["a"].data_ptr() == places[0]
    assert torch.equal(second["a"], torch.full((3, 2), 5.0))
    assert second["b"].is_contiguous()


def test_tensors_that_change_their_shape_or_go_away_get_what_they_need() -> None:
    buffers = Buffers()
    buffers.copy({"a": torch.ones(3), "b": torch.ones(1)})
    copies = buffers.copy({"a": torch.arange(4), "c": torch.tensor(True)})
    assert sorted(copies) == ["a", "c"]
    assert torch.equal(copies["a"], torch.arange(4))
    assert copies["c"].dtype is torch.bool


def test_the_copy_does_not_follow_the_training(tmp_path: Path) -> None:
    saver, weight = Saver(), torch.zeros(4)
    gate = threading.Event()
    saver.before = lambda state: gate.wait(10) and None  # type: ignore[assignment]
    saver.save(tmp_path / "u1", Collected({}, {"parts/x": weight}), manifest())
    weight.fill_(7.0)
    gate.set()
    saver.wait()
    from alchemy.checkpoint.files import read

    assert torch.equal(read(tmp_path / "u1")["parts.safetensors"]["x"], torch.zeros(4))


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("call", range(12))
def test_a_failing_save_never_costs_the_one_before(tmp_path: Path, asynchronous: bool, call: int) -> None:
    save(tmp_path, 1, FaultyDisk())
    saver, ends = Saver(asynchronous=asynchronous, disk=FaultyDisk(call=call)), []
    tensors = {f"model/{name}": tensor for name, tensor in tensors_of(2).items()}
    saver.save(tmp_path / "u2", Collected({}, tensors), manifest(2), lambda path, error: ends.append(error))
    saver.close()
    assert is_exactly(tmp_path / "u1", 1)
    assert (ends[0] == "") == (saver.failed == 0)
    assert verify(tmp_path / "u2") == "" if saver.failed == 0 else ends[0] == "OSError: [Errno 5] Input/output error"


def test_a_process_that_dies_amid_a_save_leaves_the_one_before(tmp_path: Path) -> None:
    save(tmp_path, 1, FaultyDisk())
    saver = Saver(asynchronous=False, disk=FaultyDisk(room=30, power=True))
    with pytest.raises(PowerCut, match="the plug was pulled"):
        saver.save(tmp_path / "u2", Collected({}, {"model/x": torch.ones(99)}), manifest())
    assert not (tmp_path / "u2").exists()
    assert is_exactly(tmp_path / "u1", 1)


def test_one_is_written_at_a_time(tmp_path: Path) -> None:
    saver, alive = Saver(), []
    saver.before = lambda _: alive.append(sum(thread.name == "alchemy-checkpoint" for thread in threading.enumerate()))
    for update in range(5):
        saver.save(tmp_path / f"u{update}", Collected({}, {"parts/x": torch.ones(update)}), manifest())
    saver.close()
    assert alive == [1] * 5
    assert saver.seconds > 0
    assert saver.writing > 0  # also of threads that have ended


class NoMemory(Buffers):
    def copy(self, tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        raise MemoryError("not enough memory: you tried to allocate 8 GiB")


def no_thread(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.parametrize("lacking", ["memory", "threads"])
def test_without_memory_or_a_thread_it_is_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: list[str], lacking: str
) -> None:
    saver = Saver()
    if lacking == "memory":
        saver._buffers = NoMemory()
    else:
        monkeypatch.setattr(threading.Thread, "start", no_thread)
    for update in (1, 2):
        saver.save(tmp_path / f"u{update}", Collected({}, {"model/x": torch.ones(3)}), manifest(update))
        assert verify(tmp_path / f"u{update}") == ""
    saver.close()
    assert saver.failed == 0
    assert [text.partition(":")[0] for text in said] == ["saving checkpoints synchronously"]
