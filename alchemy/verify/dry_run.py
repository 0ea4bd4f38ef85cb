"""The deep check: builds the parts for real, pushes one batch through, and says what it would take."""

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
from alchemy.verify.memory import Memory, free_memory, kept_by_autograd, measure
from alchemy.verify.trial_runs import OF_WORKERS

if TYPE_CHECKING:
    from loguru import Message


class DryRunReport(list[Problem]):
    """The problems that the deep check found, and what it measured on the way."""

    memory: Memory | None = None
    text: str = ""


class _Stopped(Exception):
    """A stage failed; what comes after it cannot be tried."""


def dry_run(doc: Document, device: int = -1, *, user_dir: str = "src") -> DryRunReport:
    """Builds every part of a config as a run would, without writing, and takes one step of each kind.

    `device` counts as on the command line, -1 is the CPU. Errors of the parts become problems with the line of the
    project's code that failed.
    """
    findings = DryRunReport()
    add_to_path(user_dir)
    work = copy.deepcopy(doc)  # old projects pop from the config
    precision = work.get("precision")
    if isinstance(precision, Table) and precision.get("compile"):
        precision["compile"] = False  # it takes minutes, and one step shows the same without it
    try:
        info = alloc1(device)
    except AlchemyError as error:
        findings.append(error.problem)
        return findings
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(_Stopped), Run(work, info) as run:
        _Deep(run, doc, findings, user_dir).check()
    findings[:] = sorted(dict.fromkeys(findings), key=lambda problem: not problem.error)
    return findings


class _Deep:
    """The stages of a deep check, each on what the one before it built."""

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
        with self._listening():
            with self._stage("the set-up"):
                if isinstance(runner, AlchemyTrainer):
                    runner.set_up()
                    open_state(run)
                else:
                    prepare(run)
            self._data()
            if trains:
                self._train_step()
            self._eval_step()

    def _data(self) -> None:
        for split in self.run.task.splits:
            with self._stage(f"the split {split!r}", f"task.datasets.{split}", go_on=True):
                dataset, options = self.run.task.dataset(split)
                _first_batch(dataset, options, self.run.seed)
                if options.get("num_workers"):
                    spawned = options.get("multiprocessing_context") in ("spawn", "forkserver")
                    self.findings += _unfit_for_workers(dataset, f"task.datasets.{split}", spawned)

    def _train_step(self) -> None:
        """A whole step with its update: the model is thrown away, and the optimizer's state shows its size."""
        run = self.run
        with self._stage("one training step"):
            module = run.model.module
            dataset, options = run.task.dataset("train")
            batch = _first_batch(dataset, options, run.seed)
            known = [*module.parameters(), *module.buffers()]
            run.updater.nonfinite = "ignore"  # the first loss is reported below
            # as the loop does it, but for the end-step pipes, which might evaluate everything
            with progress_bar(run, "check", 1), run.metrics.scope("deep", root=True), kept_by_autograd(known) as kept:
                run.train_sched.begin_train_step(batch)
                run.model.train()
                with run.updater.micro_batch(batch, last=True):
                    _, outputs = run.task.step(batch)
            run.updater.flush()
            self._losses(outputs)
        memory = measure(module, _states(run.optim), free_memory(run.device or torch.device("cpu")))
        memory.activations, memory.batch_size = sum(kept.values()), _batch_size(batch)
        self.findings.memory, self.findings.text = memory, str(memory)
        if not memory.fits:
            text = f"one step needs {readable_size(memory.total)} of memory, {readable_size(memory.free)} are free"
            self.findings.append(Problem(text, self.doc.path, hint=memory.remedy()))

    def _losses(self, outputs: object) -> None:
        loss = outputs.get("loss") if isinstance(outputs, dict) else None
        if loss is None:
            text = "forward returned no 'loss' for a training step"
            self.findings.append(
                Problem(text, self.doc.where("model"), "model", "return a dict with 'loss'", error=False)
            )
        elif not torch.isfinite(torch.as_tensor(loss)).all():
            text = f"the first loss is {float(loss)}"
            self.findings.append(
                Problem(text, self.doc.where("model"), "model", "look at the data with `alchemy data peek`")
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

    # -- what goes wrong
    @contextlib.contextmanager
    def _stage(self, what: str, section: str = "", go_on: bool = False) -> Iterator[None]:
        """Turns an error inside into a problem; the stages after it are left out unless they can `go_on`."""
        try:
            yield
        except AlchemyError as error:
            problem = error.problem
            place = problem.where or _place_of(self.doc, problem.section or section)
            self.findings.append(replace(problem, where=place, section=problem.section or section))
        except (Exception, SystemExit) as error:  # anything may be wrong in a project's code
            told = recognize(error)
            text = f"{what} failed: {told.problem.message if told else f'{type(error).__name__}: {error}'}"
            hint = told.problem.hint if told else ""
            self.findings.append(Problem(text.strip(), origin_of(error) or self.doc.path, section, hint))
        else:
            return
        if not go_on:
            raise _Stopped

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Warnings that parts log while they are built and used are findings too."""

        def keep(message: Message) -> None:
            self.findings.append(Problem(message.record["message"], self.doc.path, error=False))

        sink = logger.add(keep, level="WARNING", format="{message}", filter=lambda record: record["level"].no < 40)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # a plugin may have removed every sink
                logger.remove(sink)


# -- data
def _first_batch(dataset: object, options: Mapping[str, Any], seed: int) -> Any:
    """The first batch, made in this process so that an error shows where it happened."""
    alone = {key: value for key, value in options.items() if key not in ("num_workers", *OF_WORKERS)}
    return next(iter(get_dataloader(dataset, seed=seed, **alone)))


def _unfit_for_workers(dataset: object, section: str, spawned: bool) -> Iterator[Problem]:
    """Members of pipes that cannot be pickled, and tensors between pipes, where workers are asked for."""
    for pipe in reversed([pipe for pipe in walk(dataset) if isinstance(pipe, Link)]):
        for name, error in unpicklable(pipe):
            text = f"{name!r} of {title(pipe)} cannot be sent to a worker: {error}"
            hint = "make it in __iter__, or when it is first used, in place of the constructor"
            yield Problem(text, section=section, hint=hint, error=spawned)
    for stage in peek(dataset, 1):
        if any(isinstance(leaf, Tensor) for leaf in tree_leaves(stage.items)):
            text = f"{stage.name} gives tensors, which workers cannot hand over safely"
            hint = "give numpy arrays, and make tensors of them in collate_fn"
            yield Problem(text, section=section, hint=hint, error=False)
            return


def _states(optim: AlchemyOptimizer | Mapping[str, AlchemyOptimizer]) -> list[Mapping[str, Any]]:
    """What the optimizer holds of each parameter, or all of several do."""
    parts = optim.values() if isinstance(optim, Mapping) else [optim]
    return [state for part in parts for state in part.optimizer.state.values()]


def _place_of(doc: Document, section: str) -> str:
    """`file:line` of a section such as `task.datasets.train`, as far as the config has it."""
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


def _batch_size(batch: object) -> int:
    """How many samples a batch holds: the first dimension that its tensors share."""
    sizes = [leaf.shape[0] for leaf in tree_leaves(batch) if isinstance(leaf, Tensor) and leaf.dim()]
    return max(set(sizes), key=sizes.count) if sizes else 0
