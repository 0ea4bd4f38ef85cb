"""The whole state of a training: what it is made of, where it is kept, and how a run takes it up again."""

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
from alchemy.records.folder import now, read_info
from alchemy.records.jsonl_writer import count_lines
from alchemy.records.ledger import Ledger
from alchemy.registry import construct
from alchemy.seeds import Generators


def keep_state(run: Run) -> None:
    """Opens ledger and checkpoints of a run; one that is resumed goes on from the newest state.

    Without a record nothing is written, but the best scores are known all the same.
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
        raise AlchemyError(f"{folder}/ledger.jsonl cannot be written: {error.strerror or error}") from error
    run.record.on_removal(ledger.reopen)
    run.exits.callback(_close_ledger, run)
    checkpoints.parts, checkpoints.note = parts_of(run), run.record.note
    code = _Code(run)
    checkpoints.saver.before = _Journals(run, code).write_down
    checkpoints.named = NamedWeights(
        Path(folder), run.symbols.try_get_global("checkpt_dir"), _own_save(run, checkpoints.enabled)
    )
    run.exits.callback(checkpoints.close)
    if run.resume_from is not None:
        _take_up(run, checkpoints, ledger)
    code.note()


def _main_watch(run: Run, checkpoints: Checkpoints) -> Iterator[Watch]:
    """The main score of the task, if neither `[checkpoint]` nor a pipe says what is best and dev is evaluated."""
    if run.task.main_score and "dev" in run.task.splits and not (run.watches or checkpoints.watches):
        monitor = Monitor(f"dev/{run.task.main_score}", run.task.main_mode)
        yield Watch(monitor, keep=run.table("checkpoint").get("best", 1))


def _own_save(run: Run, has_states: bool) -> Callable[[Path], None] | None:
    """How `checkpt/NAME` is written where it cannot be links: by a project's own `save`, or without checkpoints."""
    if has_states and type(run.model).save is AlchemyModel.save:
        return None

    def save(path: Path) -> None:
        with run.average.applied():
            run.model.save(path)

    return save


def _close_ledger(run: Run) -> None:
    """What was seen last is written down, also by a run that fails; several processes may not be there any more."""
    if run.group.size == 1:
        run.ledger.flush()
    with contextlib.suppress(OSError):  # reported when the record is closed
        run.record.restore_folder()
    run.ledger.close()


def parts_of(run: Run) -> dict[str, Stateful]:
    """Everything that the next update depends on, by the names under which it is saved."""
    parts: dict[str, object] = {
        # first, since all processes take part in these: a part that fails after them leaves nobody waiting
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
        "task": _Several({f"{type(run.task).__name__}": run.task}),
        "outputpipes": _Several(_numbered(run.task.outputpipes)),
        "evalpipes": _Several(_numbered(run.task.evalpipes)),
        "plugins": _Several(_numbered(run.plugins or [])),
    }
    return {name: part for name, part in parts.items() if isinstance(part, Stateful)}


def _take_up(run: Run, checkpoints: Checkpoints, ledger: Ledger) -> None:
    """Loads the newest valid state, and marks what the record has of the time after it as void."""
    restored = checkpoints.restore()
    missing = run.group.broadcast(ledger.missing)
    if missing and "ledger" not in run.allowed:
        text = f"ledger.jsonl lacks {missing} rows that the state counts: the samples of these updates are unknown"
        raise Refused(text, hint="restore the file, or continue anyway with --allow ledger")
    if restored is None:
        logger.warning("there is no valid checkpoint in {}: the training begins again", checkpoints.state_dir)
    if run.group.is_main:
        update = restored["update"] if restored else 0
        lines = checkpoints.parts["rows"].kept
        if run.record.lines < lines:
            logger.warning("metrics.jsonl has {} of {} rows: the others are lost", run.record.lines, lines)
        run.record.resume(from_update=update, from_line=lines, seconds=run.elapsed if restored else 0.0)
        run.ledger.resume(run.record.generation, update)


class _Code:
    """The project files that the run has imported, each with its hash when it was first seen."""

    def __init__(self, run: Run) -> None:
        self.run, self.known = run, dict[str, str]()
        self._user_dir = str(run.symbols.try_get_global("user_dir") or "src")
        before = {} if run.resume_from is None else read_info(run.resume_from).get("code", {})
        self._files = {name: path for name in before if (path := find_file(name, self._user_dir)) is not None}

    def note(self) -> None:
        """Adds the files imported since the last call to the record."""
        files = self._files | imported_files(self._user_dir)
        known = len(self.known)
        for name, path in files.items():
            if name not in self.known:
                with contextlib.suppress(OSError):  # generated, and gone again
                    self.known[name] = hash_file(path)
        if len(self.known) > known:
            with contextlib.suppress(OSError):  # on a full disk, written with the next change of record.json
                self.run.record.note(code=self.known)


class _Journals:
    """What a state counts on, which must be on the disk before it."""

    def __init__(self, run: Run, code: _Code) -> None:
        self.run, self.code = run, code
        self._told: set[str] = set()

    def write_down(self, state: Collected) -> None:
        """Called ahead of a save, in its thread: a state must not know of rows that the disk does not have."""
        run = self.run
        run.record.restore_folder()
        for part, name, rows in (("rows", "metrics.jsonl", run.record), ("ledger", "ledger.jsonl", run.ledger)):
            if not rows.sync() and part in state.json:
                claimed, found = state.json[part]["lines"], _lines(Path(run.record_dir or "") / name)
                if found < claimed:  # else only rows are missing that came after the state
                    state.json[part]["lines"] = found
                    self._tell(name, rows.error or "the disk does not answer", claimed, found)
        self.code.note()

    def _tell(self, name: str, reason: str, claimed: int, found: int) -> None:
        """Once for each file: a training is worth more than its rows, so it is saved all the same."""
        if name not in self._told:
            self._told.add(name)
            text = "{} is not safe on the disk, {} of {} rows are there: {}; a resume from the state that is saved now "
            logger.warning(text + "counts only these", name, found, claimed, reason)


