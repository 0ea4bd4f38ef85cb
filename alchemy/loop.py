"""The loops over batches; only this file feeds a model."""

from __future__ import annotations

import contextlib
import itertools
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from loguru import logger
from rich.console import Console

from alchemy.context import Run, current_run
from alchemy.data.loader import get_dataloader
from alchemy.data.peek import describe
from alchemy.errors import AlchemyError
from alchemy.progress import Bar
from alchemy.seeds import derive

PAGE = os.sysconf("SC_PAGE_SIZE")


def train(run: Run) -> None:
    """Trains until the schedule is through or somebody asks the run to stop.

    The ten places where a part of yours is called, in their order::

        plugin.__init__()                                   1
        for epoch in schedule:                              begin-epoch pipes   2
            for batch in loader:
                schedule.begin_train_step(batch)            begin-step pipes    3
                task.step(batch)                            model.forward, backward handler, optimiser, schedule
                schedule.end_train_step(outputs)            end-step pipes      4
                    evaluate(split)                         where an end-step or end-epoch pipe asks for it:
                        pipe.begin_eval(split)              eval pipes          5
                        outputs = pipe(outputs, batch)      output pipes        6
                        scores = pipe(split, **scores)      eval pipes          7
                every `log_every` updates:
                    plugin.log(values, update)              8
            schedule.end_train_epoch()                      end-epoch pipes     9
        plugin.exit()                                       10
    """
    sched = run.train_sched
    for epoch in sched:
        batches, total = _train_batches(run, epoch)
        with (
            _bar(run, f"epoch {epoch + 1}", total) as bar,
            run.metrics.scope("epoch") as whole,
            run.metrics.scope("recent"),
        ):
            pace = Pace(run)
            for batch in batches:
                sched.begin_train_step(batch)
                if sched.cur_step == 0:
                    logger.info("the first batch: {}", describe(batch))
                run.model.train()
                text, outputs = run.task.step(batch)
                log_loss(run, outputs)
                sched.end_train_step(outputs)
                bar.step(text)
                if pace.is_due():
                    pace.log()
                if run.stopping:
                    break
            _finish_window(run)
            if not bar.done:
                raise AlchemyError(
                    f"the training data gave no batch in epoch {epoch + 1}",
                    section="task.datasets.train",
                    hint="look at what flows through its pipes with `alchemy data peek CFG --split train`",
                )
        run.log({f"train/{name}_epoch": mean for name, mean in whole.means().items()})
        # a run that is told to leave does not start an evaluation first
        if run.stopping:
            break
        sched.end_train_epoch()
        if run.stopping or run.max_batches:
            break


def evaluate(split: str = "dev", needs_loss: bool = True, **kwargs: Any) -> dict[str, Any]:
    """Scores a split with the current model and returns the numbers, the mean loss among them."""
    run = current_run()
    task, model = run.task, run.model
    dataset, loader_kwargs = task.dataset(split)
    loader = get_dataloader(dataset, seed=derive(run.seed, "eval", split), **loader_kwargs)
    begin = time.perf_counter()
    with run.metrics.scope(split, root=True) as scores, torch.no_grad():
        task.begin_eval(split, **kwargs)
        model.eval()
        with _bar(run, split, _length(loader, run.max_batches)) as bar:
            for batch in _limited(loader, run.max_batches):
                outputs = _outputs(task.eval_step(batch, needs_loss=needs_loss))
                # tasks that have a step of their own may not have told their loss
                if needs_loss and isinstance(outputs, dict) and "loss" not in scores:
                    log_loss(run, outputs)
                bar.step()
        if not bar.done:
            raise AlchemyError(
                f"the split {split!r} gave no batch",
                section=f"task.datasets.{split}",
                hint="is its data empty, or its batch size too large with drop_last?",
            )
        loss = scores.mean("loss")
        results = dict(task.end_eval(split, **kwargs) or {})
    if loss is not None:
        results.setdefault("loss", loss)
    numbers = {f"{split}/{name}": value for name, value in results.items() if _is_number(value)}
    run.log({**numbers, f"time/eval_{split}": time.perf_counter() - begin})
    run.evaluated(split, results)
    return results


def infer(run: Run, split: str = "inference") -> Iterator[tuple[Any, Any]]:
    """`(batch, what the output pipes gave)` for every batch of a split; nothing is scored."""
    dataset, loader_kwargs = run.task.dataset(split)
    loader = get_dataloader(dataset, seed=derive(run.seed, "eval", split), **loader_kwargs)
    run.model.eval()
    with torch.no_grad(), _bar(run, split, _length(loader, run.max_batches)) as bar:
        for batch in _limited(loader, run.max_batches):
            yield batch, _outputs(run.task.eval_step(batch, needs_loss=False))
            bar.step()
            if run.stopping:
                break


def log_loss(run: Run, outputs: Any) -> None:
    """Hands the loss that a model returned to the metrics: its sum and count, or a mean with the weight it states."""
    if not isinstance(outputs, Mapping):  # a task with a step of its own may return what it likes
        return
    if "loss_sum" in outputs:
        run.metrics.log("loss", outputs["loss_sum"], outputs["count"])
    elif outputs.get("loss") is not None:
        weight = outputs.get("count", 1)
        run.metrics.log("loss", outputs["loss"] * weight, weight)
    if "tokens" in outputs:
        run.metrics.log("tokens", outputs["tokens"])


