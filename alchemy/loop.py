"""Training, evaluation and inference loops: the only code that feeds batches to a model."""

from __future__ import annotations

import contextlib
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from loguru import logger
from torch.utils.data import IterableDataset

from alchemy.context import Run, current_run
from alchemy.data.batch_sampler import WHOLE, EpochPosition
from alchemy.data.epoch_batches import UNSPLIT, EpochBatches
from alchemy.data.loader import Loader, get_dataloader
from alchemy.data.peek import describe, shorten_item
from alchemy.data.pipe_chain import is_unsplit
from alchemy.data.pipe_errors import name_samples
from alchemy.errors import AlchemyError, RunFailed
from alchemy.launch.signals import Interrupted
from alchemy.metrics.metric_stack import Scope
from alchemy.metrics.scalars import numbers_in
from alchemy.progress import Bar, Terminal
from alchemy.registry import add_location, where_of
from alchemy.seeds import Generators, derive, mix, reseed
from alchemy.training_log import TrainingLog, check_progress

BUDGETS = {"max_tokens": "tokens", "max_sentences": "samples"}


class EvaluationInterrupted(Interrupted):
    """Raised between two batches of an evaluation when the run has received a signal."""

    saved = False


def train(run: Run) -> None:
    """Train until the schedule ends or a stop is requested.

    Your own parts are called at ten points, in this order::

        plugin.__init__()                                   1
        for epoch in schedule:                              begin-epoch pipes   2
            for batch in loader:
                schedule.begin_train_step(batch)            begin-step pipes    3
                with updater.micro_batch(batch):
                    task.step(batch)                        model.forward and loss; updater.accumulate(loss)
                updater.step()                              once a window is full: divide, clip, optimizer, schedule
                schedule.end_train_step(outputs)            end-step pipes      4
                    evaluate(split)                         if an end-step or end-epoch pipe requests it:
                        pipe.begin_eval(split)              eval pipes          5
                        outputs = pipe(outputs, batch)      output pipes        6
                        scores = pipe(split, **scores)      eval pipes          7
                every `log_every` updates:
                    plugin.log(values, update)              8
            schedule.end_train_epoch()                      end-epoch pipes     9
        plugin.exit()                                       10
    """
    sched, training_log = run.train_sched, TrainingLog(run)
    if run.stop_request.reason and sched.cut_short:
        return  # the last epoch is already complete
    with _save_on_interrupt(run):
        for epoch in sched:
            feed = open_feed(run, epoch)
            if not sched.is_pending("end_epoch") and not _train_epoch(run, training_log, feed):
                return
            sched.end_train_epoch()
            if run.stop_request.reason and not (feed.exhausted or feed.last):
                sched.reopen_epoch()  # if the run is resumed with a later end, it continues with the rest of this epoch
            _end_epoch(run)
            if run.stop_request.signal is not None:
                run.checkpoints.save(run.where, "signal")
            if run.stop_request.is_made or run.limits.max_batches:
                return


def _train_epoch(run: Run, training_log: TrainingLog, feed: EpochBatches) -> bool:
    """Run the remaining steps of an epoch and its last update; return False if a signal interrupted it."""
    sched, epoch = run.train_sched, run.train_sched.cur_epoch
    stream = derive(run.seed, "step", run.group.rank)
    with (
        progress_bar(run, run.epoch_name, feed.total, feed.done) as bar,
        run.metrics.scope("epoch") as whole,
        run.metrics.scope("recent"),
        _save_on_interrupt(run),  # inside the scopes, whose sums are part of the state
    ):
        if sched.is_pending("end_step"):  # resumed after a signal interrupted an evaluation
            _after_step(run, training_log, bar, "", sched.outputs)
        for batch in () if run.stop_request.is_made else feed:
            # the model's random numbers depend only on (seed, update, step), not on earlier draws
            reseed(mix(stream, sched.num_updates, sched.cur_step + 1))
            sched.begin_train_step(batch)
            if sched.cur_step == 0:
                logger.debug("first batch: {}\n{}", describe(batch), shorten_item(batch))
            run.model.train()
            text, outputs = _step(run, feed, batch)
            _after_step(run, training_log, bar, text, outputs)
            if run.stop_request.is_made:
                break
        if run.stop_request.signal is not None:
            run.checkpoints.save(run.where, "signal")
            return False
        _finish_window(run, training_log)
        _log_epoch(run, whole)
    if feed.exhausted:
        run.ledger.close_epoch(epoch, *feed.loader.coverage())
    return True


