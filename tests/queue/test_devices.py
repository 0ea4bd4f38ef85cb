"""Which devices an entry gets, on machines with and without GPUs."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from alchemy.queue import Attempt, Entry, Needs, Slots, devices
from alchemy.queue.devices import GpuMemory, find_gpus, read_nvml
from tests.queue.commands import add, work


def running(*devices, memory_mb=0):
    attempt = Attempt(number=1, started="", device=devices)
    needs = Needs(memory_mb=memory_mb)
    return Entry(argv=(), cwd="", env={}, id=1, added="", position=1.0, attempts=(attempt,), needs=needs)


def test_without_gpus_every_run_takes_one_slot():
    slots = Slots(2)
    assert slots.place(Needs(devices=4), [running("cpu")]) == ("cpu",)
    assert slots.place(Needs(), [running("cpu"), running("cpu")]) == ()


def test_free_gpus_come_first():
    slots = Slots(2, ["0", "1"])
    assert slots.place(Needs(), [running("0")]) == ("1",)
    assert slots.place(Needs(devices=2), [running("0")]) == ("1", "0")
    assert slots.place(Needs(devices=2), [running("0"), running("0")]) == ()


def test_the_cpu_has_slots_of_its_own():
    slots = Slots(1, ["0"])
    assert slots.place(Needs(devices=0), [running("0")]) == ("cpu",)
    assert slots.place(Needs(devices=0), [running("cpu")]) == ()
    assert slots.environment(("cpu",)) == {"CUDA_VISIBLE_DEVICES": ""}
    assert slots.environment(("1", "0"))["CUDA_VISIBLE_DEVICES"] == "1,0"


def test_memory_that_a_run_has_not_allocated_yet_counts():
    slots = Slots(2, ["0"], read_memory=lambda gpu: GpuMemory(free=16000, total=16000))
    assert slots.place(Needs(memory_mb=10000), [running("0", memory_mb=4000)]) == ("0",)
    assert slots.place(Needs(memory_mb=10000), [running("0", memory_mb=8000)]) == ()


@pytest.mark.parametrize(
    ("needs", "gpus", "memory", "reason"),
    [
        (Needs(devices=3), ["0", "1"], None, "needs 3 GPUs, but there are 2"),
        (Needs(memory_mb=9), [], None, "needs 9 MB of GPU memory, but there is no GPU"),
        (Needs(memory_mb=9), ["0"], None, "needs to measure GPU memory: pip install 'alchemy[gpu]'"),
        (Needs(memory_mb=9), ["0"], GpuMemory(1, 8), "needs 9 MB of GPU memory, but a GPU has 8 MB"),
        (Needs(memory_mb=8), ["0"], GpuMemory(1, 8), ""),
        (Needs(devices=0), ["0"], None, ""),
    ],
)
def test_an_entry_that_can_never_start_here(needs, gpus, memory, reason):
    assert Slots(1, gpus, read_memory=lambda gpu: memory).explain_misfit(needs) == reason


def test_such_an_entry_is_passed_over_and_says_why(queue):
    add(queue, "pass", needs=Needs(memory_mb=9))
    add(queue, "pass")
    problems = [event for event in work(queue) if event.kind == "problem"]
    assert [(event.entry.id, event.text) for event in problems] == [(1, queue.get(1).reason)]
    assert [(entry.state, entry.reason[:8]) for entry in queue.list()] == [("waiting", "needs 9 "), ("done", "")]


def test_a_run_does_not_overtake_one_that_waits_for_more_gpus(queue):
    order = "import os; open('out', 'a').write(os.environ['CUDA_VISIBLE_DEVICES'] + ' ')"
    add(
        queue,
        f"import os, time\nwhile not (os.path.exists('out') and os.path.getsize('out')): time.sleep(0.01)\n{order}",
    )
    add(queue, order, needs=Needs(devices=2))
    add(queue, order)
    add(queue, order, needs=Needs(devices=0))
    work(queue, Slots(1, ["5", "7"]))
    assert Path("out").read_text() == " 5 5,7 5 "


def test_nvml_counts_gpus_and_measures_their_memory(monkeypatch):
    used = {"nvmlInit": lambda: None, "nvmlDeviceGetCount": lambda: 2}
    handles = {"nvmlDeviceGetHandleByIndex": int, "nvmlDeviceGetHandleByUUID": lambda name: 7}
    memory = {"nvmlDeviceGetMemoryInfo": lambda handle: SimpleNamespace(free=handle * 2**20, total=9 * 2**20)}
    monkeypatch.setitem(sys.modules, "pynvml", SimpleNamespace(**used, **handles, **memory))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(devices, "_nvml", devices._nvml.__wrapped__)
    assert find_gpus() == ["0", "1"]
    assert [read_nvml(name) for name in ("1", "GPU-8d")] == [GpuMemory(1, 9), GpuMemory(7, 9)]


def test_gpus_are_found_without_torch(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3, GPU-8d")
    assert find_gpus() == ["3", "GPU-8d"]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert find_gpus() == []
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    listed = subprocess.CompletedProcess([], 0, "GPU 0: A100\nGPU 1: A100\n")
    monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: listed)
    assert find_gpus() == ["0", "1"]
