"""Save checkpoints asynchronously: copy the tensors immediately and write them in a background thread."""

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

Done = Callable[[Path, str], None]  # called with the folder and an error message, which is empty on success


class Buffers:
    """Host memory for a copy of the tensors, reused by later saves so that they allocate no new pages.

    GPU tensors are copied to pinned memory asynchronously; `wait` blocks until the copies are complete. Training can
    continue immediately, because its next operations on the same stream run after the copy.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}
        self._events: list[torch.cuda.Event] = []

    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        copies = {name: self._buffer_for(name, tensor) for name, tensor in tensors.items()}
        self._kept |= copies  # also keep the buffers that a weights-only save does not use
        with torch.no_grad():
            for name, tensor in tensors.items():
                copies[name].copy_(tensor, non_blocking=tensor.is_cuda)
        for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
            event = torch.cuda.Event()
            event.record(torch.cuda.current_stream(device))
            self._events.append(event)
        return copies

    def wait(self) -> None:
        """Wait until the copies are complete."""
        for event in self._events:
            event.synchronize()
        self._events.clear()

    def _buffer_for(self, name: str, tensor: Tensor) -> Tensor:
        kept = self._kept.get(name)
        if kept is not None and kept.shape == tensor.shape and kept.dtype == tensor.dtype:
            return kept
        return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=tensor.is_cuda)


class Saver:
    """Writes checkpoints, one at a time. Errors are counted and passed to `done`, never raised.

    If there is no memory for the copy, or no thread can be started, the save is synchronous. `before(state)` is called
    before each save, in the thread that writes it; it can flush other files to disk and update the state to match.
    """

    def __init__(
        self, *, asynchronous: bool = True, before: Callable[[Collected], None] = lambda state: None, disk: Disk = DISK
    ) -> None:
        self.asynchronous, self.before, self.disk = asynchronous, before, disk
        self.failed = 0
        self.seconds = 0.0  # total time that the caller was blocked
        self.writing = 0.0  # CPU seconds of the threads
        self._buffers = Buffers()
        self._thread: threading.Thread | None = None
        self._warned = False

    def save(
        self,
        target: Path,
        state: Collected,
        manifest: Manifest,
        done: Done = lambda path, error: None,
        *,
        now: bool = False,
    ) -> None:
        """Save `state` as the folder `target`, then call `done(target, error)` in the thread that wrote it.

        With `now`, write in the calling thread, without a copy, and return once the checkpoint is on disk.
        """
        begin = time.perf_counter()
        self.wait_for_previous()
        if now or not self.asynchronous or not self._start(target, state, manifest, done):
            self._write(target, state, manifest, done)
        self.seconds += time.perf_counter() - begin

    def _start(self, target: Path, state: Collected, manifest: Manifest, done: Done) -> bool:
        """Copy the state and write it in a thread; return False if out of memory or no thread can start."""
        try:
            state.tensors = self._buffers.copy(state.tensors)
            # not a daemon thread, so a program that exits without close() still finishes the save
            thread = threading.Thread(
                target=self._run_thread, args=(target, state, manifest, done), name="alchemy-checkpoint"
            )
            thread.start()
        except Exception as error:  # torch has several out-of-memory errors
            if not self._warned:
                self._warned = True
                logger.warning("saving checkpoints synchronously: {}: {}", type(error).__name__, error)
            return False
        self._thread = thread
        return True

    def _run_thread(self, target: Path, state: Collected, manifest: Manifest, done: Done) -> None:
        self._write(target, state, manifest, done)
        self.writing += time.thread_time()  # the thread exists only for this save

    def wait(self) -> None:
        """Wait until the current save is finished."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        self.wait()
        self._buffers = Buffers()

    def wait_for_previous(self) -> None:
        begin = time.monotonic()
        self.wait()
        waited = time.monotonic() - begin
        if waited > LONG_WAIT:
            logger.debug("training waited {:.1f} s for the previous checkpoint: save less often", waited)

    def _write(self, target: Path, state: Collected, manifest: Manifest, done: Done) -> None:
        reason = ""
        try:
            self._buffers.wait()
            self.before(state)
            write(target, state.files(), manifest, self.disk)
        except Exception as error:  # a failing save never aborts training
            self.failed += 1
            reason = f"{type(error).__name__}: {error}"
        try:
            done(target, reason)
        except Exception as error:
            logger.opt(exception=error).warning("after saving the checkpoint {}: {}", target.name, error)