@contextlib.contextmanager
def _save_on_interrupt(run: Run) -> Iterator[None]:
    """Save a checkpoint when a signal interrupts an evaluation; a resumed run repeats that evaluation."""
    try:
        yield
    except EvaluationInterrupted as interruption:
        # with several processes, the gradients of an open window differ, and only those on rank 0 would be saved
        if not interruption.saved and run.train_sched.resumable and (run.group.size == 1 or not run.mid_window):
            run.checkpoints.save(run.where, "signal")
        interruption.saved = True
        raise


def _step(run: Run, feed: EpochBatches, batch: object) -> tuple[str, Any]:
    """Run the forward and backward passes, and the update once the window is full; errors name the samples."""
    loader, updater = feed.loader, run.updater
    run.progress.window.append(loader.ids)
    try:
        with updater.micro_batch(batch, last=feed.last, real=loader.real):
            text, outputs = run.precision.attempt(run.task.step, batch)
        if updater.is_full:
            updater.step()
    except Exception as error:
        sched, samples = run.train_sched, name_samples(error, loader.dataset, loader.own)
        rank = f", rank {run.group.rank}" if run.group.size > 1 else ""
        place = f"in {run.epoch_name}, update {sched.num_updates + 1}, step {sched.cur_step}"
        error.add_note(f"{place}{rank}{samples}")
        raise
    if loader.real:
        log_loss(run, outputs)
    run.ledger.add_step(loader.own, lambda: loader.digest(batch))
    return text, outputs


def _after_step(run: Run, training_log: TrainingLog, bar: Bar, text: str, outputs: object) -> None:
    run.train_sched.end_train_step(outputs)
    bar.step(text)
    _after_update(run, training_log)


def _after_update(run: Run, training_log: TrainingLog) -> None:
    """Record the samples of a complete update, check the stop rules and save a checkpoint if one is due."""
    if training_log.is_due():
        training_log.log()
    update = run.train_sched.num_updates
    if update == training_log.update or run.updater.is_open:
        return
    training_log.update = update
    run.progress.window.clear()
    run.ledger.close_update(update, run.train_sched.cur_epoch)
    run.rules.after_update(run)
    run.checkpoints.after_update(run.where)


def _log_epoch(run: Run, whole: Scope) -> None:
    check_progress(run)
    run.metrics.turn_over(run.group.gather)
    values = whole.reduce(run.group.gather)
    run.log({f"train/{name}_epoch": value for name, value in values.items() if name != "tokens" and "/" not in name})


def _end_epoch(run: Run) -> None:
    sched = run.train_sched
    if not sched.num_updates:
        logger.warning("no updates were counted in {}: does the scheduler's step_lr() call super()?", run.epoch_name)
    run.rules.after_update(run)
    run.progress.window.clear()
    run.ledger.flush()
    run.checkpoints.after_epoch(run.where)


def evaluate(split: str = "dev", needs_loss: bool = True, **kwargs: Any) -> dict[str, Any]:
    """Evaluate the current model on a split and return the scores, including the mean loss."""
    run = current_run()
    task, model = run.task, run.model
    loader = loader_of(run, split, derive(run.seed, "eval", split))
    begin, logs_own_loss = time.perf_counter(), False
    with (
        _restore_rng_on_interrupt(),
        run.metrics.scope(split, root=True) as scores,
        torch.no_grad(),
        run.average.applied(),
    ):
        task.begin_eval(split, **kwargs)
        model.eval()
        with progress_bar(run, split, _length(loader, run.limits.max_batches)) as bar:
            for batch in _limit(loader, run.limits.max_batches):
                _reseed_evaluation(run, split, bar.done)
                run.progress.evaluated_samples = loader.own
                try:
                    _, outputs = run.precision.attempt(task.eval_step, batch, needs_loss=needs_loss)
                except Exception as error:
                    error.add_note(f"while evaluating {split}{name_samples(error, loader.dataset, loader.own)}")
                    raise
                # a task with a custom step may not log its loss; the first batch shows whether it does
                logs_own_loss = "loss" in scores if not bar.done else logs_own_loss
                if needs_loss and not logs_own_loss:
                    log_loss(run, outputs)
                bar.step()
                run.agree()
                if run.stop_request.signal is not None:
                    raise EvaluationInterrupted(run.stop_request.signal)
        loss = scores.mean("loss")
        results = dict(task.end_eval(split, **kwargs) or {})
    if loss is not None:
        results.setdefault("loss", loss)
    # scores may differ in the last bit, but all processes must agree on the best score and on when to stop
    results |= run.group.broadcast(numbers_in(results) if run.group.size > 1 else {})
    seconds = time.perf_counter() - begin
    run.progress.eval_seconds += seconds
    run.log({f"{split}/{name}": value for name, value in numbers_in(results).items()} | {f"time/eval_{split}": seconds})
    run.record_scores(split, results)
    return results


