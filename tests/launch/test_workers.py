"""Jobs in processes of their own: answers in order, a dead process disturbs no other."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.launch.device import alloc, alloc1, alloc_cuda, cuda_count
from alchemy.launch.workers import Lost, places, run_all


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
    assert isinstance(answers[1], Lost) and str(answers[1]) == "its process was killed by SIGKILL"
    assert isinstance(answers[2], Lost) and "exit code 7" in str(answers[2])


def test_every_device_takes_as_many_runs_as_it_may() -> None:
    assert list(places(["a", "b"], 2)) == ["a", "b", "a", "b"]


def test_the_cpu_needs_no_driver_and_a_missing_device_is_an_error_at_once() -> None:
    assert alloc([-1]) == [{"device": "cpu"}]
    with pytest.raises(AlchemyError, match=r"there is no device 99: .*use --device -1 for the CPU"):
        alloc1(99)
    with pytest.raises(AlchemyError, match="a device is a number"):
        alloc1("0")  # type: ignore[arg-type]
    if not cuda_count():
        assert alloc() == [{"device": "cpu"}]
        with pytest.raises(AlchemyError, match="there is no GPU that torch can use"):
            alloc_cuda(0)
