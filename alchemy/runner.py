"""The runs that alchemy knows: train, test, infer; and the way to start one or many of them."""

from __future__ import annotations

import contextlib
import datetime
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any, Self, TypedDict, Unpack

import torch
from loguru import logger

from alchemy.average import build_average
from alchemy.config.check import raise_if_wrong
from alchemy.config.load import prepare_cfg
from alchemy.config.tree import Document
from alchemy.context import Run, find_run
from alchemy.data import loader
from alchemy.errors import AlchemyError, Refused, RunFailed
from alchemy.launch.allocator import keep_memory
from alchemy.launch.device import alloc
from alchemy.launch.process_group import Sharing, first_failure, get_rank_info, local_device, open_group
from alchemy.launch.project_imports import add_to_path, import_roots
from alchemy.launch.signals import handle_signals
from alchemy.launch.worker_pool import LostJob, run_all
from alchemy.legacy.adapt import adapt, build_updater
from alchemy.legacy.keywords import fill_keywords
from alchemy.loop import EvaluationInterrupted, announce, evaluate, evaluate_at_end, infer, tell_left_out, train
from alchemy.optim import build_optimizer
from alchemy.pipeline.output import PredictionFile
from alchemy.plain_model import build_model
from alchemy.plugins.base import start_plugin
from alchemy.plugins.log_sinks import plain_console, stdlib_logging
from alchemy.precision import build_precision
from alchemy.progress import Terminal
from alchemy.registry import Registrable, adapt_with, construct
from alchemy.result import FailedRun, RunResult, expect_a_look, log_failure, put_in_words
from alchemy.sched import build_sched
from alchemy.seeds import derive, seed_everything, seed_worker, unchanged_generators
from alchemy.state import keep_bad_update, keep_state
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

adapt_with(fill_keywords)


class Settings(TypedDict, total=False):
    """What the command line says about one run; the globals of its symbol table."""

    user_dir: str
    desc: str
    debug: bool
    no_file: bool


class AlchemyRunner(Registrable):
    """What a run does; a project may write its own. The plugins are there when the constructor is through."""

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
        context.device_info = device_info or {"device": "cpu"}
        context.device = torch.device(context.device_info["device"])
        context.ctime = datetime.datetime.now()
        context.console = Terminal(quiet=not context.group.is_main)  # the other processes would say the same
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
        for warning in context.cfg.warnings:  # here, so that console and run.log have them
            logger.log("INFO" if warning.note else "WARNING", "{}", warning)

    def start_plugins(self) -> None:
        """Builds the plugins in the order of the list; a runner with symbols of its own sets them before."""
        for i, table in enumerate(self.context.cfg.get("plugins") or []):
            self.context.plugins.append(start_plugin(self.context, table, f"plugins.{i}"))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        """Ends a run that the runner opened itself: `with AlchemyRunner.from_registry(..) as runner: runner.run()`."""
        if self._owns_run:
            self.context.__exit__(*error)

    @property
    def data(self) -> dict[str, Any]:
        """The global symbols, as old texts call them."""
        return self.context.symbols.globals

    def run(self) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define run()")

    @contextlib.contextmanager
    def _looping(self) -> Iterator[None]:
        """While this holds, the first Ctrl-C or SIGTERM is answered at the next step boundary."""
        self.context.in_loop = True
        yield
        self.context.in_loop = False  # not after an error: a signal must not take the place of the cause


@AlchemyRunner.register("Trainer")
class AlchemyTrainer(AlchemyRunner):
    """Task, model, data, optimizer, schedule; then epochs, an evaluation at the end, and the last state."""

    def set_up(self) -> None:
        """Builds everything that training needs."""
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
        keep_state(context)
        announce(context)
        with self._looping():
            try:
                train(context)
                if context.stop_request.signal is None:
                    tell_left_out(context)
                    evaluate_at_end(context)
                    context.checkpoints.save(context.where, "end")
            except EvaluationInterrupted as left:  # an evaluation was left for a signal, which is no failure
                if not left.saved:
                    context.checkpoints.save(context.where, "signal")
            except NotFinite as error:
                keep_bad_update(context, error)
                raise
        return context.progress.scores.get("dev") or next(reversed(context.progress.scores.values()), {})


