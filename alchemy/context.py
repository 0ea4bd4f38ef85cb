"""The current run, the objects it owns, and functions that return it from anywhere."""

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

from alchemy.checkpoint.manifest import Where
from alchemy.config.load import prepare_cfg
from alchemy.config.secrets import hide, missing_secrets, remember
from alchemy.config.seed import seed_of
from alchemy.config.tree import Document
from alchemy.errors import ConfigError, MissingKey, format_error
from alchemy.media.run_methods import LogsMedia
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
from alchemy.records.media_entry import Moment
from alchemy.run_state import Limits, Progress, StopRequest
from alchemy.symbol_table import Members, SymbolTbl

if TYPE_CHECKING:
    from alchemy.checkpoint.policy import Watch

__all__ = ["Run", "SymbolTbl", "Where", "current_run", "find_run", "new_scope", "sym_tbl"]


class Run(LogsMedia, Members):
    """A run in progress. `with Run(cfg) as run:` makes it the current run and releases its objects at the end."""

    cfg: Document

    def __init__(self, cfg: Mapping[str, Any] | str | Path, device_info: dict[str, Any] | None = None) -> None:
        ready = isinstance(cfg, Document) and cfg.vetted
        super().__init__(cfg=cfg if ready else prepare_cfg(cfg), device_info=device_info)
        remember(self.cfg.secrets)  # the config may have been loaded in another process
        if missing := missing_secrets(self.cfg):
            raise ConfigError(missing)
        self.symbols = SymbolTbl(self)
        self.pid = os.getpid()
        self.metrics = Stack()
        self.record: RecordLike = NoRecord()
        self.kind = "train"  # the kind of its record; set by the runner
        self._use_null_objects()
        self.loggers: list[Callable[[Mapping[str, float], int], None]] = []  # from plugins and the progress bar
        self.exits = contextlib.ExitStack()
        self.default_log = contextlib.ExitStack()  # console log, until BasicSetup replaces it
        self.exits.callback(self.default_log.close)
        self.seed: int = seed_of(self.cfg)
        self.log_every: int = int(self.cfg.get("log_every", 10))
        self.limits, self.stop_request, self.progress = Limits(), StopRequest(), Progress()
        self._agreed: float | None = None  # elapsed seconds at the last update, as measured by rank 0
        self.resume_from: Path | None = None  # the record to resume
        self.allowed: frozenset[str] = frozenset()  # differences that do not prevent resuming
        self.failure: BaseException | None = None  # the failure that has already been logged
        self._began = time.monotonic()
        self.in_loop = False  # whether a loop is running that checks the stop request after each step
        self.watches: list[Watch] = []  # metrics whose best value is tracked for parts, in addition to [checkpoint]
        self.stop_rules: list[dict[str, Any]] = []  # rules that parts add to the [stop] rules
        self._token: contextvars.Token[Run | None] | None = None
        self._warned: set[tuple[str, str]] = set()

    def _use_null_objects(self) -> None:
        # the runner replaces these according to the config and the command line
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
        self._store_best()
        self.media.flush()  # before the plugins close their files
        try:
            self.exits.__exit__(kind, error, trace)
        finally:
            _live.remove(self)
            if self._token is not None:
                _current.reset(self._token)
            self.task = self.model = self.optim = self.train_sched = self.plugins = None
            self._use_null_objects()
            self.symbols.clear()
            self.loggers = []

    def _store_best(self) -> None:
        """Store the best score for the result of the run before its parts are released."""
        best, sched = self.checkpoints.best, self.train_sched
        if sched is not None:
            epoch = sched.cur_epoch if best is None else best.where.epoch
            self.progress.best, self.progress.epoch = best, show_epoch(epoch, sched.epochs)

    @property
    def record_dir(self) -> Path | None:
        """The record folder, if any."""
        return self.symbols.record_dir

    @record_dir.setter
    def record_dir(self, folder: Path | None) -> None:
        self.symbols.record_dir = folder

    @property
    def debug(self) -> bool:
        return bool(self.symbols.try_get_global("debug", False))

    @property
    def update(self) -> int:
        """The number of optimizer updates so far."""
        return self.train_sched.num_updates if self.train_sched is not None else 0

    @property
    def elapsed(self) -> float:
        """Elapsed seconds, including the time before the run was resumed; the same value in all processes."""
        return time.monotonic() - self._began if self._agreed is None else self._agreed

    @property
    def tokens(self) -> float:
        """The number of training tokens so far, from the model's `tokens` output if it has one, else from its loss."""
        open_scopes = [scope.sums() for scope in self.metrics.open_scopes()]
        tokens = sum(sums["tokens"][0] for sums in open_scopes if "tokens" in sums)
        tokens = tokens or sum(sums["loss"][1] for sums in open_scopes if "loss" in sums)
        return float(self.group.sum([tokens])[0])

    def stop(self, reason: str) -> None:
        """Stop the loop at the next step boundary; the first reason wins.

        It may be called in a single process. All processes exchange requests in the next update, or at the end of an
        evaluation or epoch if that comes first, and stop together.
        """
        if self.group.size == 1:
            self.stop_together(reason)
        elif self.stop_request.own_reason is None and self.stop_request.reason is None:
            self.stop_request.own_reason = reason

    def handle_signal(self, number: int) -> bool:
        """Stop the loop at the next step boundary; return False if no loop is running."""
        if self.in_loop and self.group.size > 1:
            self.stop_request.own_signal = number  # exchanged in the next update, so that all processes stop together
        elif self.in_loop:
            self.stop_request.signal = number
        return self.in_loop

    def stop_together(self, reason: str) -> None:
        """Stop the loop for a reason that is the same in all processes."""
        self.stop_request.reason = self.stop_request.reason or reason

    def agree(self, numbers: Sequence[float] = ()) -> list[float]:
        """Sum `numbers` over all processes and exchange signals, stop requests and the elapsed time.

        Signals and requests arrive at different times; a process that stopped alone would leave the others waiting.
        """
        if self.group.size == 1:
            return list(numbers)
        here = time.monotonic() - self._began if self.group.is_main else 0.0
        request = self.stop_request
        own = (request.own_reason is not None, request.own_signal > 0, request.own_signal, here)
        *sums, requests, signaled, number, self._agreed = self.group.sum([*numbers, *map(float, own)])
        if signaled and request.signal is None:
            request.signal = int(number / signaled) if not number % signaled else signal.SIGTERM
        if requests:
            self.share_stop_requests()
        return sums

    def share_stop_requests(self) -> None:
        """Exchange stop requests; all processes must call this."""
        reasons = [reason for reason in self.group.gather(self.stop_request.own_reason) if reason is not None]
        self.stop_request.own_reason = None
        if reasons:
            self.stop_together(reasons[0])

    def outcome(self, error: BaseException | None) -> tuple[str, str]:
        """Return the final status of the record and the reason."""
        if error is None:
            return ("stopped" if self.stop_request.signal else "finished"), self.stop_request.text
        if isinstance(error, KeyboardInterrupt):
            return "stopped", str(error) or "KeyboardInterrupt"
        return "failed", hide(format_error(error))

    def record_scores(self, split: str, scores: dict[str, Any]) -> None:
        """Log and store the scores of an evaluation; pass them to the schedule, the stop rules and the checkpoints."""
        self.progress.scores.pop(split, None)
        self.progress.scores[split], self.progress.scored_at[split] = scores, self.update
        best: Sequence[str] = ()
        if self.train_sched is not None:
            self.train_sched.after_eval(scores)
            # at the start of a step or epoch, the weights change before the next update boundary
            begins = self.train_sched.is_pending("begin_epoch") or self.train_sched.is_pending("begin_step")
            best = self.checkpoints.after_evaluation(split, scores, self.where, mid_window=self.mid_window or begins)
        shown = show_scores(numbers_in(scores), best) or "no scores"
        logger.info("{}", "  ".join(part for part in (self.moment, f"{split}: {shown}") if part))
        if self.train_sched is not None:
            self.rules.after_eval(self, split, scores)
            self.share_stop_requests()  # a pipe may have requested a stop based on the scores

    @property
    def where(self) -> Where:
        """The current position in training."""
        sched = self.train_sched
        return Where(self.update, sched.cur_epoch, sched.cur_step) if sched is not None else Where(0, 0, 0)

    @property
    def epoch_name(self) -> str:
        """The current epoch, counted from 1: `epoch 3/12`, or `epoch 3` if the number of epochs is not set."""
        return f"epoch {show_epoch(self.train_sched.cur_epoch, self.train_sched.epochs)}"

    @property
    def moment(self) -> str:
        """The point in training, `epoch 3/12`, plus the update if it is within an epoch; empty outside training."""
        sched = self.train_sched
        if sched is None:
            return ""
        if sched.cur_step < 0:
            return "start"
        within = sched.is_pending("begin_step") or sched.is_pending("end_step")
        return f"{self.epoch_name}, update {self.update}" if within else str(self.epoch_name)

    @property
    def mid_window(self) -> bool:
        """Whether an accumulation window is partly filled."""
        return bool(self.updater.is_open)

    # -- state in checkpoints
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
        """Log metrics to the record and to all loggers; a failing logger never aborts training."""
        sched, begin = self.train_sched, time.perf_counter()
        at = self.update if update is None else update
        try:
            numbers = {name: float(value) for name, value in values.items()}
        except OverflowError:
            numbers = numbers_in(values)  # raises an error naming any value that is too large
        step, epoch = (sched.cur_step, sched.cur_epoch) if sched is not None else (0, 0)
        self.record.log(numbers, update=at, step=step, epoch=epoch)
        for log in self.loggers:
            try:
                log(numbers, at)
            except Exception as error:
                name = type(getattr(log, "__self__", log)).__name__
                self.warn_once("{} failed to log; training continues: {!r}", name, error)
        self.progress.tracking_seconds += time.perf_counter() - begin

    def media_moment(self, update: int | None) -> Moment:
        at, tested = self.where, self.symbols.trained_at
        if self.train_sched is None and tested is not None:  # a test of the weights of a record
            at = Where(tested.num_updates, tested.cur_epoch, tested.cur_step)
        if update is None or update in (at.update, at.update + 1):  # the next one, which is not complete
            return Moment(at.update if update is None else update, at.epoch, self.elapsed)
        return Moment(update, at.epoch, self.elapsed, at.update)

    def warn_once(self, text: str, name: str, error: Exception) -> None:
        """Log a warning about `name`, once per run."""
        if (text, name) not in self._warned:
            self._warned.add((text, name))
            logger.warning(text, name, error)

    def table(self, section: str) -> Any:
        """Return the config table of a section, or an empty table if it is missing."""
        table = self.cfg.get(section)
        return table if isinstance(table, Mapping) else {}


