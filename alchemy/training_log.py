"""Log training metrics every `log_every` updates."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import time

import torch

from alchemy.context import Run
from alchemy.errors import RunFailed
from alchemy.metrics.metric_stack import gather_single

PAGE = os.sysconf("SC_PAGE_SIZE")
FLUSH_UPDATES = 100  # updates between two flushes of the ledger; checkpoints and epoch ends flush it too


class TrainingLog:
    """Logs the training metrics; nothing is read from the device between two log rows."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.sched = run.train_sched
        # last update boundary; a run resumed at the end of a step has not yet reached the boundary of its update
        unfinished = self.sched.is_pending("end_step") and not run.updater.is_open
        self.update = self.sched.num_updates - unfinished
        self._measured_at, self._in_use = -math.inf, dict[str, float]()
        self._flush_at = self.update + FLUSH_UPDATES
        self._begin(self.update)

    def _begin(self, update: int) -> None:
        # depends only on the update number, so that a resumed run logs at the same updates
        self.due = (update // self.run.log_every + 1) * self.run.log_every
        self._time, self._step = time.perf_counter() - self.run.progress.eval_seconds, self.sched.cur_step

    def _memory(self) -> dict[str, float]:
        """Return the memory in use, measured at most once per second because the system call is slow."""
        now = time.monotonic()
        if now - self._measured_at >= 1.0:
            self._measured_at, self._in_use = now, _system_values(self.run.device)
        return self._in_use

    def is_due(self) -> bool:
        return bool(self.sched.num_updates >= self.due)

    def log(self) -> None:
        run, sched = self.run, self.sched
        seconds = time.perf_counter() - run.progress.eval_seconds - self._time
        steps = max(sched.cur_step - self._step, 1)
        sums = run.metrics.current.sums()
        tokens, targets = sums.get("tokens", (0, 0))[0], sums.get("loss", (0, 0))[1]
        # the metrics of this window are read from the device once, here, instead of at every step
        means = run.metrics.turn_over(run.group.gather if run.group.size > 1 else gather_single)
        values = {_full_name(name): mean for name, mean in means.items() if name != "tokens"}
        values["train/lr"] = run.optim.get_lr()[0]
        norm = getattr(run.optim, "grad_norm", None)
        if norm is not None:
            values["train/grad_norm"] = float(norm)
        values["time/step"] = seconds / steps
        values["time/steps_per_s"] = steps / seconds
        if targets:  # tokens or samples, depending on what the loss counts
            values["time/targets_per_s"] = float(targets) / seconds
        if tokens:
            values["time/tokens_per_s"] = float(tokens) / seconds
        values |= self._memory()
        run.log(values)
        if sched.num_updates >= self._flush_at:
            self._flush_at = sched.num_updates + FLUSH_UPDATES
            run.ledger.flush()
        run.rules.after_log(run, values)
        self._begin(sched.num_updates)


def check_progress(run: Run) -> None:
    """Raise an error at the end of an epoch if no process has counted a target in its loss yet."""
    sums = [row for scope in run.metrics.open_scopes() for row in scope.sums().items()]
    counts = [count for name, (_, count) in sums if name == "loss" or name.startswith("loss_")]
    everyone = run.group.gather(counts)
    if any(everyone) and not any(map(any, everyone)):
        hint = "check the labels and `ignore_index` of the loss"
        raise RunFailed("nothing was learned: all targets were ignored, so the count of every batch is 0", hint=hint)


@functools.cache
def _full_name(name: str) -> str:
    return name if "/" in name else f"train/{name}"


def _system_values(device: torch.device | None) -> dict[str, float]:
    """Return the memory in use, in MiB."""
    values = {}
    with contextlib.suppress(OSError), open("/proc/self/statm") as statm:
        values["system/rss"] = int(statm.read().split()[1]) * PAGE / 2**20
    if device is not None and device.type == "cuda":
        values["system/gpu_memory"] = torch.cuda.max_memory_allocated(device) / 2**20
    return values