@AlchemyRunner.register("Tester")
class ALchemyTester(AlchemyRunner):
    """Scores the split `test`; needs neither optimizer nor schedule."""

    def run(self) -> Any:
        prepare(self.context)
        with self._looping():
            return evaluate("test", needs_loss=False)


@AlchemyRunner.register("InferenceRunner")
class AlchemyInferenceRunner(AlchemyRunner):
    """Runs the split `inference` through the output pipes and writes what they give.

    The rows go to the file `out`, or else to `results/predictions.<suffix>` of the record.
    """

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
            for _, outputs in infer(context):
                file.write(outputs)
        return {"predictions": file.rows, "file": str(file.path) if file.path else None}


Trainer, Tester, InferenceRunner = AlchemyTrainer, ALchemyTester, AlchemyInferenceRunner


def prepare(context: Run) -> None:
    """Task, model and data, in the order that projects rely on: each sees the ones before it."""
    context.precision = build_precision(context)
    context.task = build_task(context)
    context.model = build_model(context)
    adapt(context, context.task, context.model)
    context.model.to(context.device)
    load_datasets(context)
    if context.cfg.weights:
        logger.info("weights: {}", context.cfg.weights)


def get_dataloader(dataset: object, seed: int = 0, **kwargs: Any) -> loader.Loader:
    """The loader of a data set, for loops that a project writes itself.

    Without a seed of its own it follows the run: another order in every epoch, the same for the same seed.
    """
    run = find_run()
    if not seed and run is not None:
        seed = derive(run.seed, "order", run.where.epoch)
    return loader.get_dataloader(dataset, seed=seed, **kwargs)


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
    """One run in this process; what goes wrong is captured in its result, unless `raise_errors`.

    `options` are keywords of the runner.
    """
    user_dir = options.get("user_dir") or "src"
    document = cfg if isinstance(cfg, Document) else prepare_cfg(cfg, user_dir=user_dir)
    context: Run | None = None
    try:
        # a run inside a run must not change what the outer one draws
        around = unchanged_generators() if find_run() is not None else contextlib.nullcontext()
        going_on = (resume_from, frozenset(allowed))
        with around, _together(document, device_info, going_on) as context, handle_signals(context.ask_to_end):
            device_info = context.device_info
            context.limits.max_batches, context.limits.overfit = fast_dev_run, overfit
            try:
                add_to_path(user_dir)
                with _runner_of(context.cfg)(context.cfg, device_info, **options) as runner:
                    ret = runner.run()
                    context.ret = ret if context.ret is None else context.ret
            except SystemExit as error:  # it would end the program that started the run, with nothing to show for it
                raise RunFailed(f"a part called sys.exit({error.code!r})") from error
            except Refused:  # nothing has failed: the run was not taken up
                raise
            except Exception as error:
                other = first_failure(context.group, error)
                # where another process failed first, what broke here is only that it is gone
                failure = RunFailed(other.reason) if other else put_in_words(error)
                log_failure(context, failure, other)
                if failure is not error:
                    raise failure from error
                raise
    except (Exception, KeyboardInterrupt) as error:
        if raise_errors or context is None:
            raise
        return expect_a_look(FailedRun.during(error, context))
    return RunResult.of(context)


