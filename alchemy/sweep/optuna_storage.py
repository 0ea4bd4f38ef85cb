"""A copy of a sweep in Optuna's own storage, which `optuna-dashboard` opens."""

from __future__ import annotations

import contextlib
import warnings
from pathlib import Path
from typing import Any

from alchemy.optional_packages import is_installed
from alchemy.sweep.samplers import build_trial, import_optuna
from alchemy.sweep.study import DONE, FAILED, PRUNED, RUNNING, Study, Trial

FILE = "optuna.log"
POINT = "point"  # the user attribute with the number of the point


class OptunaCopy:
    """Adds the points that have ended to `optuna.log`; does nothing without Optuna."""

    def __init__(self, study: Study) -> None:
        self._study, self._copy = study, None
        if is_installed("optuna"):
            try:
                self._open()
            except Exception:  # cut off by a full disk, outdated, or of another version: it is only a copy
                with contextlib.suppress(OSError):
                    (study.folder / FILE).unlink(missing_ok=True)
                    self._open()

    def _open(self) -> None:
        optuna = import_optuna()
        storage = optuna.storages.JournalStorage(_open_file(optuna, self._study.folder / FILE))
        direction = "minimize" if self._study.is_minimized else "maximize"
        name = self._study.name
        copy = optuna.create_study(study_name=name, storage=storage, direction=direction, load_if_exists=True)
        with warnings.catch_warnings(action="ignore"):  # the function is experimental
            copy.set_metric_names([self._study.plan.metric])
        known = [trial.user_attrs.get(POINT) for trial in copy.get_trials(deepcopy=False)]
        ended = {trial.number for trial in self._study.trials if trial.state != RUNNING}
        if len(set(known)) < len(known) or not ended.issuperset(known):
            raise ValueError("a point has been retried")
        self._copy = copy
        for trial in self._study.trials:
            if trial.number not in known:
                self.add(trial)

    def add(self, trial: Trial) -> None:
        """Add a point that has ended."""
        if self._copy is None or trial.state not in (DONE, PRUNED, FAILED):
            return
        from optuna.trial import TrialState

        states = {DONE: TrialState.COMPLETE, PRUNED: TrialState.PRUNED, FAILED: TrialState.FAIL}
        notes = {POINT: trial.number, "seeds": trial.values, "records": trial.records, "reason": trial.reason}
        with contextlib.suppress(OSError):  # a full disk: added when the sweep continues
            row = build_trial(self._study.space, trial.point, trial.value, states[trial.state], user_attrs=notes)
            self._copy.add_trial(row)


def _open_file(optuna: Any, path: Path) -> Any:
    # the lock of a killed process is removed by nobody; the sweep itself has only one writer
    return optuna.storages.journal.JournalFileBackend(str(path), lock_obj=_NoLock())


class _NoLock:
    """The study's own lock already keeps out other writers."""

    def acquire(self) -> bool:
        return True

    def release(self) -> None:
        pass
