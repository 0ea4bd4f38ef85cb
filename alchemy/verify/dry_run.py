"""The deep check: build all parts, run one batch and estimate memory usage."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from loguru import logger
from torch import Tensor
from torch.utils._pytree import tree_leaves

from alchemy.config.tree import Document, Table
from alchemy.context import Run
from alchemy.data.loader import get_dataloader
from alchemy.data.peek import peek
from alchemy.data.pipe_chain import Link, title, walk
from alchemy.data.pipe_errors import unpicklable
from alchemy.errors import AlchemyError, Problem, origin_of, recognize
from alchemy.files import readable_size
from alchemy.launch.device import alloc1
from alchemy.launch.project_imports import add_to_path
from alchemy.loop import evaluate, infer, progress_bar
from alchemy.optim import AlchemyOptimizer
from alchemy.runner import AlchemyRunner, ALchemyTester, AlchemyTrainer, prepare
from alchemy.state import open_state
from alchemy.verify.memory import Memory, free_memory, measure, track_saved_tensors
from alchemy.verify.trial_runs import WORKER_OPTIONS

if TYPE_CHECKING:
    from loguru import Message


class DryRunReport(list[Problem]):
    """The problems found and the memory measured by the deep check."""

    memory: Memory | None = None
    text: str = ""


class _Stopped(Exception):
    """Raised when a stage fails and later stages cannot run."""


def dry_run(doc: Document, device: int = -1, *, user_dir: str = "src") -> DryRunReport:
    """Build every part of a config as a run would, without writing files, and run one step of each kind.

    `device` is numbered as on the command line; -1 is the CPU. Errors in the parts are reported as problems that point
    to the line in the project's code.
    """
    findings = DryRunReport()
    add_to_path(user_dir)
    work = copy.deepcopy(doc)  # old projects pop from the config
    precision = work.get("precision")
    if isinstance(precision, Table) and precision.get("compile"):
        precision["compile"] = False  # compiling takes minutes, and one step finds the same errors without it
    try:
        info = alloc1(device)
    except AlchemyError as error:
        findings.append(error.problem)
        return findings
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(_Stopped), Run(work, info) as run:
        _DeepCheck(run, doc, findings, user_dir).check()
    findings[:] = sorted(dict.fromkeys(findings), key=lambda problem: not problem.error)
    return findings


class _DeepCheck:
    """The stages of a deep check, each of which uses the parts built by the previous one."""

    def __init__(self, run: Run, doc: Document, findings: DryRunReport, user_dir: str) -> None:
        self.run, self.doc, self.findings, self.user_dir = run, doc, findings, user_dir
        self.runner: type[AlchemyRunner] = AlchemyTrainer

    def check(self) -> None:
        run = self.run
        with self._stage("the plugins"):
            name = run.cfg.get("runner", "alchemy.runner.Trainer")
            self.runner = AlchemyRunner.resolve_registered_module(name)
            runner = self.runner(run.cfg, run.device_info, no_file=True, debug=False, desc="", user_dir=self.user_dir)
        trains = isinstance(runner, AlchemyTrainer)
        with self._collect_warnings():
            with self._stage("the set-up"):
                if isinstance(runner, AlchemyTrainer):
                    runner.set_up()
                    open_state(run)
                else:
                    prepare(run)
            self._check_data()
            if trains:
                self._train_step()
            self._eval_step()

    def _check_data(self) -> None:
        for split in self.run.task.splits:
            with self._stage(f"the split {split!r}", f"task.datasets.{split}", go_on=True):
                dataset, options = self.run.task.dataset(split)
                load_first_batch(dataset, options, self.run.seed)
                if options.get("num_workers"):
                    spawned = options.get("multiprocessing_context") in ("spawn", "forkserver")
                    self.findings += _find_worker_problems(dataset, f"task.datasets.{split}", spawned)

    def _train_step(self) -> None:
        """Run one complete step, including the update, which also reveals the size of the optimizer state."""
        run = self.run
        with self._stage("one training step"):
            module = run.model.module
            dataset, options = run.task.dataset("train")
            batch = load_first_batch(dataset, options, run.seed)
            known = [*module.parameters(), *module.buffers()]
            run.updater.nonfinite = "ignore"  # the first loss is checked below
            # like the loop, but without the end-step pipes, which may run an evaluation
            with (
                progress_bar(run, "check", 1),
                run.metrics.scope("deep", root=True),
                track_saved_tensors(known) as kept,
            ):
                run.train_sched.begin_train_step(batch)
                run.model.train()
                with run.updater.micro_batch(batch, last=True):
                    _, outputs = run.task.step(batch)
            run.updater.flush()
            self._check_loss(outputs)
        memory = measure(module, _optimizer_states(run.optim), free_memory(run.device or torch.device("cpu")))
        memory.activations, memory.batch_size = sum(kept.values()), count_samples(batch)
        self.findings.memory, self.findings.text = memory, str(memory)
        if not memory.fits:
            needed, free = readable_size(memory.total), readable_size(memory.free)
            text = f"one step needs {needed} of memory, but only {free} is available"
            self.findings.append(Problem(text, self.doc.path, hint=memory.suggest_fix()))

    def _check_loss(self, outputs: object) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else None
        if loss is None:
            text = "forward returned no 'loss' for a training step"
            self.findings.append(
                Problem(text, self.doc.where("model"), "model", "return a dict with 'loss'", error=False)
            )
        elif not torch.isfinite(torch.as_tensor(loss)).all():
            text = f"the first loss is {float(loss)}"
            self.findings.append(
                Problem(text, self.doc.where("model"), "model", "inspect the data with `alchemy data peek`")
            )

    def _eval_step(self) -> None:
        run = self.run
        run.limits.max_batches = 1
        if issubclass(self.runner, AlchemyTrainer | ALchemyTester):
            split = "dev" if issubclass(self.runner, AlchemyTrainer) else "test"
            if split in run.task.splits:
                with self._stage(f"one evaluation step of {split!r}", "task.evalpipes"):
                    evaluate(split, needs_loss=split == "dev")
        elif "inference" in run.task.splits:
            with self._stage("one inference step"):
                next(infer(run), None)

    # -- errors and warnings
    @contextlib.contextmanager
    def _stage(self, what: str, section: str = "", go_on: bool = False) -> Iterator[None]:
        """Report an exception as a problem; with `go_on`, later stages still run."""
        try:
            yield
        except AlchemyError as error:
            problem = error.problem
            place = problem.where or _find_place(self.doc, problem.section or section)
            self.findings.append(replace(problem, where=place, section=problem.section or section))
        except (Exception, SystemExit) as error:  # project code may raise anything
            known = recognize(error)
            text = f"{what} failed: {known.problem.message if known else f'{type(error).__name__}: {error}'}"
            hint = known.problem.hint if known else ""
            self.findings.append(Problem(text.strip(), origin_of(error) or self.doc.path, section, hint))
        else:
            return
        if not go_on:
            raise _Stopped

    @contextlib.contextmanager
    def _collect_warnings(self) -> Iterator[None]:
        """Report the warnings that parts log as problems."""

        def keep(message: Message) -> None:
            self.findings.append(Problem(message.record["message"], self.doc.path, error=False))

        sink = logger.add(keep, level="WARNING", format="{message}", filter=lambda record: record["level"].no < 40)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # a plugin may have removed every sink
                logger.remove(sink)


# -- data
def load_first_batch(dataset: object, options: Mapping[str, Any], seed: int) -> Any:
    """Load the first batch in this process, so that errors keep their original traceback."""
    in_process = {key: value for key, value in options.items() if key not in ("num_workers", *WORKER_OPTIONS)}
    return next(iter(get_dataloader(dataset, seed=seed, **in_process)))


def _find_worker_problems(dataset: object, section: str, spawned: bool) -> Iterator[Problem]:
    """Yield a problem for each pipe attribute that cannot be pickled, and for tensors passed between pipes."""
    for pipe in reversed([pipe for pipe in walk(dataset) if isinstance(pipe, Link)]):
        for name, error in unpicklable(pipe):
            text = f"{name!r} of {title(pipe)} cannot be sent to a worker: {error}"
            hint = "create it in __iter__ or on first use instead of in the constructor"
            yield Problem(text, section=section, hint=hint, error=spawned)
    for stage in peek(dataset, 1):
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(stage.items)):
            text = f"{stage.name} returns tensors, which workers cannot send safely"
            hint = "return numpy arrays and convert them to tensors in collate_fn"
            yield Problem(text, section=section, hint=hint, error=False)
            return


def _optimizer_states(optim: AlchemyOptimizer | Mapping[str, AlchemyOptimizer]) -> list[Mapping[str, Any]]:
    """Return the per-parameter state of one or several optimizers."""
    parts = optim.values() if isinstance(optim, Mapping) else [optim]
    return [state for part in parts for state in part.optimizer.state.values()]


def _find_place(doc: Document, section: str) -> str:
    """Return `file:line` of a section such as `task.datasets.train`, or of its closest parent in the config."""
    place = doc.path
    value: Any = doc
    for key in section.split(".") if section else ():
        if isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        elif isinstance(value, Table) and value.get(key) is not None:
            value = value[key]
        else:
            break
        place = (value.where() if isinstance(value, Table) else "") or place
    return place


def count_samples(batch: object) -> int:
    """Return the number of samples in a batch: the most common first dimension of its tensors."""
    sizes = [leaf.shape[0] for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()]
    return max(set(sizes), key=sizes.count) if sizes else 0
