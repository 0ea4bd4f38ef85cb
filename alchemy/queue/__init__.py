"""The queue of runs of one machine: its entries, and the worker that starts them."""

from __future__ import annotations

from alchemy.queue.attempts import stop_entry
from alchemy.queue.devices import Slots
from alchemy.queue.entry import Attempt, Entry, Needs, NewEntry, choose_environment
from alchemy.queue.folder import Queue
from alchemy.queue.worker import Event, Worker, WorkerExists

__all__ = [
    "Attempt",
    "Entry",
    "Event",
    "Needs",
    "NewEntry",
    "Queue",
    "Slots",
    "Worker",
    "WorkerExists",
    "choose_environment",
    "stop_entry",
]