def evaluate_at_end(run: Run) -> None:
    """Evaluate the final weights on `dev`, unless an evaluation pipe has just done so."""
    if run.progress.scored_at.get("dev") != run.update and "dev" in run.task.splits:
        evaluate("dev")


@contextlib.contextmanager
def _restore_rng_on_interrupt() -> Iterator[None]:
    """Restore the random number generators if the evaluation is interrupted, so that a resumed run repeats it."""
    generators = Generators()
    before = generators.state_dict()
    try:
        yield
    except EvaluationInterrupted:
        generators.load_state_dict(before)
        raise


def infer(run: Run, split: str = "inference") -> Iterator[tuple[Any, Any]]:
    """Yield `(batch, outputs)` for every batch of a split, in dataset order and without scoring."""
    loader = loader_of(run, split, derive(run.seed, "eval", split), in_order=True)
    run.model.eval()
    with torch.no_grad(), progress_bar(run, split, _length(loader, run.limits.max_batches)) as bar:
        for batch in _limit(loader, run.limits.max_batches):
            _reseed_evaluation(run, split, bar.done)
            _, outputs = run.precision.attempt(run.task.eval_step, batch, needs_loss=False)
            yield batch, outputs
            bar.step()
            run.agree()
            if run.stop_request.signal is not None:
                raise EvaluationInterrupted(run.stop_request.signal)


def _reseed_evaluation(run: Run, split: str, step: int) -> None:
    """Reseed before each batch, so that random numbers do not depend on which process or worker loaded it."""
    reseed(derive(run.seed, "eval", split, run.update, step))


def log_loss(run: Run, outputs: object) -> None:
    """Log the loss that a model returned, either as a sum and a count or as a weighted mean."""
    if not isinstance(outputs, Mapping):  # a task with a custom step may return anything
        return
    if "loss_sum" in outputs:
        run.metrics.log("loss", outputs["loss_sum"], outputs["count"])
    elif outputs.get("loss") is not None:
        loss, weight = outputs["loss"], outputs.get("count", 1)
        if isinstance(loss, torch.Tensor):
            loss = loss.detach()  # the metrics store the value for later and must not keep its graph
        run.metrics.log("loss", loss * weight, weight)
    if "tokens" in outputs:
        run.metrics.log("tokens", outputs["tokens"])


def open_feed(run: Run, epoch: int) -> EpochBatches:
    """Return the remaining batches of an epoch; their order depends only on (seed, epoch)."""
    seed = derive(run.seed, "order", 0 if run.limits.overfit else epoch)
    group, done = run.group, run.train_sched.cur_step_this_epoch + 1 if run.train_sched is not None else 0
    dataset, kwargs = run.task.dataset("train")
    dealt = bool(kwargs.get("per_device")) or kwargs.get("batch_size") is None
    start = done * group.size if dealt and group.size > 1 and not isinstance(dataset, IterableDataset) else done
    loader = loader_of(run, "train", seed, EpochPosition(start, group.rank, group.size))
    feed = EpochBatches(loader, group, limit=run.limits.overfit or run.limits.max_batches)
    run.progress.epoch_steps = feed.total
    return feed


def loader_of(run: Run, split: str, seed: int = 0, place: EpochPosition = WHOLE, *, in_order: bool = False) -> Loader:
    """Return the loader of a split; errors in its options point to the table in the config.

    `in_order` keeps the dataset order even if batches would otherwise be sorted by length.
    """
    dataset, kwargs = run.task.dataset(split)
    if in_order and kwargs.keys() & {"max_tokens", "max_sentences"}:
        kwargs |= {"sort_by_length": False, "shuffle": False}
    if run.device is not None and run.device.type == "cpu":
        kwargs.setdefault("pin_memory", False)  # pinning is useless if the run does not use a GPU
    if "seed" in kwargs:  # a split's own seed must not make every epoch the same
        seed = derive(kwargs.pop("seed"), seed)
    try:
        return get_dataloader(dataset, seed=seed, place=place, **kwargs)
    except AlchemyError as error:
        if type(error) is not AlchemyError:
            raise
        table = (run.table("task").get("datasets") or {}).get(split)
        raise add_location(error, where_of(table), f"task.datasets.{split}") from error


