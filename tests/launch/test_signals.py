"""The first signal requests a stop, the second one exits; signals ignored by nohup stay ignored."""

from __future__ import annotations

import os
import signal

import pytest

from alchemy.launch.signals import Interrupted, handle_signals


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_asks_and_the_second_leaves(number: int) -> None:
    asked: list[int] = []
    before = signal.signal(number, signal.SIG_DFL)  # the tests may run under nohup
    try:
        with (
            pytest.raises(Interrupted, match=f"{signal.Signals(number).name} received"),
            handle_signals(lambda number: asked.append(number) is None),
        ):
            os.kill(os.getpid(), number)
            assert asked == [number]
            os.kill(os.getpid(), number)
        assert signal.getsignal(number) is signal.SIG_DFL
    finally:
        signal.signal(number, before)


def test_what_was_ignored_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with handle_signals(lambda number: False):
            os.kill(os.getpid(), signal.SIGHUP)
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
