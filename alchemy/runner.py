"""Runners for training, testing and inference, and `run`, which starts one or more of them."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, TypedDict, Unpack

import torch
from loguru import logger

from alchemy.average import build_average
from alchemy.config.check import raise_if_wrong
from alchemy.config.load import prepare_cfg
from alchemy.config.tree import Document
from alchemy.context import Run, find_run
from alchemy.errors import AlchemyError, Refused, RunFailed
from alchemy.launch.allocator import keep_memory
from alchemy.launch.device import alloc
from alchemy.launch.process_group import Sharing, first_failure, local_device, open_group
from alchemy.launch.project_imports import add_to_path, import_roots
from alchemy.launch.ranks import get_rank_info
from alchemy.launch.signals import handle_signals
from alchemy.launch.worker_pool import LostJob, run_all
from alchemy.legacy.adapt import adapt, build_updater
from alchemy.legacy.dataloader import get_dataloader
from alchemy.legacy.keywords import fill_keywords
from alchemy.loop import EvaluationInterrupted, announce, check_skipped_updates, evaluate, evaluate_at_end, infer, train
from alchemy.optim import build_optimizer
from alchemy.pipeline.output import PredictionFile
from alchemy.plain_model import build_model
from alchemy.plugins.base import start_plugin
from alchemy.plugins.log_sinks import plain_console, stdlib_logging
from alchemy.precision import build_precision
from alchemy.progress import Terminal
from alchemy.registry import Registrable, add_location, construct, set_adapter
from alchemy.result import FailedRun, RunResult, explain_error, fail_if_ignored, log_failure
from alchemy.sched import build_sched
from alchemy.seeds import preserve_rng_state, seed_everything, seed_worker
from alchemy.state import open_state, save_bad_update
from alchemy.stop import build_rules
from alchemy.task import build_task, load_datasets
from alchemy.update import NotFinite

__all__ = [
    "ALchemyTester",
    "AlchemyInferenceRunner",
    "AlchemyRunner",
    "AlchemyTrainer",
    "InferenceRunner",
    "RunResult",
    "Tester",
    "Trainer",
    "evaluate",
    "get_dataloader",
    "run",
    "run_task",
    "seed_worker",
]

set_adapter(fill_keywords)


class Settings(TypedDict, total=False):
    """Command-line settings of a run, stored as globals in its symbol table."""

    user_dir: str
    desc: str
    debug: bool
    no_file: bool


class AlchemyRunner(Registrable):
    """Base class for runners; projects may subclass it. The constructor starts the plugins."""

    kind: ClassVar[str] = "train"  # of the records that it writes: train, test or predict

    def __init__(
        self,
        cfg: MutableMapping[str, Any],
        device_info: dict[str, Any] | None = None,
        *,
        user_dir: str = "src",
        desc: str = "",
        debug: bool = False,
        no_file: bool = False,
    ) -> None:
        self.context, self._owns_run = _open_run(cfg, device_info)
        context = self.context
        context.kind = self.kind
        context.device_info = device_info or {"device": "cpu"}
        context.device = torch.device(context.device_info["device"])
        context.ctime = datetime.datetime.now()
        context.console = Terminal(quiet=not context.group.is_main)  # other processes would print the same output
        context.exits.callback(context.console.close)
        context.symbols.trained_at = context.cfg.trained_at
        context.symbols.globals |= {"user_dir": user_dir, "desc": desc, "debug": debug, "no_file": no_file}
        seed_everything(context.seed)
        context.exits.enter_context(stdlib_logging("DEBUG" if context.debug else "INFO"))
        context.default_log.enter_context(plain_console(context.console))
        context.plugins = []
        try:
            self.start_plugins()
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        for warning in context.cfg.warnings:  # logged here so that the console and run.log both show them
            logger.log("INFO" if warning.note else "WARNING", "{}", warning)

    def start_plugins(self) -> None:
        """Start the plugins in list order; override to set additional symbols first."""
        for i, table in enumerate(self.context.cfg.get("plugins") or []):
            self.context.plugins.append(start_plugin(self.context, table, f"plugins.{i}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """Close the run if this runner opened it: `with AlchemyRunner.from_registry(..) as runner: runner.run()`."""
        if self._owns_run:
            self.context.__exit__(*error)

    @property
    def data(self) -> dict[str, Any]:
        """The global symbols, under the name used by older projects."""
        return self.context.symbols.globals

    def run(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define run()")

    @contextlib.contextmanager
    def _looping(self) -> Iterator[None]:
        """Inside this block, the first Ctrl-C or SIGTERM stops the loop at the next step boundary."""
        self.context.in_loop = True
        yield
        self.context.in_loop = False  # not after an error, because a signal must not hide its cause


@AlchemyRunner.register("Trainer")
class AlchemyTrainer(AlchemyRunner):
    """A runner that trains a model, evaluates it at the end and saves the final checkpoint."""

    def set_up(self) -> None:
        """Build the task, model, data, optimizer, schedule and everything else that training needs."""
        context = self.context
        prepare(context)
        context.optim = build_optimizer(context)
        context.updater = build_updater(context, context.model)
        context.train_sched = build_sched(context)
        context.average = build_average(context)
        context.rules = build_rules(context)
        context.precision.prepare(context.model)
        sharing = construct(Sharing, context.table("ddp"), section="ddp")
        context.model.model = context.group.wrap(context.model.model, sharing)

    def run(self) -> Any:
        context = self.context
        self.set_up()
        open_state(context)
        announce(context)
        with self._looping():
            try:
                train(context)
                if context.stop_request.signal is None:
                    check_skipped_updates(context)
                    evaluate_at_end(context)
                    context.checkpoints.save(context.where, "end")
            except EvaluationInterrupted as interruption:  # interrupted by a signal, which is not a failure
                if not interruption.saved:
                    context.checkpoints.save(context.where, "signal")
            except NotFinite as error:
                save_bad_update(context, error)
                raise
        return context.progress.scores.get("dev") or next(reversed(context.progress.scores.values()), {})


@AlchemyRunner.register("Tester")
class ALchemyTester(AlchemyRunner):
    """A runner that evaluates the `test` split; it needs neither an optimizer nor a schedule."""

    kind = "test"

    def run(self) -> Any:
        prepare(self.context)
        with self._looping():
            return evaluate("test", needs_loss=False)


@AlchemyRunner.register("InferenceRunner")
class AlchemyInferenceRunner(AlchemyRunner):
    """A runner that passes the `inference` split through the output pipes and writes the results.

    The rows are written to the `out` file, by default `results/predictions.<suffix>` in the record.
    """

    kind = "predict"

    def __init__(
        self,
        cfg: MutableMapping[str, Any],
        device_info: dict[str, Any] | None = None,
        *,
        out: str = "",
        suffix: str = "jsonl",
        **settings: Unpack[Settings],
    ) -> None:
        self.out, self.suffix = out, suffix
        super().__init__(cfg, device_info, **settings)

    def run(self) -> Any:
        context = self.context
        prepare(context)
        with self._looping(), PredictionFile.of(context, self.out, self.suffix) as file:
            prepare_rows = (
                context.task.row_writer(file.path.with_name(f"{file.path.stem}_files")) if file.path else None
            )
            for _, outputs in infer(context):
                file.write(prepare_rows(outputs) if prepare_rows else outputs)
        return {"predictions": file.rows, "file": str(file.path) if file.path else None}


Trainer, Tester, InferenceRunner = AlchemyTrainer, ALchemyTester, AlchemyInferenceRunner


def prepare(context: Run) -> None:
    """Build the task, the model and the datasets, in the order that projects rely on."""
    context.precision = build_precision(context)
    context.task = build_task(context)
    context.model = build_model(context)
    adapt(context, context.task, context.model)
    context.model.to(context.device)
    load_datasets(context)
    if context.cfg.weights:
        logger.info("weights: {}", context.cfg.weights)


def run_task(
    cfg: Any,
    device_info: dict[str, Any] | None = None,
    *,
    raise_errors: bool = False,
    fast_dev_run: int = 0,
    overfit: int = 0,
    resume_from: Path | None = None,
    allowed: Iterable[str] = (),
    **options: Any,
) -> RunResult:
    """Run one config in this process; unless `raise_errors` is set, errors are captured in the result.

    `options` are passed to the runner.
    """
    user_dir = options.get("user_dir") or "src"
    document = cfg if isinstance(cfg, Document) else prepare_cfg(cfg, user_dir=user_dir)
    context: Run | None = None
    try:
        # a nested run must not change the random numbers of the outer one
        around = preserve_rng_state() if find_run() is not None else contextlib.nullcontext()
        resume_args = (resume_from, frozenset(allowed))
        with (
            around,
            _open_context(document, device_info, resume_args) as context,
            handle_signals(context.handle_signal),
        ):
            device_info = context.device_info
            context.limits.max_batches, context.limits.overfit = fast_dev_run, overfit
            try:
                add_to_path(user_dir)
                with _runner_class(context.cfg)(context.cfg, device_info, **options) as runner:
                    ret = runner.run()
                    context.ret = ret if context.ret is None else context.ret
            except SystemExit as error:  # would end the calling program without a result
                raise RunFailed(f"a part called sys.exit({error.code!r})") from error
            except Refused:  # not a failure: the run was not resumed
                raise
            except Exception as error:
                other = first_failure(context.group, error)
                # if another process failed first, the error here is only a consequence
                failure = RunFailed(other.reason) if other else explain_error(error)
                log_failure(context, failure, other)
                if failure is not error:
                    raise failure from error
                raise
    except (Exception, KeyboardInterrupt) as error:
        if raise_errors or context is None:
            raise
        return fail_if_ignored(FailedRun.during(error, context))
    return RunResult.of(context)


@contextlib.contextmanager
def _open_context(
    document: Document, device_info: dict[str, Any] | None, resume_options: tuple[Any, Any]
) -> Iterator[Run]:
    """Open a run; processes started by torchrun all use the config and the options of rank 0."""
    info = local_device(device_info or {"device": "cpu"})
    with open_group(torch.device(info["device"]).type) as group:
        if group.size > 1:
            # a random seed is drawn once, and the record to resume is looked up once
            document, resume_options = group.broadcast((document, resume_options))
        with Run(document, info) as context:
            context.group = context.metrics.group = group
            context.resume_from, context.allowed = resume_options
            yield context


def run(
    cfgs: Sequence[Any],
    device: Sequence[int] | None = None,
    user_dir: str = "src",
    desc: str = "",
    debug: bool = False,
    no_file: bool = False,
    force_mp: bool = False,
    task_per_device: int = 1,
    *,
    run_task_fn: Callable[..., RunResult] | None = None,
    raise_errors: bool = False,
    fast_dev_run: int = 0,
    overfit: int = 0,
    strict: bool = False,
    resume_from: str | Path | None = None,
    allowed: Sequence[str] = (),
) -> list[RunResult]:
    """Run every config (path, mapping or document) and return the results in the same order.

    A single config runs in this process. Several configs run in separate processes, at most `task_per_device` per
    device at a time. All configs are checked before the first run starts. `resume_from`, a record folder, resumes a
    single config from its latest valid checkpoint.
    """
    cfgs = [cfgs] if isinstance(cfgs, str | Path | Mapping) else cfgs
    device = [device] if isinstance(device, int) else device
    if get_rank_info().size > 1 and (len(cfgs) > 1 or force_mp):
        raise AlchemyError("torchrun supports a single config", hint="start torchrun once per config")
    kwargs: dict[str, Any] = {"user_dir": user_dir, "desc": desc, "debug": debug}
    kwargs |= {"no_file": no_file or bool(fast_dev_run), "fast_dev_run": fast_dev_run, "overfit": overfit}
    if resume_from is not None:
        if len(cfgs) != 1:
            raise AlchemyError("only one record can be resumed at a time")
        kwargs |= {"resume_from": Path(resume_from), "allowed": tuple(allowed)}
    checked = [_check(cfg, user_dir, strict, raise_errors) for cfg in cfgs]
    good = [cfg for cfg in checked if isinstance(cfg, Document)]
    devices, job = alloc(device, count=len(good)), run_task_fn or run_task
    if len(cfgs) == 1 and not force_mp:
        outcomes = [job(cfg, devices[0], raise_errors=raise_errors, **kwargs) for cfg in good]
    else:
        signals: list[int] = []
        calls = [(job, cfg, kwargs) for cfg in good]
        outcomes = run_all(_in_worker, calls, list(devices) * max(task_per_device, 1), signals.append)
        for outcome in outcomes:
            if signals and not isinstance(outcome, LostJob) and outcome.signal:
                outcome.signal = signals[0]  # the signal sent by the user
        pairs = zip(good, outcomes, strict=True)
        outcomes = [FailedRun.lost(cfg, outcome) if isinstance(outcome, LostJob) else outcome for cfg, outcome in pairs]
        if raise_errors and (failed := [outcome for outcome in outcomes if isinstance(outcome, FailedRun)]):
            raise failed[0]
    remaining = iter(outcomes)
    results = [next(remaining) if isinstance(cfg, Document) else cfg for cfg in checked]
    for result in results:
        fail_if_ignored(result)  # not in a comprehension, whose frame would hide the calling script
    return results


def _check(cfg: object, user_dir: str, strict: bool, raise_errors: bool) -> Document | FailedRun:
    try:
        if not isinstance(cfg, str | Path | Mapping):
            raise AlchemyError(f"expected a path or a mapping as a config, got {cfg!r}")
        document = cfg if isinstance(cfg, Document) else prepare_cfg(cfg, user_dir=user_dir)
        document.warnings = raise_if_wrong(document, strict=strict, roots=import_roots(user_dir))
    except AlchemyError as error:
        if raise_errors:
            raise
        return FailedRun.caused_by(error, cfg)
    return document


def _in_worker(job: Any, cfg: Document, kwargs: dict[str, Any], device_info: dict[str, Any]) -> RunResult:
    # several runs share one terminal, where live progress bars would overwrite each other
    os.environ["TTY_COMPATIBLE"] = "0"
    keep_memory()
    return job(cfg, device_info, **kwargs).portable()


def _open_run(cfg: Any, device_info: dict[str, Any] | None) -> tuple[Run, bool]:
    """Return the open run, or a new one (and True) if a script builds the runner itself."""
    run = find_run()
    if run is not None and run.cfg is cfg:
        return run, False
    return Run(cfg, device_info).__enter__(), True


def _runner_class(cfg: Document) -> type[AlchemyRunner]:
    name = cfg.get("runner", "alchemy.runner.Trainer")
    try:
        return AlchemyRunner.resolve_registered_module(name)
    except AlchemyError as error:
        raise add_location(error, cfg.where("runner"), "") from error
