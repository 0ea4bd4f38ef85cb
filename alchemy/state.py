"""Collect, save and restore the complete state of a training run."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sized
from pathlib import Path
from typing import Any

from loguru import logger
from torch.utils.data import IterableDataset

from alchemy.checkpoint import Checkpoints
from alchemy.checkpoint.files import write
from alchemy.checkpoint.keeper import OWN_PART
from alchemy.checkpoint.links import NamedWeights
from alchemy.checkpoint.manifest import Manifest
from alchemy.checkpoint.monitor import Monitor
from alchemy.checkpoint.policy import Watch
from alchemy.checkpoint.run_state import Collected, collect_state
from alchemy.config.secrets import without_secrets
from alchemy.context import Run
from alchemy.data.pipe_chain import link_of, walk
from alchemy.errors import AlchemyError, Refused
from alchemy.files import hash_file, hash_text, write_atomic
from alchemy.launch.project_imports import find_file, imported_files
from alchemy.model import AlchemyModel
from alchemy.null_objects import Stateful
from alchemy.records.jsonl_writer import count_lines
from alchemy.records.ledger import Ledger
from alchemy.records.status import now, read_info
from alchemy.registry import construct
from alchemy.seeds import Generators


def open_state(run: Run) -> None:
    """Open the ledger and the checkpoints of a run, and restore the latest checkpoint if the run is resumed.

    Without a record, nothing is written, but the best scores are still tracked.
    """
    folder = run.group.broadcast(None if run.record_dir is None else str(run.record_dir))
    given = {"state_dir": Path(folder or os.devnull) / "state"}
    checkpoints: Checkpoints = construct(Checkpoints, run.table("checkpoint"), given=given, section="checkpoint")
    for watch in [*run.watches, *_main_watch(run, checkpoints)]:
        checkpoints.watch(watch)
    run.checkpoints, checkpoints.group = checkpoints, run.group
    if folder is None:
        checkpoints.enabled = False
        return
    try:
        run.ledger = ledger = Ledger(Path(folder) / "ledger.jsonl" if run.group.is_main else None, run.group)
    except OSError as error:
        raise AlchemyError(f"cannot write {folder}/ledger.jsonl: {error.strerror or error}") from error
    run.record.on_removal(ledger.reopen)
    run.exits.callback(_close_ledger, run)
    checkpoints.parts, checkpoints.note = parts_of(run), run.record.note
    code = _Code(run)
    checkpoints.saver.before = _Journals(run, code).sync
    checkpoints.named = NamedWeights(
        Path(folder), run.symbols.try_get_global("checkpt_dir"), _save_function(run, checkpoints.enabled)
    )
    run.exits.callback(checkpoints.close)
    if run.resume_from is not None:
        _restore(run, checkpoints, ledger)
    code.record()


def _main_watch(run: Run, checkpoints: Checkpoints) -> Iterator[Watch]:
    """Yield a watch on the main score of the task, unless `[checkpoint]` or a pipe monitors a score."""
    if run.task.main_score and "dev" in run.task.splits and not (run.watches or checkpoints.watches):
        monitor = Monitor(f"dev/{run.task.main_score}", run.task.main_mode)
        yield Watch(monitor, keep=run.table("checkpoint").get("best", 1))


def _save_function(run: Run, has_states: bool) -> Callable[[Path], None] | None:
    """Return the function that writes `checkpt/NAME`, or None if it can be a link to a checkpoint."""
    if has_states and type(run.model).save is AlchemyModel.save:
        return None

    def save(path: Path) -> None:
        with run.average.applied():
            run.model.save(path)

    return save


def _close_ledger(run: Run) -> None:
    """Close the ledger, even after a failure. With several processes, do not flush it, because some may have exited."""
    if run.group.size == 1:
        run.ledger.flush()
    with contextlib.suppress(OSError):  # reported when the record is closed
        run.record.restore_folder()
    run.ledger.close()


def parts_of(run: Run) -> dict[str, Stateful]:
    """Return everything that the next update depends on, under the names used in checkpoints."""
    parts: dict[str, object] = {
        # first, because all processes take part in it: if a later part fails, no process is left waiting
        "ledger": run.ledger,
        "metrics": run.metrics,
        "model": run.model,
        "optim": run.optim,
        "average": run.average,
        "sched": run.train_sched,
        "updater": run.updater,
        "precision": run.precision,
        "rules": run.rules,
        "data": _Source(run),
        "rows": _Rows(run),
        "generators": Generators(),
        "run": run,
        "settings": _Settings(run),
        "task": _Parts({f"{type(run.task).__name__}": run.task}),
        "outputpipes": _Parts(_by_position(run.task.outputpipes)),
        "evalpipes": _Parts(_by_position(run.task.evalpipes)),
        "plugins": _Parts(_by_position(run.plugins or [])),
    }
    return {name: part for name, part in parts.items() if isinstance(part, Stateful)}


def _restore(run: Run, checkpoints: Checkpoints, ledger: Ledger) -> None:
    """Restore the latest valid checkpoint and mark later rows of the record as void."""
    restored = checkpoints.restore()
    missing = run.group.broadcast(ledger.missing)
    if missing and "ledger" not in run.allowed:
        text = f"ledger.jsonl lacks {missing} rows of the checkpoint: the samples of these updates are unknown"
        raise Refused(text, hint="restore the file, or continue anyway with --allow ledger")
    if restored is None:
        logger.warning("no valid checkpoint in {}: training starts from the beginning", checkpoints.state_dir)
    if run.group.is_main:
        update = restored["update"] if restored else 0
        lines = checkpoints.parts["rows"].kept
        if run.record.lines < lines:
            logger.warning("metrics.jsonl has only {} of {} rows: the others are lost", run.record.lines, lines)
        run.record.resume(from_update=update, from_line=lines, seconds=run.elapsed if restored else 0.0)
        run.ledger.resume(run.record.generation, update)


class _Code:
    """The project files imported by the run, with their hashes at import time."""

    def __init__(self, run: Run) -> None:
        self.run, self.known = run, dict[str, str]()
        self._user_dir = str(run.symbols.try_get_global("user_dir") or "src")
        before = {} if run.resume_from is None else read_info(run.resume_from).get("code", {})
        self._files = {name: path for name in before if (path := find_file(name, self._user_dir)) is not None}

    def record(self) -> None:
        """Add the files imported since the last call to the record."""
        files = self._files | imported_files(self._user_dir)
        known = len(self.known)
        for name, path in files.items():
            if name not in self.known:
                with contextlib.suppress(OSError):  # a generated file that has been removed
                    self.known[name] = hash_file(path)
        if len(self.known) > known:
            with contextlib.suppress(OSError):  # disk full: the files are added at the next change to record.json
                self.run.record.note(code=self.known)


class _Journals:
    """The JSONL files that must be on disk before any checkpoint that refers to them."""

    def __init__(self, run: Run, code: _Code) -> None:
        self.run, self.code = run, code
        self._warned: set[str] = set()

    def sync(self, state: Collected) -> None:
        """Sync the files before a save, in the saving thread; a checkpoint must not count rows that are not on disk."""
        run = self.run
        run.record.restore_folder()
        run.media.flush()
        for part, name, rows in (("rows", "metrics.jsonl", run.record), ("ledger", "ledger.jsonl", run.ledger)):
            if not rows.sync() and part in state.json:
                claimed, found = state.json[part]["lines"], _count_complete(Path(run.record_dir or "") / name)
                if found < claimed:  # otherwise, only rows after the checkpoint are missing
                    state.json[part]["lines"] = found
                    self._warn(name, rows.error or "the disk does not respond", claimed, found)
        self.code.record()

    def _warn(self, name: str, reason: str, claimed: int, found: int) -> None:
        """Warn once per file; the checkpoint is saved anyway."""
        if name not in self._warned:
            self._warned.add(name)
            text = "{}: only {} of {} rows are on disk: {}; resuming from this checkpoint will count only these"
            logger.warning(text, name, found, claimed, reason)


def _count_complete(path: Path) -> int:
    """Return the number of complete rows in a file."""
    try:
        lines, cut = count_lines(path)
    except OSError:
        return 0
    return lines - cut


class _Rows:
    """The number of lines of `metrics.jsonl` that belong to the checkpoint, and the last gradient norm."""

    def __init__(self, run: Run) -> None:
        self.run, self.kept = run, 0

    def state_dict(self) -> dict[str, Any]:
        return {"lines": self.run.record.lines, "grad_norm": getattr(self.run.optim, "grad_norm", None)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kept = state["lines"]
        if state["grad_norm"] is not None:
            self.run.optim.grad_norm = state["grad_norm"].to(self.run.device)


class _Settings:
    """A hash of the settings that determine when a run ends; if they change, a completed run may continue."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        cfg = without_secrets(self.run.cfg)
        ends = [cfg.get("stop"), cfg.get("sched"), (cfg.get("task") or {}).get("evalpipes")]
        return {"hash": hash_text(json.dumps(ends, sort_keys=True, default=str))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state != self.state_dict():
            self.run.stop_request.reason = self.run.rules.after_update(self.run) or None


class _Parts:
    """A collection of parts, some of them stateful, identified by position and class."""

    def __init__(self, parts: Mapping[str, object]) -> None:
        self.parts = {name: part for name, part in parts.items() if isinstance(part, Stateful)}

    def state_dict(self) -> dict[str, Any]:
        return {name: self._state_of(name, part) for name, part in self.parts.items()}

    def _state_of(self, name: str, part: Stateful) -> dict[str, Any]:
        try:
            return part.state_dict()
        except Exception as error:
            raise AlchemyError(f"state_dict() of {name} failed: {error!r}") from error

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self.parts.items():
            if name in state:
                part.load_state_dict(state[name])
            else:
                logger.warning("{} is new and starts without saved state", name)
        for name in state.keys() - self.parts.keys():
            logger.warning("{} no longer exists: its saved state is discarded", name)


# recorded properties of the training data, and the `--allow` name that permits a change to each
_ALLOW_NAMES = {
    "samples": "data",
    "contents": "data",
    "stream": "data",
    "num_workers": "num_workers",
    "ranks": "ranks",
    "window": "ranks",
}


class _Source:
    """The settings that determine the data order; a checkpoint with different values is rejected unless allowed."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        dataset, kwargs = self.run.task.dataset("train")
        stream, size = isinstance(dataset, IterableDataset), self.run.group.size
        # indexed data is independent of the number of workers; global batches, of the number of processes
        dealt = not stream and (bool(kwargs.get("per_device")) or kwargs.get("batch_size") is None)
        return {
            "samples": len(dataset) if not stream and isinstance(dataset, Sized) else None,
            "stream": stream,
            "contents": [digest[:12] for pipe in walk(dataset) if isinstance(digest := link_of(pipe).digest, str)],
            "num_workers": kwargs.get("num_workers", 0) if stream else None,
            "ranks": size if stream else None,
            "window": size * self.run.updater.period if dealt else None,  # batches per update
            "batches": (self.run.train_sched.cur_step_this_epoch + 1) * size if dealt else None,  # in this epoch
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        today = self.state_dict()
        state = {"contents": [], **state}  # missing in checkpoints from older versions
        for key, name in _ALLOW_NAMES.items():
            if state[key] != today[key] and name not in self.run.allowed:
                what = "batches in an update" if key == "window" else f"{key} ="
                raise Refused(
                    f"the training data had {what} {state[key]} and now has {today[key]}: it would be a different run",
                    section="task.datasets.train",
                    hint=f"restore the previous value, or continue anyway with --allow {name}",
                )
        if state["batches"] is not None and today["batches"] is not None and state["batches"] != today["batches"]:
            # each process counts its own steps, and the number of processes has changed
            sched, before = self.run.train_sched, today["batches"] // self.run.group.size
            sched.cur_step_this_epoch = state["batches"] // self.run.group.size - 1
            sched.cur_step += sched.cur_step_this_epoch + 1 - before


def _by_position(parts: Iterable[object]) -> dict[str, object]:
    return {f"{place}.{type(part).__name__}": part for place, part in enumerate(parts)}


def save_bad_update(run: Run, error: Exception) -> None:
    """Save the state before a non-finite update, with everything that `alchemy replay` needs to repeat it.

    The weights are unchanged, the counters are reset to the last update boundary, and the random numbers of a step
    depend only on its number, so a replay makes the same update. A run cannot resume from this state: buffers such as
    batch norm statistics have already seen the bad batch.
    """
    sched, steps, ids = run.train_sched, len(run.progress.window), list(run.progress.window)
    sched.cur_step -= steps
    sched.cur_step_this_epoch -= steps
    late = run.updater.late  # the bad update is the previous one
    stepped = run.updater.has_stepped or late
    run.optim.zero_grad()
    run.updater.drop_window()
    state = collect_state({**run.checkpoints.parts, OWN_PART: run.checkpoints})  # all processes take part
    if run.record_dir is None:
        return
    folder, update = Path(run.record_dir) / "bad", run.update + (not late)
    row = {
        "format": 1,
        "update": update,
        "epoch": sched.cur_epoch,
        "step": sched.cur_step + 1,
        "ids": ids,
        "seed": run.seed,
        "lr": [rate if math.isfinite(rate) else str(rate) for rate in run.optim.get_lr()],
        "reason": str(error),
    }
    try:
        folder.mkdir(exist_ok=True)
        write_atomic(folder / f"u{update}.json", json.dumps(row) + "\n")
        target = folder / f"u{update - 1}"
        if not stepped and not target.exists():  # otherwise, one of several optimizers is one step ahead
            write(target, state.files(), Manifest(*run.where, time=now(), kind="bad", why=["nonfinite"]))
    except OSError as reason:
        logger.warning("could not save the state for a replay of update {}: {}", update, reason)
    error.add_note(f"to inspect it, run: alchemy replay {run.record_dir} --update {update}")
