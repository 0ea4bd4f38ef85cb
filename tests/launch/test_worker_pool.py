"""Jobs in worker processes: results in order, and a dead process does not affect others."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.launch.device import alloc, alloc1, alloc_cuda, cuda_count
from alchemy.launch.worker_pool import LostJob, run_all


def work(number: int, place: Any) -> Any:
    if number == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if number == 2:
        os._exit(7)
    time.sleep(0.2 if number == 0 else 0)
    return number, place


def test_answers_come_in_order_and_the_dead_are_named() -> None:
    answers = run_all(work, [(n,) for n in range(4)], ["a", "b"])
    assert answers[0][0] == 0
    assert answers[3][0] == 3
    assert isinstance(answers[1], LostJob) and str(answers[1]) == "its process was killed by SIGKILL"
    assert isinstance(answers[2], LostJob) and "exit code 7" in str(answers[2])


def test_the_cpu_needs_no_driver_and_a_missing_device_is_an_error_at_once() -> None:
    assert alloc([-1]) == [{"device": "cpu"}]
    with pytest.raises(AlchemyError, match=r"no device 99: .*use --device -1 for the CPU"):
        alloc1(99)
    with pytest.raises(AlchemyError, match="expected a device number"):
        alloc1("0")  # type: ignore[arg-type]
    if not cuda_count():
        assert alloc() == [{"device": "cpu"}]
        with pytest.raises(AlchemyError, match="torch found no usable GPU"):
            alloc_cuda(0)


def wait_for_signal(number: int, path: str, *rest: Any) -> str:
    from alchemy.launch.signals import handle_signals

    told: list[int] = []
    with handle_signals(lambda signal_number: told.append(signal_number) is None):
        open(f"{path}/{number}", "w").close()
        deadline = time.monotonic() + 60
        while not told and time.monotonic() < deadline:
            time.sleep(0.01)
    if "tell" in rest:
        Path(path, "told").write_text(str(told))
    return f"{number} got {told}"


def test_a_signal_is_passed_on_once_and_nothing_further_is_started(tmp_path: Path) -> None:
    def interrupt() -> None:
        while len(list(tmp_path.iterdir())) < 2:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    thread = threading.Thread(target=interrupt)
    thread.start()
    answers = run_all(wait_for_signal, [(n, str(tmp_path)) for n in range(3)], ["a", "b"])
    thread.join()
    assert answers[:2] == ["0 got [15]", "1 got [15]"]
    assert answers[2] == LostJob(None, 15)
    assert str(answers[2]) == "not started"


def test_a_worker_ends_with_its_parent(tmp_path: Path) -> None:
    code = f"""
from tests.launch.test_worker_pool import wait_for_signal
from alchemy.launch.worker_pool import run_all
run_all(wait_for_signal, [(0, {str(tmp_path)!r}, "tell")], ["a"])
"""
    parent = subprocess.Popen([sys.executable, "-c", code])
    wait_until(lambda: (tmp_path / "0").exists())
    parent.kill()
    parent.wait()
    wait_until(lambda: (tmp_path / "told").exists())
    assert (tmp_path / "told").read_text() == "[15]"


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
