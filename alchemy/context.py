"""A run, everything it owns, and the way to reach it from anywhere."""

from __future__ import annotations

import contextlib
import contextvars
import functools
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from loguru import logger

from alchemy.checkpoint.manifest import Best, Where
from alchemy.config.load import prepare_cfg
from alchemy.config.secrets import hide, missing_secrets, remember
from alchemy.config.seed import seed_of
from alchemy.config.tree import Document
from alchemy.errors import ConfigError, MissingKey, in_words
from alchemy.metrics.metric_stack import Stack
from alchemy.metrics.scalars import numbers_in, show_epoch, show_scores
from alchemy.null_objects import (
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
    SingleProcess,
    StopRules,
    Updater,
    WeightAverage,
)
from alchemy.records import NoRecord, RecordLike
from alchemy.symbol_table import Members, SymbolTbl

if TYPE_CHECKING:
    from alchemy.checkpoint.policy import Watch

__all__ = ["Run", "SymbolTbl", "Where", "current_run", "find_run", "new_scope", "sym_tbl"]


@dataclass
class Limits:
    """Bounds that the command line sets; 0 is none."""

    max_batches: int = 0  # --fast-dev-run: batches of an epoch or an evaluation
    overfit: int = 0  # --overfit: how many batches training sees again and again


@dataclass
class StopRequest:
    """Who has asked the loop to end; what one process alone was asked for waits until all of them know it."""

    reason: str | None = None  # known to all processes; the first one given stands
    signal: int | None = None  # known to all processes
    own_reason: str | None = None  # of this process alone
    own_signal: int = 0  # of this process alone

    @property
    def is_made(self) -> bool:
        """Whether the loop is to end at the next step boundary; a signal is no reason that a state would know of."""
        return self.signal is not None or self.reason is not None

    @property
    def text(self) -> str:
        """Why a run ended before its schedule did."""
        return self.reason or "" if self.signal is None else f"signal {self.signal}: ended at the next step"


@dataclass
class Progress:
    """What a training has seen, scored and spent."""

    scores: dict[str, dict[str, Any]] = field(default_factory=dict)  # of the last evaluation of each split
    scored_at: dict[str, int] = field(default_factory=dict)  # the update it was made at
    epoch_steps: int | None = None  # steps of an epoch, where the data has a length
    window: list[Any] = field(default_factory=list)  # sample ids of each step since the last update
    evaluated_samples: list[int] | None = None  # of the batch of an evaluation; None where they are unknown
    eval_seconds: float = 0.0  # spent in evaluations, which are no part of a training step
    tracking_seconds: float = 0.0  # spent on handing numbers to the record and to loggers
    best: Best | None = None  # of the number that is monitored; known when the run has ended
    epoch: str = ""  # of the best evaluation, or else the last, as people count: "7/12"