def _lines(path: Path) -> int:
    """The rows that a file has whole."""
    try:
        lines, cut = count_lines(path)
    except OSError:
        return 0
    return lines - cut


class _Rows:
    """How many lines of `metrics.jsonl` belong to the state, and what the next one has of the update before it."""

    def __init__(self, run: Run) -> None:
        self.run, self.kept = run, 0

    def state_dict(self) -> dict[str, Any]:
        return {"lines": self.run.record.lines, "grad_norm": getattr(self.run.optim, "grad_norm", None)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kept = state["lines"]
        if state["grad_norm"] is not None:
            self.run.optim.grad_norm = state["grad_norm"].to(self.run.device)


class _Settings:
    """The config that a state belongs to: one that ended for a reason of its config may go on with another config."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        cfg = without_secrets(self.run.cfg)
        ends = [cfg.get("stop"), cfg.get("sched"), (cfg.get("task") or {}).get("evalpipes")]
        return {"hash": hash_text(json.dumps(ends, sort_keys=True, default=str))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state != self.state_dict():
            self.run.stop_request.reason = self.run.rules.after_update(self.run) or None


class _Several:
    """Parts of which some have a state; each is known by its place and its class."""

    def __init__(self, parts: Mapping[str, object]) -> None:
        self.parts = {name: part for name, part in parts.items() if isinstance(part, Stateful)}

    def state_dict(self) -> dict[str, Any]:
        return {name: self._state_of(name, part) for name, part in self.parts.items()}

    def _state_of(self, name: str, part: Stateful) -> dict[str, Any]:
        try:
            return part.state_dict()
        except Exception as error:
            raise AlchemyError(f"state_dict() of {name} fails: {error!r}") from error

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self.parts.items():
            if name in state:
                part.load_state_dict(state[name])
            else:
                logger.warning("{} is new: it begins without a state", name)
        for name in state.keys() - self.parts.keys():
            logger.warning("{} is not there any more: its state is dropped", name)


# what is told of the training data, and the name by which another one is allowed
_KNOWN_BY = {
    "samples": "data",
    "contents": "data",
    "stream": "data",
    "num_workers": "num_workers",
    "ranks": "ranks",
    "window": "ranks",
}


class _Source:
    """What the order of the data depends on: a state that was saved with another one is refused, unless allowed."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        dataset, kwargs = self.run.task.dataset("train")
        stream, size = isinstance(dataset, IterableDataset), self.run.group.size
        # data with an index has the same order for any number of workers, and global batches for any of processes
        dealt = not stream and (bool(kwargs.get("per_device")) or kwargs.get("batch_size") is None)
        return {
            "samples": len(dataset) if not stream and isinstance(dataset, Sized) else None,
            "stream": stream,
            "contents": [digest[:12] for pipe in walk(dataset) if isinstance(digest := link_of(pipe).digest, str)],
            "num_workers": kwargs.get("num_workers", 0) if stream else None,
            "ranks": size if stream else None,
            "window": size * self.run.updater.period if dealt else None,  # batches of an update
            "batches": (self.run.train_sched.cur_step_this_epoch + 1) * size if dealt else None,  # of this epoch
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        today = self.state_dict()
        state = {"contents": [], **state}  # an older version does not know them
        for key, name in _KNOWN_BY.items():
            if state[key] != today[key] and name not in self.run.allowed:
                what = "batches in an update" if key == "window" else f"{key} ="
                raise Refused(
                    f"the training data had {what} {state[key]} and now has {today[key]}: it would not be the same run",
                    section="task.datasets.train",
                    hint=f"give it as it was, or go on all the same with --allow {name}",
                )
        if state["batches"] is not None and today["batches"] is not None and state["batches"] != today["batches"]:
            # steps are counted by each process for itself, and there is another number of them now
            sched, before = self.run.train_sched, today["batches"] // self.run.group.size
            sched.cur_step_this_epoch = state["batches"] // self.run.group.size - 1
            sched.cur_step += sched.cur_step_this_epoch + 1 - before


def _numbered(parts: Iterable[object]) -> dict[str, object]:
    return {f"{place}.{type(part).__name__}": part for place, part in enumerate(parts)}


def keep_bad_update(run: Run, error: Exception) -> None:
    """Writes down the state before an update that was not finite, with all that is needed to look at it again.

    The weights are untouched by it; the counters go back to the boundary, and the random numbers of a step are a
    function of its number, so that `alchemy replay` makes the very same update. No run goes on from here: what a module
    counts while it computes, as batch norm does, has seen the bad batch already.
    """
    sched, steps, ids = run.train_sched, len(run.progress.window), list(run.progress.window)
    sched.cur_step -= steps
    sched.cur_step_this_epoch -= steps
    late = run.updater.late  # it was the update before this one
    moved = run.updater.has_moved or late
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
        if not moved and not target.exists():  # else one of several optimizers is a step ahead
            write(target, state.files(), Manifest(*run.where, time=now(), kind="bad", why=["nonfinite"]))
    except OSError as trouble:
        logger.warning("what a replay of update {} needs could not be written: {}", update, trouble)
    error.add_note(f"look at it again with: alchemy replay {run.record_dir} --update {update}")
