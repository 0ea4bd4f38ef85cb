"""A run, everything it owns, and the way to reach it from anywhere."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from loguru import logger

from alchemy.absent import (
    Alone,
    CheckpointsLike,
    FullPrecision,
    MixedPrecision,
    NoAverage,
    NoCheckpoints,
    NoLedger,
    NoRules,
    NoUpdater,
    ProcessGroup,
    SampleLedger,
    StopRules,
    Updater,
    WeightAverage,
)
from alchemy.checkpoint.manifest import Where
from alchemy.config.load import prepare_cfg
from alchemy.config.seed import seed_of
from alchemy.config.tree import Document
from alchemy.errors import MissingKey, in_words
from alchemy.metrics.numbers import numbers_in
from alchemy.metrics.stack import Stack
from alchemy.records import NoRecord, RecordLike
from alchemy.symbols import SymbolTbl

if TYPE_CHECKING:
    from alchemy.checkpoint.policy import Watch

__all__ = ["Run", "SymbolTbl", "Where", "current_run", "new_scope", "sym_tbl"]


class Run(SymbolTbl):
    """One experiment while it happens. `with Run(cfg) as run:` makes it the current one and frees it in the end."""

    def __init__(self, cfg: Mapping[str, Any] | str | Path, device_info: dict[str, Any] | None = None) -> None:
        super().__init__()
        self.cfg: Document = cfg if isinstance(cfg, Document) else prepare_cfg(cfg)
        self.device_info = device_info
        self.pid = os.getpid()
        self.metrics = Stack()
        self.record: RecordLike = NoRecord()
        self._do_without()
        self.loggers: list[Callable[[Mapping[str, float], int], None]] = []  # of plugins and of the bar
        self.exits = contextlib.ExitStack()
        self.cfg.mark_read("seed", "log_every", "tag", "runner", "plugins", "variant", "base")
        self.seed: int = seed_of(self.cfg)
        self.log_every: int = int(self.cfg.peek("log_every", 10))
        self.max_batches = 0  # --fast-dev-run: batches of an epoch or an evaluation; 0 is all of them
        self.overfit = 0  # --overfit: how many batches training sees again and again; 0 is off
        self.stopping: str | None = None
        self.asked = 0  # the signal that this process was sent, until all processes know of it
        self._wish: str | None = None  # why this process is to stop, until all processes know of it
        self._agreed: float | None = None  # seconds at the last update, as the first process has them
        self.resume_from: Path | None = None  # the record that the run goes on with
        self.allowed: frozenset[str] = frozenset()  # changes that it may go on with though it is no longer the same run
        self._began = time.monotonic()
        self.signal: int | None = None  # the signal that asked it to stop
        self.in_loop = False  # a loop is running that looks at `stopping` after each step
        self.scores: dict[str, dict[str, Any]] = {}  # of the last evaluation of each split
        self.scored_at: dict[str, int] = {}  # the update it was made at
        self.watches: list[Watch] = []  # numbers that parts keep the best of, beside that of [checkpoint]
        self.stop_rules: list[dict[str, Any]] = []  # tables of rules that parts add to those of [stop]
        self.tracking_seconds = 0.0  # spent on telling numbers to the record and to loggers
        self.epoch_steps: int | None = None  # steps of an epoch, where the data can tell
        self.window: list[Any] = []  # sample ids of each step since the last update
        self.evaluated_samples: list[int] | None = None  # of the batch of an evaluation; None where nobody can tell
        self.eval_seconds = 0.0  # spent in evaluations, which are no part of a training step
        self._token: contextvars.Token[Run | None] | None = None
        self._failed_loggers: set[str] = set()

    def _do_without(self) -> None:
        # the runner puts others in the place of these, as the config and the command line ask for them
        self.group: ProcessGroup = Alone()
        self.checkpoints: CheckpointsLike = NoCheckpoints()
        self.ledger: SampleLedger = NoLedger()
        self.precision: MixedPrecision = FullPrecision()
        self.average: WeightAverage = NoAverage()
        self.rules: StopRules = NoRules()
        self.updater: Updater = NoUpdater()

    def __enter__(self) -> Run:
        self._token = _current.set(self)
        _live.append(self)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.exits.__exit__(kind, error, trace)
        finally:
            _live.remove(self)
            if self._token is not None:
                _current.reset(self._token)
            self.task = self.model = self.optim = self.train_sched = self.plugins = None
            self._do_without()
            self._globals, self._frames, self.loggers = {"record_dir": self.record_dir}, [], []

    @property
    def debug(self) -> bool:
        return bool(self.try_get_global("debug", False))

    @property
    def update(self) -> int:
        """How many optimiser updates have been made."""
        return self.train_sched.num_updates if self.train_sched is not None else 0

    @property
    def elapsed(self) -> float:
        """Seconds that the run has taken, those before a resume included; the same number in all processes."""
        return time.monotonic() - self._began if self._agreed is None else self._agreed

    @property
    def tokens(self) -> float:
        """Tokens seen in training: those that the model returns as `tokens`, else what its loss counts."""
        open_scopes = [scope.sums() for scope in self.metrics.open_scopes()]
        tokens = sum(sums["tokens"][0] for sums in open_scopes if "tokens" in sums)
        tokens = tokens or sum(sums["loss"][1] for sums in open_scopes if "loss" in sums)
        return float(self.group.sum([tokens])[0])

    def stop(self, reason: str) -> None:
        """Asks the loop to end at the next step boundary; the first reason given stands.

        Of several processes one may ask for it alone. They tell each other in the next update, or at the end of an
        evaluation or an epoch if that comes first, and all end there.
        """
        if self.group.size == 1:
            self.end(reason)
        elif self._wish is None and self.stopping is None:
            self._wish = reason

    def end(self, reason: str) -> None:
        """There is a reason to end, and all processes know it."""
        self.stopping = self.stopping or reason

    def end_for(self, number: int) -> None:
        """A signal has asked for the end, and all processes know it."""
        self.signal = number

    @property
    def ending(self) -> bool:
        """Whether the loop is to end at the next step boundary; a signal is no reason that a state would know of."""
        return self.signal is not None or self.stopping is not None

    @property
    def reason(self) -> str:
        """Why it ended before the schedule was through."""
        return self.stopping or "" if self.signal is None else f"signal {self.signal}: ended at the next step"

    def agree(self, numbers: Sequence[float] = ()) -> list[float]:
        """The sums over all processes, which on the way tell each other of signals, of wishes to stop and of the time.

        These come to them at different moments: whoever left alone would leave the others waiting.
        """
        if self.group.size == 1:
            return list(numbers)
        here = time.monotonic() - self._began if self.group.is_main else 0.0
        own = (self._wish is not None, self.asked > 0, self.asked, here)
        *sums, wishes, told, number, self._agreed = self.group.sum([*numbers, *map(float, own)])
        if told and self.signal is None:
            self.end_for(int(number / told) if not number % told else signal.SIGTERM)
        if wishes:
            self.listen()
        return sums

    def listen(self) -> None:
        """All processes are here, and tell each other whether one of them has asked for the end."""
        wishes = [wish for wish in self.group.gather(self._wish) if wish is not None]
        self._wish = None
        if wishes:
            self.end(wishes[0])

    def outcome(self, error: BaseException | None) -> tuple[str, str]:
        """How a run ends: a status of the record, and the reason."""
        if error is None:
            return ("stopped" if self.signal else "finished"), self.reason
        if isinstance(error, KeyboardInterrupt):
            return "stopped", str(error) or "KeyboardInterrupt"
        return "failed", in_words(error)

    def evaluated(self, split: str, scores: dict[str, Any]) -> None:
        """Logs and remembers the scores of an evaluation; schedules, stop rules and checkpoints get them."""
        self.scores.pop(split, None)
        self.scores[split], self.scored_at[split] = scores, self.update
        remarks: Mapping[str, str] = {}
        if self.train_sched is not None:
            self.train_sched.after_eval(scores)
            # before a step or an epoch: no boundary of an update comes before the weights change
            begins = self.train_sched.is_pending("begin_epoch") or self.train_sched.is_pending("begin_step")
            remarks = self.checkpoints.scored(split, scores, self.where, mid_window=self.mid_window or begins)
        shown = [f"{name} {value:.4g}{_in_brackets(remarks.get(name))}" for name, value in numbers_in(scores).items()]
        logger.info("{}: {}", split, ", ".join(shown) or "no scores")
        if self.train_sched is not None:
            self.rules.after_eval(self, split, scores)
            self.listen()  # to a pipe that has seen the scores

    @property
    def where(self) -> Where:
        """Where the training stands."""
        sched = self.train_sched
        return Where(self.update, sched.cur_epoch, sched.cur_step) if sched is not None else Where(0, 0, 0)

    @property
    def mid_window(self) -> bool:
        """Whether gradients wait for the rest of their update."""
        return bool(self.updater.is_open)

    # -- its own part of a checkpoint
    def state_dict(self) -> dict[str, Any]:
        numbers = {split: numbers_in(scores) for split, scores in self.scores.items()}
        scored_at = dict(self.scored_at)
        return {"elapsed": self.elapsed, "scores": numbers, "scored_at": scored_at, "stopping": self.stopping}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._began, self._agreed = time.monotonic() - state["elapsed"], None
        self.scores, self.scored_at = dict(state["scores"]), dict(state["scored_at"])
        self.stopping = state["stopping"]

    def log(self, values: Mapping[str, Any], update: int | None = None) -> None:
        """Hands numbers to the record and to everyone who listens; their trouble never reaches the loop."""
        sched, begin = self.train_sched, time.perf_counter()
        at = self.update if update is None else update
        numbers = {name: float(value) for name, value in values.items()}
        step, epoch = (sched.cur_step, sched.cur_epoch) if sched is not None else (0, 0)
        self.record.log(numbers, update=at, step=step, epoch=epoch)
        for tell in self.loggers:
            try:
                tell(numbers, at)
            except Exception as error:
                name = type(getattr(tell, "__self__", tell)).__name__
                if name not in self._failed_loggers:
                    self._failed_loggers.add(name)
                    logger.warning("{} cannot log, training goes on: {!r}", name, error)
        self.tracking_seconds += time.perf_counter() - begin

    def table(self, section: str) -> Any:
        """The config table of a section as it is, or an empty one; nobody gets a bare KeyError."""
        table = self.cfg.get(section)
        return table if isinstance(table, Mapping) else {}


def _in_brackets(remark: str | None) -> str:
    return f" ({remark})" if remark else ""


_current: contextvars.ContextVar[Run | None] = contextvars.ContextVar("alchemy_run", default=None)
_live: list[Run] = []
_idle = SymbolTbl()
_in_worker: dict[int, SymbolTbl] = {}


def current_run() -> Run:
    """The run that this code belongs to; an error outside any run."""
    table = sym_tbl()
    if not isinstance(table, Run):
        raise MissingKey("there is no run here", hint="open one with `with Run(cfg):`, or start it with alchemy.run")
    return table


def sym_tbl() -> SymbolTbl:
    """The symbols of the current run; in a bare thread those of the only live one; between runs an empty table."""
    run = _current.get()
    if run is None and len(_live) == 1:
        run = _live[0]
    if run is None:
        return _idle
    return run if run.pid == os.getpid() else _worker_table(run)


def _worker_table(run: Run) -> SymbolTbl:
    """What a forked loader worker sees: the globals, but no members, so that no model is held by it."""
    table = _in_worker.get(os.getpid())
    if table is None:
        table = _in_worker[os.getpid()] = SymbolTbl()
        table._globals = dict(run._globals)
    return table


def new_scope(function: Callable[..., Any] | None = None) -> Any:
    """A frame of local symbols, as `with new_scope():` or as a decorator, with or without brackets."""
    if function is None:
        return _scope()

    @functools.wraps(function)
    def scoped(*args: Any, **kwargs: Any) -> Any:
        with _scope():
            return function(*args, **kwargs)

    return scoped


@contextlib.contextmanager
def _scope() -> Iterator[SymbolTbl]:
    with sym_tbl().new_frame() as table:
        yield table