class Pace:
    """When numbers are due, and what is logged then; between two times nothing is read from the device."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.sched = run.train_sched
        self.due = self.sched.num_updates + run.log_every
        self._time, self._step = time.perf_counter(), self.sched.cur_step

    def is_due(self) -> bool:
        return bool(self.sched.num_updates >= self.due)

    def log(self) -> None:
        run, sched = self.run, self.sched
        now = time.perf_counter()
        seconds, steps = now - self._time, max(sched.cur_step - self._step, 1)
        sums = run.metrics.current.sums()
        tokens, targets = sums.get("tokens", (0, 0))[0], sums.get("loss", (0, 0))[1]
        # the numbers of this window are read from the device here, once, instead of at every step
        values = {f"train/{name}": mean for name, mean in run.metrics.turn_over().items() if name != "tokens"}
        values["train/lr"] = run.optim.get_lr()[0]
        norm = getattr(run.optim, "grad_norm", None)
        if norm is not None:
            values["train/grad_norm"] = float(norm)
        values["time/step"] = seconds / steps
        values["time/steps_per_s"] = steps / seconds
        values["time/targets_per_s"] = float(targets) / seconds  # tokens or samples: whatever the loss counts
        if tokens:
            values["time/tokens_per_s"] = float(tokens) / seconds
        values |= system_values(run.device)
        run.log(values)
        self.due = sched.num_updates + run.log_every
        self._time, self._step = time.perf_counter(), sched.cur_step


def system_values(device: torch.device | None) -> dict[str, float]:
    """Memory in use, in MiB."""
    values = {}
    with contextlib.suppress(OSError), open("/proc/self/statm") as statm:
        values["system/rss"] = int(statm.read().split()[1]) * PAGE / 2**20
    if device is not None and device.type == "cuda":
        values["system/gpu_memory"] = torch.cuda.max_memory_allocated(device) / 2**20
    return values


def _train_batches(run: Run, epoch: int) -> tuple[Iterable[Any], int | None]:
    """The batches of an epoch and their number; the order is a function of (seed, epoch)."""
    dataset, kwargs = run.task.dataset("train")
    order = 0 if run.overfit else epoch
    loader = get_dataloader(dataset, seed=derive(run.seed, "order", order), **kwargs)
    limit = run.overfit or run.max_batches
    return _limited(loader, limit), _length(loader, limit)


def _limited(loader: Iterable[Any], limit: int) -> Iterable[Any]:
    return itertools.islice(loader, limit) if limit else loader


def _length(loader: Any, limit: int) -> int | None:
    try:
        length = len(loader)
    except (TypeError, NotImplementedError):
        return limit or None
    return min(length, limit) if limit else length


def _finish_window(run: Run) -> None:
    """Steps the last, partial accumulation window, with the count that it has."""
    flush = getattr(getattr(run.model, "backward", None), "flush", None)
    if flush is not None:
        flush()


def _outputs(answer: Any) -> Any:
    """What `eval_step` gave: old tasks return only a text, or a text and the outputs."""
    if isinstance(answer, tuple) and len(answer) == 2:
        return answer[1]
    return None if isinstance(answer, str) else answer


def _is_number(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.numel() == 1
    return isinstance(value, int | float) and not isinstance(value, bool)


@contextlib.contextmanager
def _bar(run: Run, what: str, total: int | None) -> Iterator[Bar]:
    """The progress bar as global `pbar`; a bar around it waits meanwhile, since a terminal has one live line."""
    outer = run.try_get_global("pbar")
    if isinstance(outer, Bar):
        outer.stop()
    bar = Bar(what, total, run.console or Console())
    run.set_global("pbar", bar)
    run.loggers.append(bar.take)
    try:
        with bar:
            yield bar
            bar.finish()
    finally:
        run.loggers.remove(bar.take)
        run.pop_global("pbar")
        if outer is not None:
            run.set_global("pbar", outer)
        if isinstance(outer, Bar):
            outer.start()


def announce(run: Run) -> None:
    """Says before the first step what is going to happen: examples, batch, accumulation, updates."""
    dataset, kwargs = run.task.dataset("train")
    loader = get_dataloader(dataset, seed=derive(run.seed, "order", 0), **kwargs)
    steps = _length(loader, run.overfit or run.max_batches)
    period = getattr(getattr(run.model, "backward", None), "period", 1)
    rows = {
        "examples": _length(dataset, 0),
        "batch size": kwargs.get("batch_size") or "made by the pipes",
        "steps an epoch": steps,
        "accumulation": period,
        "updates in all": getattr(run.train_sched, "num_training_steps", None),
        "trainable parameters": sum(p.numel() for p in run.model.model.parameters() if p.requires_grad),
    }
    logger.info("training: {}", ", ".join(f"{name} {_said(value)}" for name, value in rows.items()))


def _said(value: Any) -> str:
    return "unknown" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
