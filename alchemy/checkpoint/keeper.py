"""Save, keep and remove the checkpoints of a run, and restore the latest valid one."""

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
from alchemy.checkpoint.links import NamedWeights, link, remove_others
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

OWN_PART = "checkpoints"  # the part name of the state of `Checkpoints` itself
TIME_CHECK_UPDATES = 16  # updates between time checks, which must be synchronized between processes
NO_WATCH = Watch(Monitor("dev/loss"), keep=0)  # used if no metric is monitored


class Checkpoints(Registrable):
    """Saves the complete state of `parts` in `state_dir`, as configured in `[checkpoint]`.

    The loop calls it at every update, epoch and evaluation. A failed save never stops the loop: it is logged, counted
    in `failed`, and retried at the next interval. `group`, `named`, `saver.before` and `note` can be set after
    construction; `note` is called with `best={metric, value, update}` whenever the best score changes.
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
        self.named = NamedWeights(self.state_dir.parent)
        self.note: Callable[..., None] = lambda **fields: None
        self.saver = Saver(asynchronous=asynchronous)
        self.every = Every(every)
        self._events = 0  # number of calls by the loop; the state changes only if this number changes
        self._saved: tuple[str, int] | None = None  # the last whole checkpoint, and `_events` at that time
        self._lost: set[str] = set()  # names of failed checkpoints; filled by the saver's thread
        self._valid: dict[str, str] | None = None  # the kind of each checkpoint on disk, oldest first
        self.unsaved = ""  # why the latest whole state could not be written, or an empty string
        self._warned: set[str] = set()

    def watch(self, watch: Watch) -> None:
        """Add a watch, or merge it if its metric is already monitored."""
        for known in self.watches:
            if known.monitor == watch.monitor:
                known.merge(watch)
                return
        self.watches.append(watch)

    @property
    def failed(self) -> int:
        """The number of checkpoints that could not be written."""
        return self.saver.failed

    @property
    def cost(self) -> Mapping[str, float]:
        """Seconds that the run was blocked, and CPU seconds of the saver threads."""
        return {"calling": self.saver.seconds, "writing": self.saver.writing}

    @property
    def _main(self) -> Watch:
        """The watch that `best`, manifests and the record refer to: the first watch that keeps checkpoints."""
        return next((watch for watch in self.watches if watch.keep), self.watches[0] if self.watches else NO_WATCH)

    # -- called by the loop
    def after_update(self, where: Where) -> None:
        """Save if the interval has elapsed or a best score is pending. Called after every update."""
        self._events += 1
        due = where.update >= self.every.next_update or self._is_late(where.update)
        if due or any(watch.due for watch in self.watches):
            self._save(where, ["every"] if due else [])

    def after_epoch(self, where: Where) -> None:
        """Save at the epoch interval. Called at the end of an epoch, after its evaluations."""
        self._events += 1
        self._save(where, ["every"] if self.every.is_due_at_epoch(where.epoch) else [])

    def after_evaluation(
        self, split: str, scores: Mapping[str, object], where: Where, mid_window: bool = False
    ) -> list[str]:
        """Rank the scores of an evaluation; return the names of the metrics whose score is the best so far.

        A checkpoint for a best score is saved at the next update or end of an epoch. With `mid_window` (within gradient
        accumulation), the weights will have changed by then, so only the weights are saved, immediately.
        """
        self._events += 1
        self._forget_lost()
        numbers, best = numbers_in(scores), []
        for watch in self.watches:
            if watch.monitor.split == split:
                watch.latest = score = Score(self._read(watch.monitor, numbers), where, numbers)
                if watch.leads(score.value):
                    best.append(watch.monitor.score)
                if self.group.broadcast(watch.admits(score.value) and self._save_custom(watch, score)):
                    self._mark_for_saving(watch, score)
        if mid_window and any(watch.due for watch in self.watches):
            self._save(where, [], kind=WEIGHTS)
        return best

    def save(self, where: Where, why: str) -> Path | None:
        """Save synchronously; return the folder, or None if the save failed or is disabled."""
        if why == "end" and not self.at_end:
            self._save(where, [])  # a best score may be pending
            self.saver.wait()
            return None
        self._save(where, [why], now=True)
        if self._saved is None or self._saved[0] in self._lost:
            return None
        return self.state_dir / self._saved[0]

    def close(self) -> None:
        """Wait for the current save and release the buffers."""
        self.saver.close()

    # -- the best
    @property
    def best(self) -> Best | None:
        """The best evaluation so far, by the monitored metric."""
        monitor, leader = self._main.monitor, self._main.leader
        return None if leader is None else Best(monitor.name, leader.value, leader.where, leader.numbers)

    def _read(self, monitor: Monitor, numbers: Mapping[str, float]) -> float:
        try:
            value = monitor.read(numbers)
        except AlchemyError as error:
            self._warn_once(f"cannot keep the best model: {error}")
            return math.nan
        if not math.isfinite(numbers.get("loss", 0.0)):
            self._warn_once(f"the {monitor.split} loss is not finite: this model cannot become the best one")
        return value

    def _save_custom(self, watch: Watch, score: Score) -> bool:
        """Save the best weights with the project's `save` function, if any; return False if writing fails."""
        save, leads = self.named.save, watch.leads(score.value)
        if save is None or not leads or not self.group.is_main:
            return True
        try:
            for name in watch.names:
                self.named.write(name, watch.monitor, score, save)
        except (RunFailed, OSError) as error:  # a full disk must not abort training
            logger.warning("could not save the best model, will retry with the next one: {}", error)
            return False
        return True

    def _mark_for_saving(self, watch: Watch, score: Score) -> None:
        """Schedule a checkpoint for one of the best scores, or just rank the score if no checkpoint is kept."""
        if self.enabled and watch.keep:
            watch.due = score
        else:
            watch.add(score)
            self._note_best()

    def _note_best(self) -> None:
        watch = self._main
        rows = [{"metric": watch.monitor.name, "value": row.value, "update": row.update} for row in watch.rows[:1]]
        with contextlib.suppress(OSError):  # a full disk must not abort training
            self.note(best=rows[0] if rows else None)

    # -- saving
    def _save(self, where: Where, whys: list[str], kind: str = WHOLE, now: bool = False) -> None:
        """Save one checkpoint for all given reasons and pending best scores, if any."""
        best = self._take_due(where.update)
        whys = [*whys, "best"] if best else whys
        if not whys or not self.enabled:
            return
        self._prepare()
        if kind == WHOLE and self.group.broadcast(self._is_saved()):
            self._add_reasons(whys)
            return
        name = free_name(self.state_dir, where.update)
        self._lost.discard(name)  # from an earlier attempt
        for watch, score in best:
            watch.add(score, name)
        if kind == WHOLE:
            self.every.restart(where.update)
            self._saved = (name, self._events)
        state = self._collect(name, kind)
        if state is not None and self.group.is_main:
            finish = functools.partial(self._finish, kind=kind)
            self.saver.save(self.state_dir / name, state, self._manifest(where, whys, kind), finish, now=now)

    def _take_due(self, update: int) -> list[tuple[Watch, Score]]:
        """Clear the pending best scores; return the scores whose weights have not changed since."""
        due = [(watch, watch.due) for watch in self.watches if watch.due is not None]
        for watch, score in due:
            watch.due = None
            if score.where.update != update:
                text = "the best weights (update {}) were not saved: they have changed since"
                logger.warning(text, score.where.update)
        return [(watch, score) for watch, score in due if score.where.update == update]

    def _prepare(self) -> None:
        """Before the next save, wait for the previous one and handle its failure, if any."""
        self.saver.wait_for_previous()
        self._forget_lost()
        if self._valid is None and self.group.is_main:
            leftovers = clear_leftovers(self.state_dir)
            if leftovers:
                logger.info("removed leftovers of an interrupted save: {}", ", ".join(leftovers))
            valid = [folder for folder in checkpoints(self.state_dir) if not verify(folder, contents=False)]
            self._valid = {folder.name: read_manifest(folder).kind for folder in valid}

    def _forget_lost(self) -> None:
        for watch in self.watches:
            watch.forget(self._lost)

    def _is_saved(self) -> bool:
        if self._saved is None or self._saved[1] != self._events or self._saved[0] in self._lost:
            return False
        return (self.state_dir / self._saved[0]).is_dir()

    def _collect(self, name: str, kind: str) -> Collected | None:
        """Collect the state of the parts; a part that raises an error counts as a failed save."""
        try:
            state = collect_state({**self.parts, OWN_PART: self}, only=WEIGHT_PARTS if kind == WEIGHTS else ())
        except Exception as error:
            self.saver.failed += 1
            self._fail(name, f"{type(error).__name__}: {error}", kind)
            return None
        if state.left_out:
            names = ", ".join(state.left_out)
            self._warn_once(f"checkpoints leave out values that are neither JSON nor tensors: {names}")
        return state

    def _manifest(self, where: Where, whys: list[str], kind: str) -> Manifest:
        watch, time = self._main, datetime.datetime.now().astimezone().isoformat(timespec="milliseconds")
        manifest, score = Manifest(*where, time=time, kind=kind, why=whys), watch.latest
        if score is not None and score.where.update == where.update and math.isfinite(score.value):
            manifest.metric, manifest.value, manifest.mode = watch.monitor.name, score.value, watch.monitor.mode
        return manifest

    def _add_reasons(self, whys: Sequence[str]) -> None:
        """Add reasons to the manifest of a checkpoint that already contains the current state."""
        if self._saved is None or not self.group.is_main:
            return
        folder = self.state_dir / self._saved[0]
        try:
            manifest = read_manifest(folder)
            manifest.why += [why for why in whys if why not in manifest.why]
            write_atomic(folder / MANIFEST, manifest.text())
            self._finish(folder, "", kind=WHOLE)
        except (OSError, ValueError) as error:
            logger.warning("could not add the reason {} to {}: {}", ", ".join(whys), folder.name, error)

    def _finish(self, folder: Path, error: str, *, kind: str) -> None:
        """Update links and remove old checkpoints after a save, in the thread that wrote it."""
        if error:
            self._fail(folder.name, error, kind)
            return
        self.unsaved = "" if kind == WHOLE else self.unsaved
        valid = {**(self._valid or {}), folder.name: kind}
        gone = [name for name in valid if not (self.state_dir / name).is_dir()]  # deleted by the user
        self._lost.update(gone)
        valid = {name: kind for name, kind in valid.items() if name not in gone}
        whole = [name for name, kind in valid.items() if kind == WHOLE][-self.last :]
        try:
            self._publish(whole[-1:], valid)
        except OSError as error:  # a full disk
            text = "{} is saved, but last and best could not be updated: {}; will retry after the next save"
            logger.warning(text, folder.name, error)
        wanted = {folder.name, *whole, *(row.name for watch in self.watches for row in watch.rows)}
        remove_others(self.state_dir, wanted)
        self._valid = {name: kind for name, kind in valid.items() if name in wanted}
        if any(watch.rows and watch.rows[0].name == folder.name for watch in self.watches):
            self._note_best()

    def _publish(self, last: Sequence[str], valid: Collection[str]) -> None:
        """Link the latest and the best checkpoints under their names, unless they are already linked."""
        for name, target in (("last", last), ("best", [row.name for row in self._main.rows[:1]])):
            if target and target[0] in valid:
                link(self.state_dir / target[0], name)
        sync_folder(self.state_dir)
        for watch in self.watches if self.named.save is None else ():
            best, score = watch.rows[:1], watch.leader
            # if a checkpoint was lost, the first row is older than the leader and is already linked
            if best and best[0].name in valid and score is not None and score.where.update == best[0].update:
                self.named.link(self.state_dir / best[0].name, watch.names, watch.monitor, score)

    def _fail(self, name: str, reason: str, kind: str) -> None:
        self._lost.add(name)
        self.unsaved = reason if kind == WHOLE else self.unsaved
        valid = f"{self.state_dir.name}/{list(self._valid)[-1]} is still valid" if self._valid else "no checkpoint yet"
        if any(row.name == name for watch in self.watches for row in watch.rows):
            valid += ", and the previous best is the best again"
        logger.warning(
            "could not write the checkpoint {}: {}; {}; will retry at the next interval ({} failed so far)",
            name,
            reason,
            valid,
            self.failed,
        )

    # -- resuming
    def restore(self) -> dict[str, Any] | None:
        """Load the latest valid, complete state into the parts, or return None. Log newer states that are invalid."""
        self._prepare()
        folder, skipped = self.group.broadcast(newest_valid(self.state_dir) if self.group.is_main else None)
        for message in skipped:
            logger.warning("{}", message)
        if folder is None:
            return None
        manifest = read_manifest(folder)
        restore({**self.parts, OWN_PART: self}, read(folder), f"{folder.parent.name}/{folder.name}")
        self.every.restart(manifest.update)
        self._note_best()  # anything after this state is superseded
        logger.info("resuming from {} (update {})", folder, manifest.update)
        return {"update": manifest.update, "folder": folder, "passed": skipped}

    def state_dict(self) -> dict[str, Any]:
        names = ", ".join(watch.monitor.name for watch in self.watches)  # informational
        best = {watch.key: [list(row) for row in watch.rows] for watch in self.watches}
        leaders = {watch.key: list(watch.leader) for watch in self.watches if watch.leader is not None}
        return {"monitor": names, "best": best, "leaders": leaders}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        leaders = state.get("leaders", {})  # not saved by older versions
        for watch in self.watches:  # ignore the best scores of other metrics
            watch.load(state["best"].get(watch.key, []), leaders.get(watch.key))

    def _is_late(self, update: int) -> bool:
        """Return whether the time interval has elapsed; all processes must agree, since all of them save."""
        late = time.monotonic() >= self.every.next_time
        if self.group.size == 1:
            return late
        return update % TIME_CHECK_UPDATES == 0 and bool(self.group.any(late))

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            logger.warning("{}", text)