class Run(Members):
    """One experiment while it happens. `with Run(cfg) as run:` makes it the current one and frees it in the end."""

    cfg: Document

    def __init__(self, cfg: Mapping[str, Any] | str | Path, device_info: dict[str, Any] | None = None) -> None:
        ready = isinstance(cfg, Document) and cfg.vetted
        super().__init__(cfg=cfg if ready else prepare_cfg(cfg), device_info=device_info)
        remember(self.cfg.secrets)  # this process may not be the one that loaded it
        if missing := missing_secrets(self.cfg):
            raise ConfigError(missing)
        self.symbols = SymbolTbl(self)
        self.pid = os.getpid()
        self.metrics = Stack()
        self.record: RecordLike = NoRecord()
        self._do_without()
        self.loggers: list[Callable[[Mapping[str, float], int], None]] = []  # of plugins and of the bar
        self.exits = contextlib.ExitStack()
        self.default_log = contextlib.ExitStack()  # the console of a run until BasicSetup closes it for its own
        self.exits.callback(self.default_log.close)
        self.seed: int = seed_of(self.cfg)
        self.log_every: int = int(self.cfg.get("log_every", 10))
        self.limits, self.stop_request, self.progress = Limits(), StopRequest(), Progress()
        self._agreed: float | None = None  # seconds at the last update, as the first process has them
        self.resume_from: Path | None = None  # the record that the run goes on with
        self.allowed: frozenset[str] = frozenset()  # changes that it may go on with though it is no longer the same run
        self.failure: BaseException | None = None  # the one that the log has told
        self._began = time.monotonic()
        self.in_loop = False  # a loop is running that looks at the stop request after each step
        self.watches: list[Watch] = []  # numbers that parts keep the best of, beside that of [checkpoint]
        self.stop_rules: list[dict[str, Any]] = []  # tables of rules that parts add to those of [stop]
        self._token: contextvars.Token[Run | None] | None = None
        self._warned: set[tuple[str, str]] = set()

    def _do_without(self) -> None:
        # the runner puts others in the place of these, as the config and the command line ask for them
        self.group: ProcessGroup = SingleProcess()
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
        self._note_best()
        try:
            self.exits.__exit__(kind, error, trace)
        finally:
            _live.remove(self)
            if self._token is not None:
                _current.reset(self._token)
            self.task = self.model = self.optim = self.train_sched = self.plugins = None
            self._do_without()
            self.symbols.clear()
            self.loggers = []

    def _note_best(self) -> None:
        """Keeps what the result of the run tells after its parts are gone."""
        best, sched = self.checkpoints.best, self.train_sched
        if sched is not None:
            epoch = sched.cur_epoch if best is None else best.where.epoch
            self.progress.best, self.progress.epoch = best, show_epoch(epoch, sched.epochs)

    @property
    def record_dir(self) -> Path | None:
        """The record folder, where there is one."""
        return self.symbols.record_dir

    @record_dir.setter
    def record_dir(self, folder: Path | None) -> None:
        self.symbols.record_dir = folder

    @property
    def debug(self) -> bool:
        return bool(self.symbols.try_get_global("debug", False))

    @property
    def update(self) -> int:
        """How many optimizer updates have been made."""
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
            self.stop_together(reason)
        elif self.stop_request.own_reason is None and self.stop_request.reason is None:
            self.stop_request.own_reason = reason

    def ask_to_end(self, number: int) -> bool:
        """Passes a signal on to the loop, which ends at the next step; False where no loop would look at it."""
        if self.in_loop and self.group.size > 1:
            self.stop_request.own_signal = number  # the others hear of it in the next update, and end with it
        elif self.in_loop:
            self.stop_request.signal = number
        return self.in_loop

    def stop_together(self, reason: str) -> None:
        """Asks the loop to end for a reason that all processes know."""
        self.stop_request.reason = self.stop_request.reason or reason

    def agree(self, numbers: Sequence[float] = ()) -> list[float]:
        """The sums over all processes, which on the way tell each other of signals, of wishes to stop and of the time.

        These come to them at different moments: whoever left alone would leave the others waiting.
        """
        if self.group.size == 1:
            return list(numbers)
        here = time.monotonic() - self._began if self.group.is_main else 0.0
        request = self.stop_request
        own = (request.own_reason is not None, request.own_signal > 0, request.own_signal, here)
        *sums, wishes, told, number, self._agreed = self.group.sum([*numbers, *map(float, own)])
        if told and request.signal is None:
            request.signal = int(number / told) if not number % told else signal.SIGTERM
        if wishes:
            self.listen()
        return sums

    def listen(self) -> None:
        """All processes are here, and tell each other whether one of them has asked for the end."""
        reasons = [reason for reason in self.group.gather(self.stop_request.own_reason) if reason is not None]
        self.stop_request.own_reason = None
        if reasons:
            self.stop_together(reasons[0])

    def outcome(self, error: BaseException | None) -> tuple[str, str]:
        """How a run ends: a status of the record, and the reason."""
        if error is None:
            return ("stopped" if self.stop_request.signal else "finished"), self.stop_request.text
        if isinstance(error, KeyboardInterrupt):
            return "stopped", str(error) or "KeyboardInterrupt"
        return "failed", hide(in_words(error))

    def evaluated(self, split: str, scores: dict[str, Any]) -> None:
        """Logs and remembers the scores of an evaluation; schedules, stop rules and checkpoints get them."""
        self.progress.scores.pop(split, None)
        self.progress.scores[split], self.progress.scored_at[split] = scores, self.update
        best: Sequence[str] = ()
        if self.train_sched is not None:
            self.train_sched.after_eval(scores)
            # before a step or an epoch: no boundary of an update comes before the weights change
            begins = self.train_sched.is_pending("begin_epoch") or self.train_sched.is_pending("begin_step")
            best = self.checkpoints.after_evaluation(split, scores, self.where, mid_window=self.mid_window or begins)
        shown = show_scores(numbers_in(scores), best) or "no scores"
        logger.info("{}", "  ".join(part for part in (self.moment, f"{split}: {shown}") if part))
        if self.train_sched is not None:
            self.rules.after_eval(self, split, scores)
            self.listen()  # to a pipe that has seen the scores

    @property
    def where(self) -> Where:
        """Where the training stands."""
        sched = self.train_sched
        return Where(self.update, sched.cur_epoch, sched.cur_step) if sched is not None else Where(0, 0, 0)

    @property
    def epoch_name(self) -> str:
        """`epoch 3/12`, as people count; where the number of epochs is not set, `epoch 3`."""
        return f"epoch {show_epoch(self.train_sched.cur_epoch, self.train_sched.epochs)}"

    @property
    def moment(self) -> str:
        """When an evaluation is made: `epoch 3/12`, within an epoch with the update; nothing outside training."""
        sched = self.train_sched
        if sched is None:
            return ""
        if sched.cur_step < 0:
            return "start"
        within = sched.is_pending("begin_step") or sched.is_pending("end_step")
        return f"{self.epoch_name}, update {self.update}" if within else str(self.epoch_name)

    @property
    def mid_window(self) -> bool:
        """Whether gradients wait for the rest of their update."""
        return bool(self.updater.is_open)

    # -- its own part of a checkpoint
    def state_dict(self) -> dict[str, Any]:
        progress = self.progress
        return {
            "elapsed": self.elapsed,
            "scores": {split: numbers_in(scores) for split, scores in progress.scores.items()},
            "scored_at": dict(progress.scored_at),
            "stopping": self.stop_request.reason,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._began, self._agreed = time.monotonic() - state["elapsed"], None
        self.progress.scores, self.progress.scored_at = dict(state["scores"]), dict(state["scored_at"])
        self.stop_request.reason = state["stopping"]

    def log(self, values: Mapping[str, Any], update: int | None = None) -> None:
        """Hands numbers to the record and to everyone who listens; their trouble never reaches the loop."""
        sched, begin = self.train_sched, time.perf_counter()
        at = self.update if update is None else update
        try:
            numbers = {name: float(value) for name, value in values.items()}
        except OverflowError:
            numbers = numbers_in(values)  # raises, and names the one that is too large
        step, epoch = (sched.cur_step, sched.cur_epoch) if sched is not None else (0, 0)
        self.record.log(numbers, update=at, step=step, epoch=epoch)
        for tell in self.loggers:
            try:
                tell(numbers, at)
            except Exception as error:
                name = type(getattr(tell, "__self__", tell)).__name__
                self.warn_once("{} cannot log, training goes on: {!r}", name, error)
        self.progress.tracking_seconds += time.perf_counter() - begin

    def warn_once(self, text: str, name: str, error: Exception) -> None:
        """Logs a warning about `name`, once in a run."""
        if (text, name) not in self._warned:
            self._warned.add((text, name))
            logger.warning(text, name, error)

    def table(self, section: str) -> Any:
        """The config table of a section as it is, or an empty one; nobody gets a bare KeyError."""
        table = self.cfg.get(section)
        return table if isinstance(table, Mapping) else {}


_current: contextvars.ContextVar[Run | None] = contextvars.ContextVar("alchemy_run", default=None)
_live: list[Run] = []
_idle = SymbolTbl()
_in_worker: dict[int, SymbolTbl] = {}


def _around() -> Run | None:
    """The run around this code, perhaps of the process that forked this one; in a bare thread the only live one."""
    run = _current.get()
    return _live[0] if run is None and len(_live) == 1 else run


def find_run() -> Run | None:
    """The run that this code belongs to; a loader's worker belongs to none."""
    run = _around()
    return run if run is not None and run.pid == os.getpid() else None


def current_run() -> Run:
    """The run that this code belongs to; raises outside any run."""
    run = find_run()
    if run is None:
        raise MissingKey("there is no run here", hint="open one with `with Run(cfg):`, or start it with alchemy.run")
    return run


def sym_tbl() -> SymbolTbl:
    """The symbols of the current run; in a bare thread those of the only live one; between runs an empty table."""
    run = _around()
    if run is None:
        return _idle
    return run.symbols if run.pid == os.getpid() else _worker_table(run)


def _worker_table(run: Run) -> SymbolTbl:
    """What a forked loader worker sees: the globals, but no members, so that no model is held by it."""
    table = _in_worker.get(os.getpid())
    if table is None:
        table = _in_worker[os.getpid()] = SymbolTbl(symbols=dict(run.symbols.globals))
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