def _limit(loader: Iterable[Any], limit: int) -> Iterable[Any]:
    return itertools.islice(loader, limit) if limit else loader


def _length(loader: Any, limit: int) -> int | None:
    try:
        length = len(loader)
    except (TypeError, NotImplementedError):
        return limit or None
    return min(length, limit) if limit else length


def _finish_window(run: Run, training_log: TrainingLog) -> None:
    """Make the update for the last, partial accumulation window."""
    run.updater.flush()
    _after_update(run, training_log)


@contextlib.contextmanager
def progress_bar(run: Run, what: str, total: int | None, done: int = 0) -> Iterator[Bar]:
    """Show a progress bar and set the global `pbar`; an outer bar is paused, since only one can be live."""
    outer, begin = run.symbols.try_get_global("pbar"), time.monotonic()
    if isinstance(outer, Bar):
        outer.stop()
    bar = Bar(what, total, run.console or Terminal(), done)
    run.symbols.set_global("pbar", bar)
    run.loggers.append(bar.update_values)
    try:
        with bar:
            yield bar
            bar.finish()
    finally:
        run.loggers.remove(bar.update_values)
        run.symbols.pop_global("pbar")
        if outer is not None:
            run.symbols.set_global("pbar", outer)
        if isinstance(outer, Bar):
            outer.first += time.monotonic() - begin  # exclude the pause from its rate
            outer.start()


def check_skipped_updates(run: Run) -> None:
    """Warn about skipped updates; raise an error if every update was skipped."""
    skipped, updates = run.updater.skipped, run.updater.attempts
    if skipped and skipped == updates and not run.precision.scales:
        raise RunFailed(f"all {skipped} updates were skipped because they were not finite: the model was not trained")
    if skipped:
        logger.warning("{} of {} updates were skipped", skipped, updates)


def _batch_size(kwargs: Mapping[str, Any]) -> str | None:
    """Describe the batch size; None if the pipes build the batches."""
    if kwargs.get("batch_size"):
        return f"{kwargs['batch_size']}{' per process' if kwargs.get('per_device') else ''}"
    budget = [f"{kwargs[key]:,} {what}" for key, what in BUDGETS.items() if kwargs.get(key)]
    return f"at most {' and '.join(budget)} per process" if budget else None


def announce(run: Run) -> None:
    """Log the size of the training run before its first step: examples, batch size, updates, parameters."""
    dataset, kwargs = run.task.dataset("train")
    if "dev" in run.task.splits and _length(run.task.dataset("dev")[0], 0) == 0:
        hint = "run `alchemy data peek` to see the output of each pipe"
        raise AlchemyError("the data is empty", section="task.datasets.dev", hint=hint)
    steps = run.progress.epoch_steps if run.progress.epoch_steps is not None else open_feed(run, 0).total
    period, size = run.updater.period, kwargs.get("batch_size")
    effective = (size or 0) * period * (run.group.size if kwargs.get("per_device") else 1)
    rows = {
        "examples": _length(dataset, 0) if size or "max_tokens" in kwargs or "max_sentences" in kwargs else None,
        "batch size": _batch_size(kwargs),
        "processes": run.group.size if run.group.size > 1 else None,
        "effective batch size": effective if effective != (size or 0) else None,
        "steps per epoch": steps,
        "accumulation": period if period > 1 else None,
        "total updates": run.train_sched.total_updates,
        "trainable parameters": sum(p.numel() for p in run.model.model.parameters() if p.requires_grad),
    }
    shown = {
        name: f"{value:,}" if isinstance(value, int) else value for name, value in rows.items() if value is not None
    }
    logger.info("training: {}", ", ".join(f"{name} {value}" for name, value in shown.items()))
    if run.group.size > 1 and is_unsplit(dataset):
        logger.warning(UNSPLIT, *[run.group.size] * 2)
