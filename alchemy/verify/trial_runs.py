"""Short trainings of a config, in processes of their own and in a folder that is thrown away."""

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

MOST, LEAST = 20, 4
# options of a loader that only make sense with workers
OF_WORKERS = ("prefetch_factor", "persistent_workers", "timeout", "multiprocessing_context")

Tell = Callable[[str], object]


@dataclass
class Trial:
    """A config made fit for short trainings that can be compared."""

    document: Document
    left_out: list[str]
    device: int = -1
    user_dir: str = "src"

    @classmethod
    def of(cls, doc: Document, *, updates: int | None = None, device: int = -1, user_dir: str = "src") -> Trial:
        """The same training, cut after `updates`, with its state saved at every one of them."""
        if updates is not None and updates < 2:
            raise AlchemyError(f"--updates is {updates}", hint="give 2 or more")
        _refuse_without_data(doc)
        work = copy.deepcopy(doc)
        work.setdefault("tag", "verify")
        work["log_every"] = 1  # so that the first update that differs is seen
        left_out = _plugins(work)
        stop = work.setdefault("stop", {})
        limit = {"type": "alchemy.verify.trial_runs.Limit", "most": updates or 0}
        stop["any"] = [*plain(stop.get("any") or []), limit]
        work["checkpoint"] = plain(work.get("checkpoint") or {}) | {"every": 1, "enabled": True, "at_end": True}
        return cls(work, left_out, device, user_dir)

    def train(self, folder: Path, *, workers: int | None = None, kill_at: int = 0) -> Job:
        """A training from the beginning; `kill_at` is the update at which its process kills itself."""
        document = copy.deepcopy(self.document)
        if workers is not None:
            _set_workers(document["task"]["datasets"]["train"], workers)
        return Job(_train, folder, (document, kill_at, self.device, self.user_dir))

    def resume(self, folder: Path) -> Job:
        """Goes on with the training that was killed in a folder."""
        return Job(_resume, folder, (self.document.secrets, self.device, self.user_dir))


class Job(NamedTuple):
    """What a process does: `call(folder, *arguments)`, which returns why it failed, or nothing."""

    call: Callable[..., str]
    folder: Path
    arguments: tuple[Any, ...]


@StopRule.register()
class Limit(StopRule):
    """Ends a training after `most` updates; 0 is a bit more than an epoch. Kills it where the process is told to."""

    kill_at = 0  # of the process, not of the config: a run that goes on after it has the same config

    def __init__(self, *, most: int = 0) -> None:
        self.most = most

    def check(self, run: Run) -> str:
        # asked before the state of this update is saved: it has to be made again
        if self.kill_at and run.update >= self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        limit = self.most or _a_bit_more(run)
        return f"{limit} updates are enough to compare" if run.update >= limit else ""


def _a_bit_more(run: Run) -> int:
    """More than an epoch where that is short, so that the change to the next one is seen too."""
    if run.progress.epoch_steps is None:
        return MOST
    updates = math.ceil(run.progress.epoch_steps / run.updater.period)
    return min(MOST, max(LEAST, updates + max(2, updates // 4)))


def go(jobs: Sequence[Job], *, at_once: int = 2) -> list[str | LostJob]:
    """Does the jobs in fresh processes; a process that died gives a `LostJob`."""
    calls = [(job.call, str(job.folder), *job.arguments) for job in jobs]
    told: list[int] = []
    answers = run_all(_do, calls, [None] * min(at_once, len(jobs)), told.append)
    if told:
        raise Interrupted(told[0])
    return answers


def check_finished(answers: Sequence[str | LostJob]) -> None:
    """An error where a training did not come to its end."""
    for answer in answers:
        if isinstance(answer, LostJob):
            raise RunFailed(f"a training was lost: {answer}")
        if answer:
            hint = "see `alchemy run CFG --fast-dev-run 2`"
            raise RunFailed(f"a training failed, so nothing can be compared: {answer}", hint=hint)


def run_here(work: Document, device_info: dict[str, Any], user_dir: str, **options: Any) -> Any:
    """Runs a config in this process without writing anything; `options` are keywords of its runner."""
    result = run_task(work, device_info, raise_errors=True, user_dir=user_dir, no_file=True, **options)
    if result.signal is not None:
        raise Interrupted(result.signal)
    return result.ret


def record_in(folder: Path) -> Path:
    """The one record of a folder."""
    return next(folders(folder))


def _refuse_without_data(doc: Document) -> None:
    """An error where a config has no training data."""
    task = doc.get("task")
    splits = task.get("datasets") if isinstance(task, Table) else None
    if not isinstance(splits, Table) or "train" not in splits:
        raise AlchemyError(
            "there is no data to train on", where=doc.path, section="task.datasets", hint="add [task.datasets.train]"
        )


def only_training(doc: Document, runner: str) -> Document:
    """The config for a runner that tries something out: the training data, and none of what keeps or ends a run."""
    _refuse_without_data(doc)
    work = copy.deepcopy(doc)
    for table in ("stop", "checkpoint", "ema", "sweep"):
        work.pop(table, None)
    work["runner"] = runner
    datasets = work["task"]["datasets"]
    for split in [split for split in datasets if split != "train"]:
        del datasets[split]
    return work


def _set_workers(table: Table, workers: int) -> None:
    """Gives a split so many loader workers; without any, what only they can have is taken out."""
    table["num_workers"] = workers
    for key in OF_WORKERS if not workers else ():
        table.pop(key, None)


# -- in the process
def _do(call: Callable[..., str], folder: str, *arguments: object) -> str:
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "printed.txt"), "a") as printed:
        for number in (1, 2):  # of the process: what is not Python prints too
            os.dup2(printed.fileno(), number)
        return call(folder, *arguments[:-1])  # the last one is the place


def _train(folder: str, document: Document, kill_at: int, device: int, user_dir: str) -> str:
    Limit.kill_at = kill_at
    for plugin in document["plugins"]:
        if issubclass(_class_of(plugin), FileLogger):
            plugin["log_dir"] = folder
    return why_failed(lambda: run([document], device=[device], user_dir=user_dir)[0])


def _resume(folder: str, secrets: dict[str, str], device: int, user_dir: str) -> str:
    remember(secrets)  # the record has only their digests
    return why_failed(lambda: resume(record_in(Path(folder)), device=[device], user_dir=user_dir))


def why_failed(work: Callable[[], object]) -> str:
    """Does the work of a process; an error travels as text."""
    try:
        result = work()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return result.reason if isinstance(result, FailedRun) else ""


# -- the config
def _plugins(work: Document) -> list[str]:
    """Leaves out what changes no number, and sees to a record; returns what was left out."""
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
