"""Results of runs, and the exit code of scripts that ignore a failed run."""

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
    """The result of a run: its record folder, config, final scores and status."""

    record_dir: Path | None = None
    cfg: Any = None
    ret: Any = None
    exception: BaseException | None = None
    status = "finished"
    reason = ""
    signal: int | None = None
    best: Best | None = None  # the best evaluation of the monitored metric
    epoch = ""  # of the best evaluation, or of the last one if there is no best; counted from 1: "7/12"
    split = ""  # the split whose scores are in `ret`
    trace = ""  # the traceback of a failed run, as text
    is_logged = False  # whether the failure has been logged

    @classmethod
    def of(cls, run: Run) -> RunResult:
        result = cls()
        result._copy_from(run)
        result.signal, result.reason = run.stop_request.signal, run.stop_request.text
        result.status = "stopped" if run.stop_request.signal else "finished"
        return result

    def _copy_from(self, run: Run) -> None:
        scored = list(run.progress.scores)
        self.record_dir, self.cfg, self.ret = run.record_dir, run.cfg, run.ret
        self.best, self.epoch = run.progress.best, run.progress.epoch
        self.split = "dev" if "dev" in scored else "".join(scored[-1:])

    def portable(self) -> RunResult:
        """Make the result picklable: errors and values that cannot be pickled are replaced by text."""
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
        # keep only the scores, because a task may also return many rows
        ret = numbers_in(self.ret) if isinstance(self.ret, Mapping) else self.ret
        return f"{type(self).__name__}({self.status}, record_dir={self.record_dir}, ret={ret})"


# reading one of these attributes counts as inspecting the failure
_STATUS_ATTRIBUTES = frozenset({"exception", "status", "reason", "signal", "trace", "args", "__cause__"})
_unseen: dict[int, FailedRun] = {}  # by id: failures that the script has not inspected yet


class FailedRun(RunResult, Exception):
    """The result of a failed run; an exception, because old scripts check for one and raise it."""

    status = "failed"

    def __getattribute__(self, name: str) -> Any:
        if name in _STATUS_ATTRIBUTES:
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
        # the frames of the traceback would keep the model in memory; the text is enough
        traceback.clear_frames(error.__traceback__)
        return result

    @classmethod
    def during(cls, error: BaseException, run: Run) -> FailedRun:
        """Return the result of a run that failed or was interrupted after it had started."""
        result = cls.caused_by(error, run.cfg)
        result._copy_from(run)
        result.is_logged = run.failure is error
        if isinstance(error, KeyboardInterrupt):
            result.status, result.signal = "stopped", signal_number(error)
        return result

    @classmethod
    def lost(cls, cfg: Document, reason: LostJob) -> FailedRun:
        """Return the result of a run whose process died."""
        result = cls.caused_by(RunFailed(f"the run of {cfg.label or 'a config'} was lost: {reason}"), cfg)
        if reason.exit_code is None:
            result.reason = str(reason)
        if reason.signal is not None:
            result.status, result.signal = "stopped", reason.signal
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.args, {**self.__dict__, "__cause__": None})


def _restore(args: tuple[Any, ...], state: dict[str, Any]) -> FailedRun:
    result = FailedRun(*args)
    result.__dict__.update({key: value for key, value in state.items() if key != "__cause__"})
    result.__cause__ = result.exception
    return result


def fail_if_ignored(result: RunResult) -> RunResult:
    """Return `result`; if it is a failure that a script never inspects, the script exits with code 1.

    This applies only if the call comes from a script or its own modules. Programs such as the command line,
    pytest or a server are responsible for their own exit codes.
    """
    global _script
    script = _find_script() if isinstance(result, FailedRun) else None
    if script is not None and isinstance(result, FailedRun):
        _script, _unseen[id(result)] = script, result
        atexit.unregister(_fail_if_unseen)  # register only once
        atexit.register(_fail_if_unseen)
    return result


def _find_script() -> dict[str, Any] | None:
    """Return the globals of the running script, unless a library made the call."""
    frame: FrameType | None = sys._getframe(3)
    while frame is not None and frame.f_globals.get("__name__") != "__main__":
        frame = None if is_library(frame.f_code.co_filename) else frame.f_back
    return None if frame is None else frame.f_globals


class _ExitCode:
    """Sets the exit code when Python clears this module, after all exit handlers have run."""

    def __init__(self, code: int) -> None:
        self.code, self.exit = code, os._exit

    def __del__(self) -> None:
        self.exit(self.code)


_exit_code: _ExitCode | None = None
_script: dict[str, Any] | None = None  # globals of the script that should fail


def _fail_if_unseen() -> None:
    global _exit_code
    # an uncaught error sets its own exit code; in an interactive session the user sees the log
    if not _unseen or hasattr(sys, "last_value") or hasattr(sys, "ps1"):
        return
    if vars(sys.modules["__main__"]) is not _script:  # run by another program, such as runpy
        return
    for result in list(_unseen.values()):
        where = "" if result.record_dir is None else f" ({result.record_dir})"
        why = "" if result.is_logged else f": {result}"
        text = f"error: a run failed{where} and the script ignored its result{why}"
        sys.stderr.write(text.partition("\n")[0] + "\n")
    _exit_code = _ExitCode(1)


def log_failure(run: Run, error: BaseException, other: Failure | None = None) -> None:
    """Log why a run failed, cause first; the traceback goes to `run.log`, or to the console without a record.

    `other` is the failure reported by another process, if that is the cause.
    """
    log = None if run.record_dir is None else run.record_dir / "run.log"
    name, where = run.cfg.label or "the run", f"\n  log: {log}" if log is not None else ""
    brief = log is not None and not run.debug
    text = other.text if other is not None and other.text else explain_failure(error)
    logger.bind(brief=brief).opt(exception=error).error("{} failed: {}{}", name, text, where)
    if other is not None and other.trace:
        logger.log("DEBUG" if brief else "ERROR", "traceback of the other process:\n{}", other.trace)
    run.failure = error


def explain_error(error: Exception) -> Exception:
    """Return the error to report: for a common mistake, an AlchemyError with the notes of the original."""
    _add_notes(error)
    explained = recognize(error)
    if explained is None:
        return error
    for note in vars(error).get("__notes__", []):
        explained.add_note(note)
    return explained


def _add_notes(error: BaseException) -> None:
    """Add a note to errors from Python or torch that have a known fix."""
    if isinstance(error, RuntimeError) and "Expected to have finished reduction" in str(error):
        error.add_note("some parameters were not used in a step: set find_unused_parameters = true in [ddp]")
    if isinstance(error, RuntimeError) and "storage of SparseTensorImpl" in str(error):
        error.add_note(
            "DDP supports sparse gradients only for nn.Embedding and nn.EmbeddingBag: use one, or sparse=False"
        )
    missing = error.name if isinstance(error, AttributeError) and error.obj is None else ""
    if missing in ("cur_step", "cur_epoch", "cur_step_this_epoch", "step_lr"):
        why = "sym_tbl().train_sched is None outside training"
        error.add_note(f"{why}, so {missing} is not available: check `sym_tbl().train_sched is not None` first")
