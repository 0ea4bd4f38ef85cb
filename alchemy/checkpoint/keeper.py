"""The checkpoints of a run: when one is made, which are kept, and how a run goes on from the newest."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from loguru import logger

from alchemy.checkpoint.async_saver import Saver
from alchemy.checkpoint.files import read
from alchemy.checkpoint.links import Named, link, remove_others
from alchemy.checkpoint.manifest import (
    MANIFEST,
    WEIGHTS,
    WHOLE,
    Best,
    Manifest,
    Where,
    checkpoints,
    clear_leftovers,
    free_name,
    newest_valid,
    read_manifest,
    verify,
)
from alchemy.checkpoint.monitor import Monitor
from alchemy.checkpoint.policy import Every, Score, Watch
from alchemy.checkpoint.run_state import WEIGHT_PARTS, Collected, collect_state, restore
from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.errors import AlchemyError, RunFailed
from alchemy.files import sync_folder, write_atomic
from alchemy.metrics.scalars import numbers_in
from alchemy.null_objects import SingleProcess
from alchemy.registry import Registrable

OWN = "checkpoints"  # the name of its own state among the parts
TOGETHER = 16  # updates after which several processes ask each other for the time
NOTHING = Watch(Monitor("dev/loss"), keep=0)  # where no number is watched


class Checkpoints(Registrable):
    """Saves the whole state of `parts` into `state_dir`, as the table `[checkpoint]` says.

    The loop calls it at every update, epoch and evaluation. A failing disk never stops the loop: the failure is logged
    and counted in `failed`, and the next save is made when it is due. `group`, `named`, `saver.before` and `note` may
    be set after it is made; the last is called with `best={metric, value, update}` whenever the best score changes.
    """

    def __init__(
        self,
        state_dir: str | Path,
        *,
        monitor: str = "",
        mode: Literal["max", "min"] = "max",
        best: NonNegativeInt = 1,
        last: PositiveInt = 1,
        every: PositiveInt | dict[str, float] = {"epochs": 1, "minutes": 30},
        at_end: bool = True,
        asynchronous: bool = True,
        enabled: bool = True,
    ) -> None:
        self.state_dir = Path(state_dir)
        self.last, self.at_end, self.enabled = last, at_end, enabled
        self.watches: list[Watch] = []
        if monitor != "":
            self.watch(Watch(Monitor(monitor, mode), keep=best))
        self.parts: dict[str, Any] = {}
        self.group: Any = SingleProcess()
        self.named = Named(self.state_dir.parent)
        self.note: Callable[..., None] = lambda **fields: None
        self.saver = Saver(asynchronous=asynchronous)
        self.every = Every(every)
        self._events = 0  # calls of the loop so far; nothing has changed while it stays the same
        self._saved: tuple[str, int] | None = None  # the last whole one, and the events until then
        self._lost: set[str] = set()  # names that could not be written; filled by the saver's thread
        self._valid: dict[str, str] | None = None  # the kind of each checkpoint on the disk, oldest first
        self.unsaved = ""  # why the newest whole state could not be written; empty if it was
        self._warned: set[str] = set()

    def watch(self, watch: Watch) -> None:
        """Keeps the best of one more number; one that is watched already is watched once."""
        for known in self.watches:
            if known.monitor == watch.monitor:
                known.join(watch)
                return
        self.watches.append(watch)

    @property
    def failed(self) -> int:
        """How many checkpoints could not be written."""
        return self.saver.failed

    @property
    def cost(self) -> Mapping[str, float]:
        """Seconds that the run has waited, and CPU seconds of the threads."""
        return {"calling": self.saver.seconds, "writing": self.saver.writing}

    @property
    def _main(self) -> Watch:
        """The number that `best`, manifests and the record are about: the first one that has checkpoints."""
        return next((watch for watch in self.watches if watch.keep), self.watches[0] if self.watches else NOTHING)

    # -- called by the loop
    def after_update(self, where: Where) -> None:
        """Called at every update, between two windows."""
        self._events += 1
        due = where.update >= self.every.next_update or self._is_late(where.update)
        if due or any(watch.due for watch in self.watches):
            self._save(where, ["every"] if due else [])

    def after_epoch(self, where: Where) -> None:
        """Called at the end of an epoch, after its evaluations."""
        self._events += 1
        self._save(where, ["every"] if self.every.is_due_at_epoch(where.epoch) else [])

    def scored(self, split: str, scores: Mapping[str, object], where: Where, mid_window: bool = False) -> list[str]:
        """Takes the scores of an evaluation; returns the names of those that are the best so far.

        A best one is saved whole at the next update or end of an epoch. `mid_window`: the weights will have changed by
        then, so only they are saved, at once.
        """
        self._events += 1
        self._settle()
        numbers, best = numbers_in(scores), []
        for watch in self.watches:
            if watch.monitor.split == split:
                watch.latest = score = Score(self._read(watch.monitor, numbers), where, numbers)
                if watch.leads(score.value):
                    best.append(watch.monitor.score)
                if self.group.broadcast(watch.admits(score.value) and self._save_own(watch, score)):
                    self._take(watch, score)
        if mid_window and any(watch.due for watch in self.watches):
            self._save(where, [], kind=WEIGHTS)
        return best

    def save(self, where: Where, why: str) -> Path | None:
        """Saves now, and returns when it is on the disk: the folder, or None when that failed or is not wanted."""
        if why == "end" and not self.at_end:
            self._save(where, [])  # a best one may be waiting
            self.saver.wait()
            return None
        self._save(where, [why], now=True)
        if self._saved is None or self._saved[0] in self._lost:
            return None
        return self.state_dir / self._saved[0]

    def close(self) -> None:
        """Waits for what is being written."""
        self.saver.close()

    # -- the best
    @property
    def best(self) -> Best | None:
        """The best evaluation so far, of the number that is monitored."""
        monitor, leader = self._main.monitor, self._main.leader
        return None if leader is None else Best(monitor.name, leader.value, leader.where, leader.numbers)

    def _read(self, monitor: Monitor, numbers: Mapping[str, float]) -> float:
        try:
            value = monitor.read(numbers)
        except AlchemyError as error:
            self._warn_once(f"no best model is kept: {error}")
            return math.nan
        if not math.isfinite(numbers.get("loss", 0.0)):
            self._warn_once(f"the loss of {monitor.split} is not finite: no such model is taken as the best one")
        return value

    def _save_own(self, watch: Watch, score: Score) -> bool:
        """Lets a project save the best weights in its own format; False when the disk does not take them."""
        save, leads = self.named.save, watch.leads(score.value)
        if save is None or not leads or not self.group.is_main:
            return True
        try:
            for name in watch.names:
                self.named.write(name, watch.monitor, score, save)
        except (RunFailed, OSError) as error:  # a full disk does not end a training
            logger.warning("the best model could not be saved, the next is tried again: {}", error)
            return False
        return True

    def _take(self, watch: Watch, score: Score) -> None:
        """One of the best: it waits for its checkpoint, unless none is kept of it."""
        if self.enabled and watch.keep:
            watch.due = score
        else:
            watch.add(score)
            self._note_best()

    def _note_best(self) -> None:
        watch = self._main
        rows = [{"metric": watch.monitor.name, "value": row.value, "update": row.update} for row in watch.rows[:1]]
        with contextlib.suppress(OSError):  # a full disk does not end training
            self.note(best=rows[0] if rows else None)

    # -- saving
    def _save(self, where: Where, whys: list[str], kind: str = WHOLE, now: bool = False) -> None:
        """One checkpoint for all reasons at once; none when there is no reason."""
        best = self._take_due(where.update)
        whys = [*whys, "best"] if best else whys
        if not whys or not self.enabled:
            return
        self._prepare()
        if kind == WHOLE and self.group.broadcast(self._is_saved()):
            self._add_reasons(whys)
            return
        name = free_name(self.state_dir, where.update)
        self._lost.discard(name)  # of an earlier try
        for watch, score in best:
            watch.add(score, name)
        if kind == WHOLE:
            self.every.begin(where.update)
            self._saved = (name, self._events)
        state = self._collect(name, kind)
        if state is not None and self.group.is_main:
            finish = functools.partial(self._finish, kind=kind)
            self.saver.save(self.state_dir / name, state, self._manifest(where, whys, kind), finish, now=now)

    def _take_due(self, update: int) -> list[tuple[Watch, Score]]:
        """The best scores that wait for their checkpoint; not those of weights that have changed since."""
        due = [(watch, watch.due) for watch in self.watches if watch.due is not None]
        for watch, score in due:
            watch.due = None
            if score.where.update != update:
                text = "the best weights, of update {}, were not saved: they have changed since"
                logger.warning(text, score.where.update)
        return [(watch, score) for watch, score in due if score.where.update == update]

    def _prepare(self) -> None:
        """One is written at a time, and whether it was is known before the next."""
        self.saver.wait_for_room()
        self._settle()
        if self._valid is None and self.group.is_main:
            leftovers = clear_leftovers(self.state_dir)
            if leftovers:
                logger.info("removed what an interrupted save left behind: {}", ", ".join(leftovers))
            valid = [folder for folder in checkpoints(self.state_dir) if not verify(folder, contents=False)]
            self._valid = {folder.name: read_manifest(folder).kind for folder in valid}

    def _settle(self) -> None:
        for watch in self.watches:
            watch.forget(self._lost)

    def _is_saved(self) -> bool:
        if self._saved is None or self._saved[1] != self._events or self._saved[0] in self._lost:
            return False
        return (self.state_dir / self._saved[0]).is_dir()

    def _collect(self, name: str, kind: str) -> Collected | None:
        """The state of the parts; a part that fails to give its own is logged as any other failure."""
        try:
            state = collect_state({**self.parts, OWN: self}, only=WEIGHT_PARTS if kind == WEIGHTS else ())
        except Exception as error:
            self.saver.failed += 1
            self._fail(name, f"{type(error).__name__}: {error}", kind)
            return None
        if state.left_out:
            names = ", ".join(state.left_out)
            self._warn_once(f"checkpoints leave out what is neither a JSON value nor a tensor: {names}")
        return state

    def _manifest(self, where: Where, whys: list[str], kind: str) -> Manifest:
        watch, time = self._main, datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
        manifest, score = Manifest(*where, time=time, kind=kind, why=whys), watch.latest
        if score is not None and score.where.update == where.update and math.isfinite(score.value):
            manifest.metric, manifest.value, manifest.mode = watch.monitor.name, score.value, watch.monitor.mode
        return manifest

    def _add_reasons(self, whys: Sequence[str]) -> None:
        """The state on the disk is the one that is wanted; only why it is there is new."""
        if self._saved is None or not self.group.is_main:
            return
        folder = self.state_dir / self._saved[0]
        try:
            manifest = read_manifest(folder)
            manifest.why += [why for why in whys if why not in manifest.why]
            write_atomic(folder / MANIFEST, manifest.text())
            self._finish(folder, "", kind=WHOLE)
        except (OSError, ValueError) as error:
            logger.warning("the reason {} could not be added to {}: {}", ", ".join(whys), folder.name, error)

    def _finish(self, folder: Path, error: str, *, kind: str) -> None:
        """Links and removals after a save, in the thread that wrote it; no score is ranked meanwhile."""
        if error:
            self._fail(folder.name, error, kind)
            return
        self.unsaved = "" if kind == WHOLE else self.unsaved
        valid = {**(self._valid or {}), folder.name: kind}
        gone = [name for name in valid if not (self.state_dir / name).is_dir()]  # deleted from outside
        self._lost.update(gone)
        valid = {name: kind for name, kind in valid.items() if name not in gone}
        whole = [name for name, kind in valid.items() if kind == WHOLE][-self.last :]
        try:
            self._publish(whole[-1:], valid)
        except OSError as error:  # a full disk
            text = "{} is saved, but last and best could not be updated: {}; retried after the next save"
            logger.warning(text, folder.name, error)
        wanted = {folder.name, *whole, *(row.name for watch in self.watches for row in watch.rows)}
        remove_others(self.state_dir, wanted)
        self._valid = {name: kind for name, kind in valid.items() if name in wanted}
        if any(watch.rows and watch.rows[0].name == folder.name for watch in self.watches):
            self._note_best()

    def _publish(self, last: Sequence[str], valid: Collection[str]) -> None:
        """Links the newest and the best checkpoints under their names, unless they already are."""
        for name, target in (("last", last), ("best", [row.name for row in self._main.rows[:1]])):
            if target and target[0] in valid:
                link(self.state_dir / target[0], name)
        sync_folder(self.state_dir)
        for watch in self.watches if self.named.save is None else ():
            best, score = watch.rows[:1], watch.leader
            # after a lost checkpoint the first one is older than the leader, and has its name already
            if best and best[0].name in valid and score is not None and score.where.update == best[0].update:
                self.named.link(self.state_dir / best[0].name, watch.names, watch.monitor, score)

    def _fail(self, name: str, reason: str, kind: str) -> None:
        self._lost.add(name)
        self.unsaved = reason if kind == WHOLE else self.unsaved
        stands = f"{self.state_dir.name}/{list(self._valid)[-1]} is still valid" if self._valid else "there is none yet"
        if any(row.name == name for watch in self.watches for row in watch.rows):
            stands += ", and the previous best is the best again"
        logger.warning(
            "the checkpoint {} could not be written: {}; {}; the next is tried when it is due ({} failed so far)",
            name,
            reason,
            stands,
            self.failed,
        )

    # -- going on
    def restore(self) -> dict[str, Any] | None:
        """Loads the newest valid whole state into the parts; None when there is none. Newer, broken ones are logged."""
        self._prepare()
        folder, passed = self.group.broadcast(newest_valid(self.state_dir) if self.group.is_main else None)
        for sentence in passed:
            logger.warning("{}", sentence)
        if folder is None:
            return None
        manifest = read_manifest(folder)
        restore({**self.parts, OWN: self}, read(folder), f"{folder.parent.name}/{folder.name}")
        self.every.begin(manifest.update)
        self._note_best()  # of the time after this state nothing counts any more
        logger.info("going on from {} (update {})", folder, manifest.update)
        return {"update": manifest.update, "folder": folder, "passed": passed}

    def state_dict(self) -> dict[str, Any]:
        names = ", ".join(watch.monitor.name for watch in self.watches)  # for whoever looks into the state
        best = {watch.key: [list(row) for row in watch.rows] for watch in self.watches}
        leaders = {watch.key: list(watch.leader) for watch in self.watches if watch.leader is not None}
        return {"monitor": names, "best": best, "leaders": leaders}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        leaders = state.get("leaders", {})  # an older version does not keep them
        for watch in self.watches:  # the best of another number says nothing
            watch.load(state["best"].get(watch.key, []), leaders.get(watch.key))

    def _is_late(self, update: int) -> bool:
        """Whether the minutes are over; several processes must agree, since all of them save."""
        late = time.monotonic() >= self.every.next_time
        if self.group.size == 1:
            return late
        return update % TOGETHER == 0 and bool(self.group.any(late))

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("{}", text)
