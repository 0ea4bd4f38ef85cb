"""The checkpoints of a run: when one is made, which are kept, and how a run goes on from the newest."""

from __future__ import annotations

import contextlib
import datetime
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from loguru import logger

from alchemy.absent import Alone
from alchemy.checkpoint.files import read
from alchemy.checkpoint.links import link, remove_others
from alchemy.checkpoint.manifest import (
    MANIFEST,
    WEIGHTS,
    WHOLE,
    Manifest,
    Where,
    checkpoints,
    clear_leftovers,
    free_name,
    newest_valid,
    read_manifest,
    verify,
)
from alchemy.checkpoint.parts import WEIGHT_PARTS, Collected, collect, restore
from alchemy.checkpoint.policy import SECTION, Every, Rank, Ranks, check_monitor
from alchemy.checkpoint.saver import Saver
from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.errors import did_you_mean
from alchemy.files import write_atomic
from alchemy.registry import Registrable

OWN = "checkpoints"  # the name of its own state among the parts
TOGETHER = 16  # updates after which several processes ask each other for the time


class Checkpoints(Registrable):
    """Saves the whole state of `parts` into `state_dir`, as the table `[checkpoint]` says.

    The loop tells it of every update, epoch and score. A failing disk never stops the loop: it is told, counted in
    `failed`, and tried again when the next one is due. `group`, `saver.before` and `tell_best` may be set after it is
    made; the last is called with `best={metric, value, update}` whenever that is another one.
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
        check_monitor(monitor)
        self.state_dir = Path(state_dir)
        self.monitor, self.last, self.at_end, self.enabled = monitor, last, at_end, enabled
        self.parts: dict[str, Any] = {}
        self.group: Any = Alone()
        self.tell_best: Callable[..., None] = lambda **fields: None
        self.saver = Saver(asynchronous=asynchronous)
        self.every = Every(every)
        self.ranks = Ranks(best, mode)
        self._collecting_failed = 0
        self._events = 0  # what the loop told so far; nothing has changed while it stays the same
        self._saved: tuple[str, int] | None = None  # the last whole one, and the events until then
        self._candidate: tuple[int, float] | None = None  # update and score that are to be saved as the best
        self._score: tuple[int, float] | None = None
        self._lost: set[str] = set()  # names that could not be written; filled by the saver's thread
        self._told: set[str] = set()
        self._is_clear = False

    @property
    def failed(self) -> int:
        """How many checkpoints could not be written."""
        return self.saver.failed + self._collecting_failed

    # -- what the loop tells
    def after_update(self, where: Where) -> None:
        """Called at every update, between two windows."""
        self._events += 1
        due = where.update >= self.every.next_update or self._is_late(where.update)
        if due or self._candidate is not None:
            self._save(where, ["every"] if due else [])

    def after_epoch(self, where: Where) -> None:
        """Called when an epoch is through, its evaluations too."""
        self._events += 1
        self._save(where, ["every"] if self.every.is_due_at_epoch(where.epoch) else [])

    def scored(self, split: str, scores: Mapping[str, Any], where: Where, mid_window: bool = False) -> None:
        """An evaluation gave `scores`. A best one is saved whole at the next update or epoch that the loop tells of.

        `mid_window`: the weights will have changed by then, so only they are saved, at once.
        """
        self._events += 1
        watched, _, name = self.monitor.partition("/")
        if not self.monitor or split != watched:
            return
        if name not in scores:
            hint = did_you_mean(name, scores) or f"there are {', '.join(map(str, scores)) or 'none'}"
            self._tell_once(f"[{SECTION}] monitor = {self.monitor!r} is not among the scores of {split}: {hint}")
            return
        value = float(scores[name])
        self._score = (where.update, value)
        self._settle()
        if self.group.broadcast(self.ranks.admits(value)):
            self._candidate = (where.update, value)
            if mid_window:
                self._save(where, [], kind=WEIGHTS)

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

    # -- saving
    def _save(self, where: Where, whys: list[str], kind: str = WHOLE, now: bool = False) -> None:
        """One checkpoint for all reasons at once; none when there is no reason."""
        candidate, self._candidate = self._candidate, None
        if candidate is not None and candidate[0] != where.update:
            logger.warning("the best weights, of update {}, were not saved: they have changed since", candidate[0])
            candidate = None
        if candidate is not None:
            whys = [*whys, "best"]
        if not whys or not self.enabled:
            return
        self._prepare()
        if kind == WHOLE and self.group.broadcast(self._is_saved()):
            self._add_reasons(whys)
            return
        name = free_name(self.state_dir, where.update)
        self._lost.discard(name)  # of an earlier try
        if candidate is not None:
            self.ranks.add(Rank(candidate[1], where.update, name))
            if self.ranks.rows[0].name == name:
                self._tell_best()
        if kind == WHOLE:
            self.every.begin(where.update)
            self._saved = (name, self._events)
        state = self._collect(name, kind)
        if state is not None and self.group.is_main:
            finish = functools.partial(self._finish, best=[rank.name for rank in self.ranks.rows])
            self.saver.save(self.state_dir / name, state, self._manifest(where, whys, kind), finish, now=now)

    def _prepare(self) -> None:
        """One is written at a time, and what became of it is known before the next."""
        self.saver.wait_for_room()
        self._settle()
        if not self._is_clear and self.group.is_main:
            self._is_clear = True
            leftovers = clear_leftovers(self.state_dir)
            if leftovers:
                logger.info("removed what an interrupted save left behind: {}", ", ".join(leftovers))

    def _settle(self) -> None:
        if self._lost:
            self.ranks.forget(self._lost)

    def _is_saved(self) -> bool:
        return self._saved is not None and self._saved[1] == self._events and self._saved[0] not in self._lost

    def _collect(self, name: str, kind: str) -> Collected | None:
        """The state of the parts; a part that cannot give its own is told as any other failure."""
        try:
            state = collect({**self.parts, OWN: self}, only=WEIGHT_PARTS if kind == WEIGHTS else ())
        except Exception as error:
            self._collecting_failed += 1
            self._fail(name, f"{type(error).__name__}: {error}")
            return None
        if state.left_out:
            names = ", ".join(state.left_out)
            self._tell_once(f"checkpoints leave out what is neither a JSON value nor a tensor: {names}")
        return state

    def _manifest(self, where: Where, whys: list[str], kind: str) -> Manifest:
        update, score = self._score or (-1, math.nan)
        known = update == where.update and math.isfinite(score)
        return Manifest(
            *where,
            time=datetime.datetime.now().astimezone().isoformat(timespec="milliseconds"),
            kind=kind,
            why=whys,
            metric=self.monitor if known else "",
            value=score if known else None,
            mode=self.ranks.mode if known else "",
        )

    def _add_reasons(self, whys: Sequence[str]) -> None:
        """The state on the disk is the one that is wanted; only why it is there is new."""
        if self._saved is None or not self.group.is_main:
            return
        folder = self.state_dir / self._saved[0]
        try:
            manifest = read_manifest(folder)
            manifest.why += [why for why in whys if why not in manifest.why]
            write_atomic(folder / MANIFEST, manifest.text())
            self._finish(folder, "", best=[rank.name for rank in self.ranks.rows])
        except (OSError, ValueError) as error:
            logger.warning("the reason {} could not be added to {}: {}", ", ".join(whys), folder.name, error)

    def _finish(self, folder: Path, error: str, *, best: Sequence[str]) -> None:
        """Links and removals after a save, in the thread that wrote it."""
        if error:
            self._fail(folder.name, error)
            return
        valid = {path.name: path for path in checkpoints(self.state_dir) if not verify(path, contents=False)}
        whole = [name for name, path in valid.items() if read_manifest(path).kind == WHOLE][-self.last :]
        kept = [name for name in best if name in valid]
        for name, names in (("last", whole[-1:]), ("best", kept[:1])):
            for target in names:
                link(valid[target], name)
        remove_others(self.state_dir, {*whole, *kept, folder.name})

    def _fail(self, name: str, reason: str) -> None:
        self._lost.add(name)
        standing = [path.name for path in checkpoints(self.state_dir) if not verify(path, contents=False)]
        stands = f"{self.state_dir.name}/{standing[-1]} still stands" if standing else "there is none yet"
        logger.warning(
            "the checkpoint {} could not be written: {}; {}; the next is tried when it is due ({} failed so far)",
            name,
            reason,
            stands,
            self.failed,
        )

    # -- going on
    def restore(self) -> dict[str, Any] | None:
        """Loads the newest valid whole state into the parts; None when there is none. Newer, broken ones are told."""
        self._prepare()
        folder, passed = self.group.broadcast(newest_valid(self.state_dir) if self.group.is_main else None)
        for sentence in passed:
            logger.warning("{}", sentence)
        if folder is None:
            return None
        manifest = read_manifest(folder)
        restore({**self.parts, OWN: self}, read(folder), f"{folder.parent.name}/{folder.name}")
        self.every.begin(manifest.update)
        if self.monitor:
            self._tell_best()  # of the time after this state nothing counts any more
        logger.info("going on from {} (update {})", folder, manifest.update)
        return {"update": manifest.update, "folder": folder, "passed": passed}

    def state_dict(self) -> dict[str, Any]:
        return {"monitor": self.monitor, "best": [list(rank) for rank in self.ranks.rows]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state["monitor"] == self.monitor:  # the best of another metric says nothing
            self.ranks.load(state["best"])

    def _is_late(self, update: int) -> bool:
        """Whether the minutes are over; several processes must agree, since all of them save."""
        late = time.monotonic() >= self.every.next_time
        if self.group.size == 1:
            return late
        return update % TOGETHER == 0 and bool(self.group.any(late))

    def _tell_best(self) -> None:
        rows = [{"metric": self.monitor, "value": row.value, "update": row.update} for row in self.ranks.rows[:1]]
        with contextlib.suppress(OSError):  # a full disk does not end training
            self.tell_best(best=rows[0] if rows else None)

    def _tell_once(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            logger.warning("{}", text)
