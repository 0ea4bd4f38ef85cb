"""The deep check: builds the parts for real, pushes one batch through, and says what it would take."""

from __future__ import annotations

import contextlib
import copy
import io
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import torch
from loguru import logger

from alchemy.average import build_average
from alchemy.checkpoint import Checkpoints
from alchemy.config.tree import Document, Table
from alchemy.context import Run
from alchemy.errors import AlchemyError, Problem, origin_of
from alchemy.launch.device import alloc1
from alchemy.launch.project import reach
from alchemy.loop import evaluate, infer, progress_bar
from alchemy.optim import build_optimizer
from alchemy.registry import construct
from alchemy.runner import AlchemyRunner, ALchemyTester, AlchemyTrainer, build_updater, prepare
from alchemy.sched import build_sched
from alchemy.stop import build_rules
from alchemy.verify.flow import check_workers, first_batch
from alchemy.verify.memory import Memory, Saved, free_memory, measure, size


class Findings(list[Problem]):
    """The problems that the deep check found, and what it measured on the way."""

    memory: Memory | None = None
    text: str = ""


class Stopped(Exception):
    """A stage failed; what comes after it cannot be tried."""


def deep_check(doc: Document, device: int = -1, *, user_dir: str = "src") -> Findings:
    """Builds every part of a config as a run would, without writing, and takes one step of each kind.

    `device` counts as on the command line, -1 is the CPU. Errors of the parts become problems with the line of the
    project's code that failed.
    """
    findings = Findings()
    reach(user_dir)
    work = copy.deepcopy(doc)  # old projects pop from the config
    try:
        info = alloc1(device)
    except AlchemyError as error:
        findings.append(error.problem)
        return findings
    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(Stopped), Run(work, info) as run:
        Deep(run, doc, findings, user_dir).check()
    findings[:] = sorted(dict.fromkeys(findings), key=lambda problem: not problem.error)
    return findings


class Deep:
    """The stages of a deep check, each on what the one before it built."""

    def __init__(self, run: Run, doc: Document, findings: Findings, user_dir: str) -> None:
        self.run, self.doc, self.findings, self.user_dir = run, doc, findings, user_dir
        self.runner: type[AlchemyRunner] = AlchemyTrainer

    def check(self) -> None:
        run = self.run
        with self._stage("the plugins"):
            name = run.cfg.peek("runner", "alchemy.runner.Trainer")
            self.runner = AlchemyRunner.resolve_registered_module(name)
            self.runner(run.cfg, run.device_info, no_file=True, debug=False, desc="", user_dir=self.user_dir)
        with self._listening():
            with self._stage("task, model and data"):
                prepare(run)
            trains = issubclass(self.runner, AlchemyTrainer)
            if trains:
                with self._stage("the optimiser"):
                    run.optim = build_optimizer(run)
                    run.updater = build_updater(run, run.model)
                with self._stage("the schedule"):
                    run.train_sched = build_sched(run)
                with self._stage("average, stop rules and checkpoints"):
                    run.average, run.rules = build_average(run), build_rules(run)
                    construct(Checkpoints, run.table("checkpoint"), given={"state_dir": ""}, section="checkpoint")
            self._data()
            if trains:
                self._train_step()
            self._eval_step()

    def _data(self) -> None:
        for split in self.run.task.splits:
            with self._stage(f"the split {split!r}", f"task.datasets.{split}", go_on=True):
                dataset, options = self.run.task.dataset(split)
                first_batch(dataset, options, self.run.seed)
                self.findings += check_workers(split, dataset, options, self.doc)

    def _train_step(self) -> None:
        """A whole step with its update: the model is thrown away, and the optimiser's state shows its size."""
        run = self.run
        with self._stage("one training step"):
            module = run.model.module
            dataset, options = run.task.dataset("train")
            batch = first_batch(dataset, options, run.seed)
            saved = Saved([*module.parameters(), *module.buffers()])
            run.updater.nonfinite = "ignore"  # the first loss is reported below
            # as the loop does it, but for the end-step pipes, which might evaluate everything
            with progress_bar(run, "check", 1), run.metrics.scope("deep", root=True), saved.counting():
                run.train_sched.begin_train_step(batch)
                run.model.train()
                with run.updater.micro_batch(batch, last=True):
                    _, outputs = run.task.step(batch)
            run.updater.flush()
            self._losses(outputs)
        memory = measure(module, _states(run.optim), free_memory(run.device or torch.device("cpu")))
        memory.activations, memory.batch_size = saved.total, batch_size(batch)
        self.findings.memory, self.findings.text = memory, str(memory)
        if not memory.fits:
            text = f"one step needs {size(memory.total)} of memory, {size(memory.free)} are free"
            self.findings.append(Problem(text, self.doc.path, hint=memory.remedy()))

    def _losses(self, outputs: Any) -> None:
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
            text = f"{what} failed: {type(error).__name__}: {error}"
            self.findings.append(Problem(text.strip(), origin_of(error) or self.doc.path, section))
        else:
            return
        if not go_on:
            raise Stopped

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        """Warnings that parts log while they are built and used are findings too."""

        def keep(message: Any) -> None:
            self.findings.append(Problem(message.record["message"], self.doc.path, error=False))

        sink = logger.add(keep, level="WARNING", format="{message}", filter=lambda record: record["level"].no < 40)
        try:
            yield
        finally:
            with contextlib.suppress(ValueError):  # a plugin may have removed every sink
                logger.remove(sink)


def _states(optim: Any) -> list[Any]:
    """What the optimiser holds of each parameter, or all of several do."""
    parts = optim.values() if isinstance(optim, Mapping) else [optim]
    return [state for part in parts for state in getattr(part.optimizer, "state", {}).values()]


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


def batch_size(batch: Any) -> int:
    """How many samples a batch holds: the first dimension that its tensors share."""
    values = batch.values() if isinstance(batch, dict) else batch if isinstance(batch, list | tuple) else [batch]
    sizes = [value.shape[0] for value in values if isinstance(value, torch.Tensor) and value.dim()]
    return max(set(sizes), key=sizes.count) if sizes else 0
