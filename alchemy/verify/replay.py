"""One update of a record, made again alone, with everything that went into it and came out."""

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
from alchemy.verify.nan_origin import MANY, NanOrigin, Stain, stains
from alchemy.verify.replay_state import ledger_rows, left_of, processes_of, refuse_replay, state_before
from alchemy.verify.trial_runs import Tell, run_here

LARGEST = 10  # gradients that are shown


@dataclass
class Total:
    """Losses as the sum of their sums and of their counts."""

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
    """One step of the window: what it was given, and the losses it came to."""

    step: int
    epoch: int
    ids: list[int] | None
    batch: str
    stains: list[Stain]  # what is not finite in the batch itself
    loss_sum: float = 0.0  # over all optimizers, as count is
    count: float = 0.0
    finite: bool = True
    named: dict[str, Total] = field(default_factory=dict)  # by optimizer, where the losses name theirs

    def add(self, optim: str, loss_sum: float, count: float) -> None:
        self.loss_sum += loss_sum
        self.count += count
        self.finite = self.finite and math.isfinite(loss_sum)
        if optim:
            self.named.setdefault(optim, Total()).add(loss_sum, count)

    def __str__(self) -> str:
        ids = "" if self.ids is None else f", samples {_shown(self.ids)}"
        head = f"step {self.step}, epoch {show_epoch(self.epoch)}{ids}\n  {self.batch}"
        stained = [f"  the batch itself is not finite: {self.stained}"] if self.stains else []
        losses = [f"  loss_{name} {total}" for name, total in self.named.items()]
        return "\n".join([head, *stained, *(losses or [f"  loss {Total(self.loss_sum, self.count)}"])])

    @property
    def stained(self) -> str:
        return "; ".join(map(str, self.stains))

    def blame(self, operation: str) -> str:
        """The batch before the operation: what is done to a NaN can only give another."""
        if not self.stains:
            return operation
        first = f"the batch of step {self.step} itself is not finite: {self.stained}"
        return f"{first}\nof the operations on it, {operation}" if operation else first


@dataclass
class UpdateReport:
    """What `replay` shows of an update."""

    record: str
    update: int
    start: str = ""
    recorded: str = ""  # the reason that the run itself has given, where it ended with this update
    steps: list[_StepReport] = field(default_factory=list)
    lr: list[float] = field(default_factory=list)
    grad_norm: float | None = None
    norms: dict[str, float] = field(default_factory=dict)
    not_finite: list[str] = field(default_factory=list)
    made: bool = False
    change: tuple[float, str] | None = None
    error: str = ""
    culprit: str = ""
    same_samples: bool | None = None  # as in the ledger, or in what the failed run left; None: nobody knows
    notes: list[str] = field(default_factory=list)
    processes: int = 1

    @property
    def loss(self) -> float:
        return Total(sum(step.loss_sum for step in self.steps), sum(step.count for step in self.steps)).mean

    @property
    def losses(self) -> dict[str, float]:
        """The mean losses by the names of their metrics: `loss`, or `loss_generator` and the like."""
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
            lines += [f"  {norm:10.4g}  {name}" for name, norm in largest[:LARGEST]]
        if self.not_finite:
            lines.append(f"gradients that are not finite: {_shown(self.not_finite)}")
        return lines

    def _tail(self) -> list[str]:
        lines = [self.culprit] if self.culprit else []
        if self.error:
            lines.append(f"it fails: {self.error}")
        elif not self.made:
            lines.append("the update is not made")
        elif self.change is not None:
            lines.append(
                f"the update is made; the largest change of a weight is {self.change[0]:.4g} in {self.change[1]}"
            )
        if self.same_samples is not None:
            lines.append(f"the samples are {'' if self.same_samples else 'NOT '}those of the record")
        return lines


class _Replayed(Exception):
    """The update was made; what comes after it is of no interest."""


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
    """Makes update number `update` of a record again, from the newest state before it; nothing is written."""
    folder = find(record)
    refuse_replay(folder, update)
    options: dict[str, Any] = {"overrides": overrides, "user_dir": user_dir}
    document, info = prepare_cfg(config_of(folder), record=True, **options), alloc(device)[0]
    add_to_path(user_dir)
    document["runner"] = "alchemy.verify.replay.Replay"
    if debug and isinstance(document.get("precision"), Mapping):
        document["precision"]["compile"] = False  # inside compiled code no operation can be asked
    report = UpdateReport(str(record), update, recorded=left_of(folder, update).get("reason", ""))
    changed = [change for change in changes(folder, document, info, user_dir) if change.breaks]
    report.notes += [f"since then {row.name}: {row.text}" for row in changed if row.name != "runner"]
    state = state_before(folder, update)
    made = read_manifest(state).update if state is not None else 0
    report.start = (
        f"{state.parent.name}/{state.name}" if state is not None else "the beginning: there is no older state"
    )
    ahead = update - made - 1
    report.processes = processes_of(folder, state)
    if report.processes > 1:
        report.notes.append(
            f"{report.processes} processes made it: each drew random numbers of its own, as for dropout, and the one "
            "that makes it again draws others"
        )
    tell(f"from {report.start}" + (f", with {ahead} updates to make first" if ahead else ""))
    with contextlib.redirect_stdout(io.StringIO()):
        run_here(document, info, user_dir, report=report, state=state, name_origin=debug)
    report.same_samples = _same_samples(folder, report)
    return report