@contextlib.contextmanager
def _together(document: Document, device_info: dict[str, Any] | None, going_on: tuple[Any, Any]) -> Iterator[Run]:
    """A run alone, or together with the other processes that torchrun has started: as the first one has it."""
    info = local_device(device_info or {"device": "cpu"})
    with open_group(torch.device(info["device"]).type) as group:
        if group.size > 1:
            # a seed that was drawn is drawn once, and a record to go on with is looked for once
            document, going_on = group.broadcast((document, going_on))
        with Run(document, info) as context:
            context.group = context.metrics.group = group
            context.resume_from, context.allowed = going_on
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
    """Runs every config (paths, mappings, documents) and returns their results in the same order.

    One config runs in this process. Several run in processes of their own, as many at once as there are devices times
    `task_per_device`. All are checked before the first one starts. With `resume_from`, a record folder, the one config
    goes on from its newest valid state.
    """
    if isinstance(cfgs, str | Path | Mapping):
        cfgs = [cfgs]
    if isinstance(device, int):
        device = [device]
    if get_rank_info().size > 1 and (len(cfgs) > 1 or force_mp):
        raise AlchemyError("several processes train one config together", hint="give torchrun one config at a time")
    kwargs: dict[str, Any] = {"user_dir": user_dir, "desc": desc, "debug": debug}
    kwargs |= {"no_file": no_file or bool(fast_dev_run), "fast_dev_run": fast_dev_run, "overfit": overfit}
    if resume_from is not None:
        if len(cfgs) != 1:
            raise AlchemyError("one record is resumed at a time")
        kwargs |= {"resume_from": Path(resume_from), "allowed": tuple(allowed)}
    checked = [_checked(cfg, user_dir, strict, raise_errors) for cfg in cfgs]
    good = [cfg for cfg in checked if isinstance(cfg, Document)]
    devices = alloc(device, count=len(good))
    job = run_task_fn or run_task
    if len(cfgs) == 1 and not force_mp:
        answers = [job(cfg, devices[0], raise_errors=raise_errors, **kwargs) for cfg in good]
    else:
        told: list[int] = []
        calls = [(job, cfg, kwargs) for cfg in good]
        answers = run_all(_in_worker, calls, list(devices) * max(task_per_device, 1), told.append)
        for answer in answers:
            if told and not isinstance(answer, LostJob) and answer.signal:
                answer.signal = told[0]  # the one that the user sent
        pairs = zip(good, answers, strict=True)
        answers = [FailedRun.lost(cfg, answer) if isinstance(answer, LostJob) else answer for cfg, answer in pairs]
        if raise_errors and (failed := [answer for answer in answers if isinstance(answer, FailedRun)]):
            raise failed[0]
    following = iter(answers)
    results = [next(following) if isinstance(cfg, Document) else cfg for cfg in checked]
    for result in results:
        expect_a_look(result)
    return results


def _checked(cfg: object, user_dir: str, strict: bool, raise_errors: bool) -> Document | FailedRun:
    try:
        if not isinstance(cfg, str | Path | Mapping):
            raise AlchemyError(f"a config is a path or a mapping, not {cfg!r}")
        document = cfg if isinstance(cfg, Document) else prepare_cfg(cfg, user_dir=user_dir)
        document.warnings = raise_if_wrong(document, strict=strict, roots=import_roots(user_dir))
    except AlchemyError as error:
        if raise_errors:
            raise
        return FailedRun.caused_by(error, cfg)
    return document


def _in_worker(job: Any, cfg: Document, kwargs: dict[str, Any], device_info: dict[str, Any]) -> RunResult:
    # several runs share one terminal: plain lines, since live bars would overwrite each other
    os.environ["TTY_COMPATIBLE"] = "0"
    keep_memory()
    result: RunResult = job(cfg, device_info, **kwargs)
    return result.portable()


def _open_run(cfg: Any, device_info: dict[str, Any] | None) -> tuple[Run, bool]:
    """The run that is open already, or a new one (True) for a runner that a script makes by itself."""
    run = find_run()
    if run is not None and run.cfg is cfg:
        return run, False
    return Run(cfg, device_info).__enter__(), True


def _runner_of(cfg: Document) -> type[AlchemyRunner]:
    name = cfg.get("runner", "alchemy.runner.Trainer")
    try:
        return AlchemyRunner.resolve_registered_module(name)
    except AlchemyError as error:
        raise AlchemyError(error.problem.message, where=cfg.where("runner"), hint=error.problem.hint) from error
