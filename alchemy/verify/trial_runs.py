"""Run short trials of a config in separate processes and a temporary folder."""

from __future__ import annotations

import copy
import math
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.config.secrets import remember
from alchemy.config.tree import Document, Table, plain
from alchemy.context import Run
from alchemy.errors import AlchemyError, RunFailed
from alchemy.launch.signals import Interrupted
from alchemy.launch.worker_pool import LostJob, run_all
from alchemy.plugins import AlchemyPlugin, FileLogger
from alchemy.records.folder import folders
from alchemy.result import FailedRun
from alchemy.resuming import resume
from alchemy.runner import run, run_task
from alchemy.stop import StopRule

MAX_UPDATES, MIN_UPDATES = 20, 4
# loader options that require workers
WORKER_OPTIONS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")

Tell = Callable[[str], object]


@dataclass
class Trial:
    """A config prepared for short, comparable runs."""

    document: Document
    left_out: list[str]
    device: int = -1
    user_dir: str = "src"

    @classmethod
    def of(cls, doc: Document, *, updates: int | None = None, device: int = -1, user_dir: str = "src") -> Trial:
        """Return a trial that stops after `updates` updates and saves the state after each one."""
        if updates is not None and updates < 2:
            raise AlchemyError(f"--updates must be at least 2, got {updates}")
        _require_data(doc)
        work = copy.deepcopy(doc)
        work.setdefault("tag", "verify")
        work["log_every"] = 1  # to find the first update that differs
        left_out = _prepare_plugins(work)
        stop = work.setdefault("stop", {})
        limit = {"type": "alchemy.verify.trial_runs.Limit", "most": updates or 0}
        stop["any"] = [*plain(stop.get("any") or []), limit]
        work["checkpoint"] = plain(work.get("checkpoint") or {}) | {"every": 1, "enabled": True, "at_end": True}
        return cls(work, left_out, device, user_dir)

    def train(self, folder: Path, *, workers: int | None = None, kill_at: int = 0) -> Job:
        """Return a job that trains from the start; its process kills itself at update `kill_at`."""
        document = copy.deepcopy(self.document)
        if workers is not None:
            _set_workers(document["task"]["datasets"]["train"], workers)
        return Job(_train, folder, (document, kill_at, self.device, self.user_dir))

    def resume(self, folder: Path) -> Job:
        """Return a job that resumes the killed run in a folder."""
        return Job(_resume, folder, (self.document.secrets, self.device, self.user_dir))


class Job(NamedTuple):
    """A job for one process. `call(folder, *arguments)` returns an error message, or an empty string on success."""

    call: Callable[..., str]
    folder: Path
    arguments: tuple[Any, ...]


@StopRule.register()
class Limit(StopRule):
    """Stops after `most` updates (0: slightly more than one epoch). Kills the process at update `kill_at`."""

    kill_at = 0  # set per process, because the resumed run has the same config

    def __init__(self, *, most: int = 0) -> None:
        self.most = most

    def check(self, run: Run) -> str:
        # checked before the state of this update is saved, so the resumed run repeats the update
        if self.kill_at and run.update >= self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        limit = self.most or _default_limit(run)
        return f"{limit} updates are enough for a comparison" if run.update >= limit else ""


