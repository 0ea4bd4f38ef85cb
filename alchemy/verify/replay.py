"""Replay one update of a record and report its batches, losses, gradients and weight changes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import math
import traceback
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Unpack

import numpy as np
import torch

from alchemy.checkpoint.files import read
from alchemy.checkpoint.keeper import OWN_PART
from alchemy.checkpoint.manifest import read_manifest
from alchemy.checkpoint.run_state import restore
from alchemy.config.load import prepare_cfg
from alchemy.context import Run
from alchemy.data.peek import describe
from alchemy.errors import AlchemyError, format_error
from alchemy.launch.device import alloc
from alchemy.launch.project_imports import add_to_path
from alchemy.loop import train
from alchemy.loss_observer import Loss, Observer
from alchemy.metrics.scalars import show_epoch
from alchemy.optim import AlchemyOptimizer
from alchemy.plugins.resume_changes import changes
from alchemy.records.folder import find
from alchemy.records.local_copies import config_of
from alchemy.runner import AlchemyRunner, AlchemyTrainer, Settings
from alchemy.state import parts_of
from alchemy.verify.nan_origin import MAX_LISTED, NanOrigin, NonFinite, find_nonfinite
from alchemy.verify.replay_state import (
    check_replayable,
    count_processes,
    find_state_before,
    read_bad_update,
    read_ledger_rows,
)
from alchemy.verify.trial_runs import Tell, run_here

MAX_GRADIENTS = 10  # maximum number of gradients shown


@dataclass
class Total:
    """The sum and the count of all losses added so far."""

    loss_sum: float = 0.0
    count: float = 0.0

    def add(self, loss_sum: float, count: float) -> None:
        self.loss_sum += loss_sum
        self.count += count

    @property
    def mean(self) -> float:
        return self.loss_sum / max(self.count, 1e-12)

    def __str__(self) -> str:
        return f"{self.loss_sum:.9g} over {self.count:g}{'' if math.isfinite(self.loss_sum) else ': not finite'}"


@dataclass
class _StepReport:
    """One step of the update: its batch and its losses."""

    step: int
    epoch: int
    ids: list[int] | None
    batch: str
    stains: list[NonFinite]  # non-finite tensors in the batch
    loss_sum: float = 0.0  # over all optimizers, as is the count
    count: float = 0.0
    finite: bool = True
    named: dict[str, Total] = field(default_factory=dict)  # by optimizer, if the losses name one

    def add(self, optim: str, loss_sum: float, count: float) -> None:
        self.loss_sum += loss_sum
        self.count += count
        self.finite = self.finite and math.isfinite(loss_sum)
        if optim:
            self.named.setdefault(optim, Total()).add(loss_sum, count)

    def __str__(self) -> str:
        ids = "" if self.ids is None else f", samples {_join_items(self.ids)}"
        head = f"step {self.step}, epoch {show_epoch(self.epoch)}{ids}\n  {self.batch}"
        bad = [f"  the batch itself is not finite: {self.nonfinite_text}"] if self.stains else []
        losses = [f"  loss_{name} {total}" for name, total in self.named.items()]
        return "\n".join([head, *bad, *(losses or [f"  loss {Total(self.loss_sum, self.count)}"])])

    @property
    def nonfinite_text(self) -> str:
        return "; ".join(map(str, self.stains))

    def describe_origin(self, operation: str) -> str:
        """Describe the origin of a NaN: the batch if it is not finite, otherwise the operation."""
        if not self.stains:
            return operation
        first = f"the batch of step {self.step} itself is not finite: {self.nonfinite_text}"
        return f"{first}\namong the operations on it, {operation}" if operation else first


@dataclass
class UpdateReport:
    """The result of replaying an update."""

    record: str
    update: int
    start: str = ""
    recorded: str = ""  # the recorded reason, if the run ended with this update
    steps: list[_StepReport] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    grad_norm: float | None = None
    norms: dict[str, float] = field(default_factory=dict)
    not_finite: list[str] = field(default_factory=list)
    made: bool = False
    change: tuple[float, str] | None = None
    error: str = ""
    culprit: str = ""
    same_samples: bool | None = None  # whether they match the ledger or the failed run; None if unknown
    notes: list[str] = field(default_factory=list)
    processes: int = 1

    @property
    def loss(self) -> float:
        return Total(sum(step.loss_sum for step in self.steps), sum(step.count for step in self.steps)).mean

    @property
    def losses(self) -> dict[str, float]:
        """The mean losses by metric name: `loss`, or for example `loss_generator`."""
        named: dict[str, Total] = {}
        for step in self.steps:
            for name, total in step.named.items():
                named.setdefault(name, Total()).add(total.loss_sum, total.count)
        return {f"loss_{name}": total.mean for name, total in named.items()} or {"loss": self.loss}

    @property
    def finite(self) -> bool:
        return not self.not_finite and all(step.finite for step in self.steps) and not self.error

    def plain(self) -> dict[str, Any]:
        return _jsonable({**asdict(self), "loss": self.loss, "losses": self.losses, "finite": self.finite})

    def __str__(self) -> str:
        return "\n".join([*self._head(), *map(str, self.steps), *self._numbers(), *self._tail()])

    def _head(self) -> list[str]:
        recorded = [f"the run ended here: {self.recorded}"] if self.recorded else []
        return [f"update {self.update} of {self.record}, from {self.start}", *self.notes, *recorded]

    def _numbers(self) -> list[str]:
        rates = ", ".join(f"{rate:g}" for rate in dict.fromkeys(self.lr)) or "unknown"
        lines = [", ".join([*(f"{name} {mean:.9g}" for name, mean in self.losses.items()), f"lr {rates}"])]
        if self.grad_norm is not None:
            lines.append(f"gradient norm {self.grad_norm:.6g} before clipping; the largest:")
            largest = sorted(self.norms.items(), key=lambda row: -row[1] if row[1] == row[1] else -math.inf)
            lines += [f"  {norm:10.4g}  {name}" for name, norm in largest[:MAX_GRADIENTS]]
        if self.not_finite:
            lines.append(f"non-finite gradients: {_join_items(self.not_finite)}")
        return lines

    def _tail(self) -> list[str]:
        lines = [self.culprit] if self.culprit else []
        if self.error:
            lines.append(f"the update fails: {self.error}")
        elif not self.made:
            lines.append("the update is skipped")
        elif self.change is not None:
            lines.append(
                f"the update is applied; the largest weight change is {self.change[0]:.4g} in {self.change[1]}"
            )
        if self.same_samples is not None:
            lines.append(f"the samples {'match' if self.same_samples else 'do NOT match'} the record")
        return lines


class _ReplayFinished(Exception):
    """Raised after the update to end the replay."""


def replay(
    record: str | Path,
    update: int,
    *,
    debug: bool = False,
    device: list[int] | None = None,
    user_dir: str = "src",
    overrides: Sequence[str] = (),
    tell: Tell = lambda text: None,
) -> UpdateReport:
    """Replay update number `update` of a record, starting from the latest state before it. Writes no files."""
    folder = find(record)
    check_replayable(folder, update)
    options: dict[str, Any] = {"overrides": overrides, "user_dir": user_dir}
    document, info = prepare_cfg(config_of(folder), record=True, **options), alloc(device)[0]
    add_to_path(user_dir)
    document["runner"] = "alchemy.verify.replay.Replay"
    if debug and isinstance(document.get("precision"), Mapping):
        document["precision"]["compile"] = False  # operations in compiled code cannot be inspected
    report = UpdateReport(str(record), update, recorded=read_bad_update(folder, update).get("reason", ""))
    changed = [change for change in changes(folder, document, info, user_dir) if change.breaks]
    report.notes += [f"changed since then: {row.name}: {row.text}" for row in changed if row.name != "runner"]
    state = find_state_before(folder, update)
    made = read_manifest(state).update if state is not None else 0
    report.start = (
        f"{state.parent.name}/{state.name}" if state is not None else "the start, since there is no earlier state"
    )
    ahead = update - made - 1
    report.processes = count_processes(folder, state)
    if report.processes > 1:
        report.notes.append(
            f"{report.processes} processes ran this update, each with its own random numbers (for example for "
            "dropout); the single process of the replay draws different ones"
        )
    tell(f"from {report.start}" + (f", with {ahead} updates to replay first" if ahead else ""))
    with contextlib.redirect_stdout(io.StringIO()):
        run_here(document, info, user_dir, report=report, state=state, name_origin=debug)
    report.same_samples = _compare_samples(folder, report)
    return report


@AlchemyRunner.register()
class Replay(AlchemyTrainer):
    """Restores a state, trains up to one update, and observes that update."""

    def __init__(
        self,
        cfg: MutableMapping[str, Any],
        device_info: dict[str, Any] | None = None,
        *,
        report: UpdateReport,
        state: Path | None,
        name_origin: bool,
        **settings: Unpack[Settings],
    ) -> None:
        self.report, self.state, self.name_origin = report, state, name_origin
        super().__init__(cfg, device_info, **settings)

    def run(self) -> None:
        context, report, state = self.context, self.report, self.state
        self.set_up()
        if state is not None:
            with _require_same_data():
                parts = {**parts_of(context), OWN_PART: context.checkpoints}
                restore(parts, read(state), f"{state.parent.name}/{state.name}")
        context.updater.observer = _UpdateObserver(context, report, debug=self.name_origin)
        try:
            with self._looping():
                train(context)
        except _ReplayFinished:
            return
        except Exception as error:  # from the project's code, as in the original run
            if context.update + 1 != report.update:
                raise
            report.error = format_error(error, "\n  ") + ("" if report.culprit else _format_traceback(error))
            return
        if context.stop_request.signal is None:
            hint = f"the last update is {context.update}"
            raise AlchemyError(f"training ends before update {report.update}", hint=hint)


@contextlib.contextmanager
def _require_same_data() -> Iterator[None]:
    """Reject changed data: resuming may allow it, but a replay would then run a different update."""
    try:
        yield
    except AlchemyError as error:
        if "--allow" not in error.problem.hint:
            raise
        hint = "the data has changed; replay needs the original data"
        raise AlchemyError(error.problem.message, section=error.problem.section, hint=hint) from error


class _UpdateObserver(Observer):
    """Observes one update: the batches and losses of its steps, its gradients and weight changes."""

    def __init__(self, run: Run, report: UpdateReport, *, debug: bool) -> None:
        self.run, self.report = run, report
        self.culprit = NanOrigin() if debug else None

    @property
    def is_active(self) -> bool:
        return self.run.update + 1 == self.report.update

    @contextlib.contextmanager
    def micro_batch(self, batch: object) -> Iterator[None]:
        if not self.is_active:
            yield
            return
        sched = self.run.train_sched
        ids = self.run.progress.window[-1] if self.run.progress.window else None
        row = _StepReport(sched.cur_step, sched.cur_epoch, ids, describe(batch), find_nonfinite(batch, ids))
        self.report.steps.append(row)
        try:
            with self.culprit.watching() if self.culprit is not None else contextlib.nullcontext():
                yield
        finally:
            if self.culprit is not None and (self.culprit.backward or not row.finite):
                self.report.culprit = row.describe_origin(self.culprit.found)

    def loss(self, loss: Loss, optim: str) -> None:
        if self.is_active and self.report.steps:
            self.report.steps[-1].add(optim, loss.sum.item(), float(loss.count))

    def backward(self) -> contextlib.AbstractContextManager[Any]:
        return self.culprit.paused() if self.culprit is not None else contextlib.nullcontext()

    @contextlib.contextmanager
    def update(self, optim: AlchemyOptimizer) -> Iterator[None]:
        if not self.is_active:
            yield
            return
        report = self.report
        report.lr += optim.get_lr()
        own = {id(param) for param in optim.params}
        params = {name: param for name, param in self.run.model.named_parameters() if id(param) in own}
        norms = {name: float(torch.linalg.vector_norm(p.grad.coalesce().values() if p.grad.is_sparse else p.grad))
                 for name, p in params.items() if p.grad is not None}  # fmt: skip
        report.norms |= norms
        report.grad_norm = math.hypot(report.grad_norm or 0.0, *norms.values())
        report.not_finite += [name for name, norm in norms.items() if not math.isfinite(norm)]
        before, skipped = {name: param.detach().clone() for name, param in params.items()}, self.run.updater.skipped
        yield
        moved = [
            (float((params[name].detach() - old).abs().max()), name) for name, old in before.items() if old.numel()
        ]
        report.change = max([*moved, *([report.change] if report.change else [])], default=None)
        report.made = report.made or self.run.updater.skipped == skipped

    def schedule(self) -> None:
        if self.is_active:
            raise _ReplayFinished


def _compare_samples(folder: Path, report: UpdateReport) -> bool | None:
    """Return whether the replayed samples match the record, or None if the record does not list them."""
    ids = [step.ids for step in report.steps]
    recorded = read_bad_update(folder, report.update).get("ids")
    if recorded is not None:
        if report.processes > 1:  # the recorded ids are from rank 0, which processed only part of each step
            return len(ids) == len(recorded) and all(set(a or ()) >= set(b or ()) for a, b in zip(ids, recorded))
        return bool(ids == recorded)
    for _, row in read_ledger_rows(folder):
        if row["update"] == report.update and "ids" in row and row.get("set") is not None and None not in ids:
            numbers = np.array([index for step in ids for index in step or ()], dtype="<i8")
            return bool(hashlib.blake2b(numbers.tobytes(), digest_size=16).hexdigest() == row["ids"])
    return None


# -- formatting
def _join_items(items: Sequence[object]) -> str:
    more = f" and {len(items) - MAX_LISTED} more" if len(items) > MAX_LISTED else ""
    return ", ".join(map(str, items[:MAX_LISTED])) + more


def _format_traceback(error: BaseException) -> str:
    """Return the traceback of an error in the project's code; for alchemy's own errors, the message is enough."""
    if isinstance(error, AlchemyError):
        return ""
    return "\n" + "".join(traceback.format_exception(error)).rstrip()


def _jsonable(value: object) -> Any:
    """Replace NaN and infinities with strings, since JSON cannot represent them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _jsonable(inner) for key, inner in value.items()}
    return [_jsonable(inner) for inner in value] if isinstance(value, list | tuple) else value
