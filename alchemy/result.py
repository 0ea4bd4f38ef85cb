"""What a run gives back to the one who started it, and what becomes of a failure that nobody looks at."""

from __future__ import annotations

import atexit
import os
import pickle
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

from loguru import logger

from alchemy.checkpoint.manifest import Best
from alchemy.config.secrets import hide
from alchemy.config.tree import Document
from alchemy.context import Run
from alchemy.errors import RunFailed, explain_failure, is_library, recognize
from alchemy.launch.signals import signal_number
from alchemy.launch.worker_pool import LostJob
from alchemy.metrics.scalars import numbers_in

if TYPE_CHECKING:
    from alchemy.launch.process_group import Failure


class RunResult:
    """The result of a run: its folder, config, final numbers, and how it ended."""

    record_dir: Path | None = None
    cfg: Any = None
    ret: Any = None
    exception: BaseException | None = None
    status = "finished"
    reason = ""
    signal: int | None = None
    best: Best | None = None  # the best evaluation, of the number that is monitored
    epoch = ""  # of the best evaluation, or else the last, as people count: "7/12"
    split = ""  # that `ret` holds the scores of
    trace = ""  # the traceback of a failed run, as text
    is_logged = False  # whether the log has told the failure

    @classmethod
    def of(cls, run: Run) -> RunResult:
        result = cls()
        result._take(run)
        result.signal, result.reason = run.stop_request.signal, run.stop_request.text
        result.status = "stopped" if run.stop_request.signal else "finished"
        return result

    def _take(self, run: Run) -> None:
        scored = list(run.progress.scores)
        self.record_dir, self.cfg, self.ret = run.record_dir, run.cfg, run.ret
        self.best, self.epoch = run.progress.best, run.progress.epoch
        self.split = "dev" if "dev" in scored else "".join(scored[-1:])

    def portable(self) -> RunResult:
        """The same, fit to be sent to another process: errors that cannot travel are told in words."""
        try:
            pickle.loads(pickle.dumps(self.exception))
        except Exception:
            self.exception = RunFailed(f"{type(self.exception).__name__}: {self.exception}")
        try:
            pickle.dumps(self.ret)
        except Exception:
            self.ret = repr(self.ret)
        return self

    def __repr__(self) -> str:
        # the rows that a task returns beside its scores would fill many screens
        ret = numbers_in(self.ret) if isinstance(self.ret, Mapping) else self.ret
        return f"{type(self).__name__}({self.status}, record_dir={self.record_dir}, ret={ret})"


# who reads one of these of a failed result knows that it failed
_TELLING = frozenset({"exception", "status", "reason", "signal", "trace", "args", "__cause__"})
_unseen: dict[int, FailedRun] = {}  # by id: failures that the script has not looked at


class FailedRun(RunResult, Exception):
    """The result of a run that failed: old scripts test `isinstance(result, Exception)` and raise it."""

    status = "failed"

    def __getattribute__(self, name: str) -> Any:
        if name in _TELLING:
            _unseen.pop(id(self), None)
        return super().__getattribute__(name)

    def __str__(self) -> str:
        return str(self.args[0]) if self.args else ""

    @classmethod
    def caused_by(cls, error: BaseException, cfg: object) -> FailedRun:
        reason = hide(f"{type(error).__name__}: {error}")
        result = cls(reason)
        result.cfg, result.exception, result.reason = cfg, error, reason
        result.trace = hide("".join(traceback.format_exception(error)))
        result.__cause__ = error
        # a traceback holds the frames, and those the model: the text is kept, the memory is not
        traceback.clear_frames(error.__traceback__)
        return result

    @classmethod
    def during(cls, error: BaseException, run: Run) -> FailedRun:
        """A run that failed, or was interrupted, after it had started."""
        result = cls.caused_by(error, run.cfg)
        result._take(run)
        result.is_logged = run.failure is error
        if isinstance(error, KeyboardInterrupt):
            result.status, result.signal = "stopped", signal_number(error)
        return result

    @classmethod
    def lost(cls, cfg: Document, answer: LostJob) -> FailedRun:
        """A run whose process gave no answer."""
        result = cls.caused_by(RunFailed(f"the run of {cfg.path or 'a config'} was lost: {answer}"), cfg)
        if answer.signal is not None:
            result.status, result.signal = "stopped", answer.signal
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.args, {**self.__dict__, "__cause__": None})


