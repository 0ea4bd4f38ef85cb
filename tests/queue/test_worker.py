"""Entries are run in order, with the devices and the environment that they need."""

from pathlib import Path

from tests.queue.commands import add, states, work


def test_entries_are_run_in_order(queue):
    add(queue, *(f"open('out', 'a').write('{number}')" for number in range(3)))
    events = work(queue)
    assert Path("out").read_text() == "012"
    assert states(queue) == ["done"] * 3
    assert [event.kind for event in events] == ["started", "ended"] * 3