_current: contextvars.ContextVar[Run | None] = contextvars.ContextVar("alchemy_run", default=None)
_live: list[Run] = []
_idle = SymbolTbl()
_in_worker: dict[int, SymbolTbl] = {}


def _enclosing_run() -> Run | None:
    """Return the enclosing run, possibly inherited by a fork; in a new thread, the only active run."""
    run = _current.get()
    return _live[0] if run is None and len(_live) == 1 else run


def find_run() -> Run | None:
    """Return the current run, or None outside a run and in loader workers."""
    run = _enclosing_run()
    return run if run is not None and run.pid == os.getpid() else None


def current_run() -> Run:
    """Return the current run; raise an error outside a run."""
    run = find_run()
    if run is None:
        raise MissingKey("no run is active", hint="open one with `with Run(cfg):` or start one with alchemy.run")
    return run


def sym_tbl() -> SymbolTbl:
    """Return the symbol table of the current run (in a new thread, the only active run), or an empty table."""
    run = _enclosing_run()
    if run is None:
        return _idle
    return run.symbols if run.pid == os.getpid() else _worker_table(run)


def _worker_table(run: Run) -> SymbolTbl:
    """Return the table for a forked loader worker, with globals only, so that it does not keep the model alive."""
    table = _in_worker.get(os.getpid())
    if table is None:
        table = _in_worker[os.getpid()] = SymbolTbl(symbols=dict(run.symbols.globals))
    return table


def new_scope(function: Callable[..., Any] | None = None) -> Any:
    """Open a frame for local symbols; a context manager, or a decorator with or without parentheses."""
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
