"""Saving beside the training: a copy of the tensors is made at once, the disk is waited for in a thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from loguru import logger
from torch import Tensor

from alchemy.checkpoint.files import DISK, Disk, write
from alchemy.checkpoint.manifest import Manifest
from alchemy.checkpoint.run_state import Collected

LONG_WAIT = 1.0  # seconds

Done = Callable[[Path, str], None]  # called with the folder, and why it could not be written


class Buffers:
    """Host memory for a copy of the tensors, kept from one save to the next: later ones touch no new page.

    Tensors on a GPU are copied to pinned memory without waiting for it; `ready` waits. The training may go on at
    once: what it does next on the same stream comes after the copy.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._events: list[torch.cuda.Event] = []

    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        copies = {name: self._fitting(name, tensor) for name, tensor in tensors.items()}
        self._kept |= copies  # what only a whole state has outlives a save of weights alone
        with torch.no_grad():
            for name, tensor in tensors.items():
                copies[name].copy_(tensor, non_blocking=tensor.is_cuda)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            self._events.append(event)
        return copies

    def ready(self) -> None:
        """Waits until the copies are complete."""
        for event in self._events:
            event.synchronize()
        self._events.clear()

    def _fitting(self, name: str, tensor: Tensor) -> Tensor:
        kept = self._kept.get(name)
        if kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
            return kept
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


class Saver:
    """Writes checkpoints, one at a time. Trouble with the disk is counted and handed to `done`; none of it is raised.

    Where a copy finds no memory, or a thread cannot be had, the caller waits for the disk. `before(state)` is called
    ahead of each save, where it is written: what else must be on the disk by then goes there, and what the state says
    of it can be mended.
    """

    def __init__(
        self, *, asynchronous: bool = True, before: Callable[[Collected], None] = lambda state: None, disk: Disk = DISK
    ) -> None:
        self.asynchronous, self.before, self.disk = asynchronous, before, disk
        self.failed = 0
        self.seconds = 0.0  # in all, that the caller was kept from its work
        self.writing = 0.0  # CPU seconds of the threads
        self._buffers = Buffers()
        self._thread: threading.Thread | None = None
        self._told = False

    def save(
        self,
        target: Path,
        state: Collected,
        manifest: Manifest,
        done: Done = lambda path, error: None,
        *,
        now: bool = False,
    ) -> None:
        """Saves `state` as the folder `target`, then calls `done(target, why it failed)` where it was written.

        `now` returns when it is on the disk, and needs no copy.
        """
        begin = time.perf_counter()
        self.wait_for_room()
        if now or not self.asynchronous or not self._begin(target, state, manifest, done):
            self._write(target, state, manifest, done)
        self.seconds += time.perf_counter() - begin

    def _begin(self, target: Path, state: Collected, manifest: Manifest, done: Done) -> bool:
        """Copies the state and hands it to a thread; False where there is no memory for the copy, or no thread."""
        try:
            state.tensors = self._buffers.copy(state.tensors)
            # no daemon: a program that ends without close() still finishes what it has begun
            thread = threading.Thread(
                target=self._beside, args=(target, state, manifest, done), name="alchemy-checkpoint"
            )
            thread.start()
        except Exception as error:  # torch has several for a lack of memory
            if not self._told:
                self._told = True
                logger.warning("checkpoints are written while training waits: {}: {}", type(error).__name__, error)
            return False
        self._thread = thread
        return True

    def _beside(self, target: Path, state: Collected, manifest: Manifest, done: Done) -> None:
        self._write(target, state, manifest, done)
        self.writing += time.thread_time()  # the thread is there for this save alone

    def wait(self) -> None:
        """Returns when nothing is being written."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        self.wait()
        self._buffers = Buffers()

    def wait_for_room(self) -> None:
        begin = time.monotonic()
        self.wait()
        waited = time.monotonic() - begin
        if waited > LONG_WAIT:
            logger.debug("training waited {:.1f} s for the checkpoint before this one: save less often", waited)

    def _write(self, target: Path, state: Collected, manifest: Manifest, done: Done) -> None:
        reason = ""
        try:
            self._buffers.ready()
            self.before(state)
            write(target, state.files(), manifest, self.disk)
        except Exception as error:  # a training is worth more than one of its checkpoints
            self.failed += 1
            reason = f"{type(error).__name__}: {error}"
        try:
            done(target, reason)
        except Exception as error:
            logger.opt(exception=error).warning("after the checkpoint {}: {}", target.name, error)