def _default_limit(run: Run) -> int:
    """Return a limit slightly longer than a short epoch, so that the start of the next epoch is also tested."""
    if run.progress.epoch_steps is None:
        return MAX_UPDATES
    updates = math.ceil(run.progress.epoch_steps / run.updater.period)
    return min(MAX_UPDATES, max(MIN_UPDATES, updates + max(2, updates // 4)))


def run_jobs(jobs: Sequence[Job], *, at_once: int = 2) -> list[str | LostJob]:
    """Run jobs in new processes; the result of a process that died is a `LostJob`."""
    calls = [(job.call, str(job.folder), *job.arguments) for job in jobs]
    signals: list[int] = []
    answers = run_all(_run_job, calls, [None] * min(at_once, len(jobs)), signals.append)
    if signals:
        raise Interrupted(signals[0])
    return answers


def check_finished(answers: Sequence[str | LostJob]) -> None:
    """Raise an error if a trial run did not finish."""
    for answer in answers:
        if isinstance(answer, LostJob):
            raise RunFailed(f"the process of a trial run died: {answer}")
        if answer:
            hint = "see `alchemy run CFG --fast-dev-run 2`"
            raise RunFailed(f"a trial run failed, so there is nothing to compare: {answer}", hint=hint)


def run_here(work: Document, device_info: dict[str, Any], user_dir: str, **options: Any) -> Any:
    """Run a config in this process without writing files; `options` are keyword arguments of its runner."""
    result = run_task(work, device_info, raise_errors=True, user_dir=user_dir, no_file=True, **options)
    if result.signal is not None:
        raise Interrupted(result.signal)
    return result.ret


def find_only_record(folder: Path) -> Path:
    """Return the only record in a folder."""
    return next(folders(folder))


def _require_data(doc: Document) -> None:
    """Raise an error if a config has no training data."""
    task = doc.get("task")
    splits = task.get("datasets") if isinstance(task, Table) else None
    if not isinstance(splits, Table) or "train" not in splits:
        raise AlchemyError(
            "there is no training data", where=doc.path, section="task.datasets", hint="add [task.datasets.train]"
        )


def keep_only_training(doc: Document, runner: str) -> Document:
    """Copy the config for an experimental runner, with only training data and no checkpoints or stop rules."""
    _require_data(doc)
    work = copy.deepcopy(doc)
    for table in ("stop", "checkpoint", "ema", "capture", "sweep"):
        work.pop(table, None)
    work["runner"] = runner
    datasets = work["task"]["datasets"]
    for split in [split for split in datasets if split != "train"]:
        del datasets[split]
    return work


def _set_workers(table: Table, workers: int) -> None:
    """Set the number of loader workers of a split; with 0, remove the options that require workers."""
    table["num_workers"] = workers
    for key in WORKER_OPTIONS if not workers else ():
        table.pop(key, None)


# -- in the process
def _run_job(call: Callable[..., str], folder: str, *arguments: object) -> str:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "printed.txt"), "a") as printed:
        for number in (1, 2):  # redirect the file descriptors to catch output that does not come from Python
            os.dup2(printed.fileno(), number)
        return call(folder, *arguments[:-1])  # the last argument is the slot


def _train(folder: str, document: Document, kill_at: int, device: int, user_dir: str) -> str:
    Limit.kill_at = kill_at
    for plugin in document["plugins"]:
        if issubclass(_class_of(plugin), FileLogger):
            plugin["log_dir"] = folder
    return run_and_describe_error(lambda: run([document], device=[device], user_dir=user_dir)[0])


def _resume(folder: str, secrets: dict[str, str], device: int, user_dir: str) -> str:
    remember(secrets)  # the record contains only digests of the secrets
    return run_and_describe_error(lambda: resume(find_only_record(Path(folder)), device=[device], user_dir=user_dir))


def run_and_describe_error(work: Callable[[], object]) -> str:
    """Run the work of a process; return the error message, or an empty string on success."""
    try:
        result = work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return result.reason if isinstance(result, FailedRun) else ""


# -- the config
def _prepare_plugins(work: Document) -> list[str]:
    """Remove plugins that do not affect results, and ensure that there is a FileLogger; return the removed names."""
    plugins = plain(work.get("plugins") or [])
    kept = [plugin for plugin in plugins if not _is_aside(plugin)]
    if not any(issubclass(_class_of(plugin), FileLogger) for plugin in kept):
        kept.append({"type": "alchemy.plugins.FileLogger", "log_dir": ""})
    work["plugins"] = kept
    return [_class_of(plugin).__name__ for plugin in plugins if _is_aside(plugin)]


def _is_aside(plugin: Mapping[str, Any]) -> bool:
    kind = _class_of(plugin)
    return issubclass(kind, AlchemyPlugin) and kind.aside


def _class_of(plugin: Mapping[str, Any]) -> type:
    return AlchemyPlugin.resolve_registered_module(plugin["type"])
