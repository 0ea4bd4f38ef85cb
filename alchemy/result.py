"""What a run gives back to the one who started it."""

from __future__ import annotations

import pickle
import traceback
from pathlib import Path
from typing import Any

from alchemy.config.secrets import hide
from alchemy.context import Run
from alchemy.errors import RunFailed
from alchemy.launch.signals import signal_of


class RunResult:
    """The result of a run: its folder, config, final numbers, and how it ended."""

    record_dir: Path | None = None
    cfg: Any = None
    ret: Any = None
    exception: BaseException | None = None
    status = "finished"
    reason = ""
    signal: int | None = None
    trace = ""  # the traceback of a failed run, as text

    @classmethod
    def of(cls, run: Run) -> RunResult:
        result = cls()
        result.record_dir, result.cfg, result.ret = run.record_dir, run.cfg, run.ret
        result.signal, result.reason = run.stop_request.signal, run.stop_request.text
        result.status = "stopped" if run.stop_request.signal else "finished"
        return result

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
        return f"{type(self).__name__}({self.status}, record_dir={self.record_dir}, ret={self.ret})"


class FailedRun(RunResult, Exception):
    """The result of a run that failed: old scripts test `isinstance(result, Exception)` and raise it."""

    status = "failed"

    @classmethod
    def caused_by(cls, error: BaseException, cfg: object) -> FailedRun:
        result = cls(hide(f"{type(error).__name__}: {error}"))
        result.cfg, result.exception, result.reason = cfg, error, str(result)
        result.trace = hide("".join(traceback.format_exception(error)))
        result.__cause__ = error
        # a traceback holds the frames, and those the model: the text is kept, the memory is not
        traceback.clear_frames(error.__traceback__)
        return result

    @classmethod
    def during(cls, error: BaseException, run: Run) -> FailedRun:
        """A run that failed, or was interrupted, after it had started."""
        result = cls.caused_by(error, run.cfg)
        result.record_dir, result.ret = run.record_dir, run.ret
        if isinstance(error, KeyboardInterrupt):
            result.status, result.signal = "stopped", signal_of(error)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (self.args, {**self.__dict__, "__cause__": None})


def _restore(args: tuple[Any, ...], state: dict[str, Any]) -> FailedRun:
    result = FailedRun(*args)
    result.__dict__.update({key: value for key, value in state.items() if key != "__cause__"})
    result.__cause__ = result.exception
    return result


def add_notes(error: BaseException) -> None:
    """Adds what a bare error does not say: which of our settings it is about, or what is not there yet."""
    if isinstance(error, RuntimeError) and "Expected to have finished reduction" in str(error):
        error.add_note("not every parameter was used in a step: write find_unused_parameters = true in [ddp]")
    asked = error.name if isinstance(error, AttributeError) and error.obj is None else ""
    if asked in ("cur_step", "cur_epoch", "cur_step_this_epoch", "step_lr"):
        why = "there is no train_sched outside training"
        error.add_note(f"{why}, so no {asked}: test `sym_tbl().train_sched is not None` first")