@AlchemyRunner.register()
class Replay(AlchemyTrainer):
    """Takes up a state that stays as it is, trains on to one update, and watches that one."""

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
            with _needs_the_data():
                parts = {**parts_of(context), OWN_PART: context.checkpoints}
                restore(parts, read(state), f"{state.parent.name}/{state.name}")
        context.updater.observer = _Watch(context, report, debug=self.name_origin)
        try:
            with self._looping():
                train(context)
        except _Replayed:
            return
        except Exception as error:  # of the project's code, as it was in the run itself
            if context.update + 1 != report.update:
                raise
            report.error = format_error(error, "\n  ") + ("" if report.culprit else _traced(error))
            return
        if context.stop_request.signal is None:
            hint = f"the last one is {context.update}"
            raise AlchemyError(f"the training ends before update {report.update}", hint=hint)


@contextlib.contextmanager
def _needs_the_data() -> Iterator[None]:
    """Whoever resumes may allow other data; a replay with it would be of another update."""
    try:
        yield
    except AlchemyError as error:
        if "--allow" not in error.problem.hint:
            raise
        hint = "the data has changed since; replay needs it as it was"
        raise AlchemyError(error.problem.message, section=error.problem.section, hint=hint) from error


class _Watch(Observer):
    """Looks at one update: the batches and losses of its steps, its gradients, and what it changed."""

    def __init__(self, run: Run, report: UpdateReport, *, debug: bool) -> None:
        self.run, self.report = run, report
        self.culprit = NanOrigin() if debug else None

    @property
    def is_on(self) -> bool:
        return self.run.update + 1 == self.report.update

    @contextlib.contextmanager
    def micro_batch(self, batch: object) -> Iterator[None]:
        if not self.is_on:
            yield
            return
        sched = self.run.train_sched
        ids = self.run.progress.window[-1] if self.run.progress.window else None
        row = _StepReport(sched.cur_step, sched.cur_epoch, ids, describe(batch), stains(batch, ids))
        self.report.steps.append(row)
        try:
            with self.culprit.watching() if self.culprit is not None else contextlib.nullcontext():
                yield
        finally:
            if self.culprit is not None and (self.culprit.backward or not row.finite):
                self.report.culprit = row.blame(self.culprit.found)

    def loss(self, loss: Loss, optim: str) -> None:
        if self.is_on and self.report.steps:
            self.report.steps[-1].add(optim, loss.sum.item(), float(loss.count))

    def backward(self) -> contextlib.AbstractContextManager[Any]:
        return self.culprit.resting() if self.culprit is not None else contextlib.nullcontext()

    @contextlib.contextmanager
    def update(self, optim: AlchemyOptimizer) -> Iterator[None]:
        if not self.is_on:
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
        if self.is_on:
            raise _Replayed


def _same_samples(folder: Path, report: UpdateReport) -> bool | None:
    """Whether the update saw what the record says that it saw."""
    ids = [step.ids for step in report.steps]
    recorded = left_of(folder, report.update).get("ids")
    if recorded is not None:
        if report.processes > 1:  # they are those of the first process, which had a part of each step
            return len(ids) == len(recorded) and all(set(a or ()) >= set(b or ()) for a, b in zip(ids, recorded))
        return bool(ids == recorded)
    for _, row in ledger_rows(folder):
        if row["update"] == report.update and "ids" in row and row.get("set") is not None and None not in ids:
            numbers = np.array([index for step in ids for index in step or ()], dtype="<i8")
            return bool(hashlib.blake2b(numbers.tobytes(), digest_size=16).hexdigest() == row["ids"])
    return None


# -- words
def _shown(items: Sequence[object]) -> str:
    more = f" and {len(items) - MANY} more" if len(items) > MANY else ""
    return ", ".join(map(str, items[:MANY])) + more


def _traced(error: BaseException) -> str:
    """The traceback of an error that the project's code has raised; ours say all in their message."""
    if isinstance(error, AlchemyError):
        return ""
    return "\n" + "".join(traceback.format_exception(error)).rstrip()


def _jsonable(value: object) -> Any:
    """NaN and infinities as texts: JSON has no word for them."""
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {key: _jsonable(inner) for key, inner in value.items()}
    return [_jsonable(inner) for inner in value] if isinstance(value, list | tuple) else value