def _restore(args: tuple[Any, ...], state: dict[str, Any]) -> FailedRun:
    result = FailedRun(*args)
    result.__dict__.update({key: value for key, value in state.items() if key != "__cause__"})
    result.__cause__ = result.exception
    return result


def expect_a_look(result: RunResult) -> RunResult:
    """Returns `result`; where it is a failure that the program never looks at, the program ends with exit code 1.

    Only for a script: code of its own alone calls the function that calls this one. Programs that call it for others
    (the command line, pytest, a server) answer for their exit code themselves.
    """
    global _script
    script = _find_script() if isinstance(result, FailedRun) else None
    if script is not None and isinstance(result, FailedRun):
        _script, _unseen[id(result)] = script, result
        atexit.unregister(_fail_if_unseen)  # once is enough
        atexit.register(_fail_if_unseen)
    return result


def _find_script() -> dict[str, Any] | None:
    """The names of the script that is run, unless a library stands between it and us."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None and frame.f_globals.get("__name__") != "__main__":
        frame = None if is_library(frame.f_code.co_filename) else frame.f_back
    return None if frame is None else frame.f_globals


class _ExitCode:
    """Ends the process with a code when Python, after all exit functions, clears this module: nothing later can."""

    def __init__(self, code: int) -> None:
        self.code, self.exit = code, os._exit

    def __del__(self) -> None:
        self.exit(self.code)


_exit_code: _ExitCode | None = None
_script: dict[str, Any] | None = None  # what is to fail


def _fail_if_unseen() -> None:
    global _exit_code
    # an uncaught error has its own exit code; in a prompt there is somebody who has read the log
    if not _unseen or hasattr(sys, "last_value") or hasattr(sys, "ps1"):
        return
    if vars(sys.modules["__main__"]) is not _script:  # another program has run it, as runpy does
        return
    for result in list(_unseen.values()):
        where = "" if result.record_dir is None else f" ({result.record_dir})"
        why = "" if result.is_logged else f": {result}"
        text = f"error: a run failed{where} and the script did not look at its result{why}"
        sys.stderr.write(text.partition("\n")[0] + "\n")
    _exit_code = _ExitCode(1)


def log_failure(run: Run, error: BaseException, other: Failure | None = None) -> None:
    """Logs why a run fails, once and cause first; the traceback goes to `run.log` or, without one, to the console.

    `other` is what another process has told, where that is the cause.
    """
    log = None if run.record_dir is None else run.record_dir / "run.log"
    name, where = run.cfg.label or "the run", f"\n  log: {log}" if log is not None else ""
    brief = log is not None and not run.debug
    text = other.text if other is not None and other.text else explain_failure(error)
    logger.bind(brief=brief).opt(exception=error).error("{} failed: {}{}", name, text, where)
    if other is not None and other.trace:
        logger.log("DEBUG" if brief else "ERROR", "the traceback of the other process:\n{}", other.trace)
    run.failure = error


def put_in_words(error: Exception) -> Exception:
    """The error to report: an AlchemyError where a common mistake caused it, with the notes of the original."""
    _add_notes(error)
    told = recognize(error)
    if told is None:
        return error
    for note in vars(error).get("__notes__", []):
        told.add_note(note)
    return told


def _add_notes(error: BaseException) -> None:
    """Adds what a bare error does not say: which of our settings it is about, or what is not there yet."""
    if isinstance(error, RuntimeError) and "Expected to have finished reduction" in str(error):
        error.add_note("not every parameter was used in a step: write find_unused_parameters = true in [ddp]")
    if isinstance(error, RuntimeError) and "storage of SparseTensorImpl" in str(error):
        error.add_note(
            "DDP averages sparse gradients of nn.Embedding and nn.EmbeddingBag only: use one, or sparse=False"
        )
    asked = error.name if isinstance(error, AttributeError) and error.obj is None else ""
    if asked in ("cur_step", "cur_epoch", "cur_step_this_epoch", "step_lr"):
        why = "there is no train_sched outside training"
        error.add_note(f"{why}, so no {asked}: test `sym_tbl().train_sched is not None` first")
