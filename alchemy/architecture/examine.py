"""Build the model of a config and trace one batch of its data."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from alchemy.architecture.layers import Layer, build_layers
from alchemy.architecture.module_trace import Trace, trace_modules
from alchemy.config.tree import Document
from alchemy.context import Run
from alchemy.data.peek import describe
from alchemy.errors import AlchemyError, explain_failure
from alchemy.plain_model import PlainModel
from alchemy.predictor import open_model, without_training
from alchemy.task import load_datasets
from alchemy.verify.dry_run import count_samples, load_first_batch

SPLITS = ("train", "dev", "test", "inference")


@dataclass
class Architecture:
    """A model, and what one batch shows about it; without a batch, `note` says why there is none."""

    name: str
    layers: Layer
    trace: Trace = field(default_factory=Trace)
    split: str = ""
    samples: int = 0
    batch: str = ""  # describes its fields
    note: str = ""


def examine_model(document: Document) -> Architecture:
    """Build the model of a config on the CPU, with random weights, and run it on the first batch of the data."""
    run = Run(without_training(document), {"device": "cpu"})
    open_model(run, torch.device("cpu"), None)
    with contextlib.ExitStack() as stack:
        stack.push(run.__exit__)
        module: nn.Module = run.model.module
        name = type(module if isinstance(run.model, PlainModel) else run.model).__name__
        try:
            split, batch = _load_batch(run)
            trace = _trace(run, module, batch)
        except Exception as error:  # also from a project's own data pipes and models
            note = f"shapes and FLOPs are unknown, because no batch could be run: {explain_failure(error)}"
            return Architecture(name, build_layers(name, module, Trace()), note=note)
        return Architecture(
            name, build_layers(name, module, trace), trace, split, count_samples(batch), describe(batch)
        )


def _load_batch(run: Run) -> tuple[str, Any]:
    """Return the first batch of the first split that the config has."""
    tables = run.table("task").get("datasets") or {}
    split = next((name for name in (*SPLITS, *tables) if name in tables), None)
    if split is None:
        raise AlchemyError("the config has no data", section="task.datasets")
    load_datasets(run, (split,))
    dataset, options = run.task.dataset(split)
    return split, load_first_batch(dataset, options, 0)  # always the same batch, also without `seed`


def _trace(run: Run, module: nn.Module, batch: Any) -> Trace:
    """Trace an evaluation step; if it leaves modules out, as that of a GAN does, trace the loss of a training step."""
    inputs = batch if isinstance(batch, Mapping) else {"input": batch}

    def trace(step: Callable[[], object]) -> Trace:
        run.model.eval()
        with run.metrics.scope("model", root=True):
            return trace_modules(module, step, inputs)

    with torch.no_grad():
        found = trace(lambda: run.task.run_model(batch, needs_loss=False))
    if _uses_all(module, found):
        return found
    with contextlib.suppress(Exception):  # a model of an old project, or data without labels
        trained = trace(lambda: run.task.loss(batch))
        return trained if len(trained.calls) > len(found.calls) else found
    return found


def _uses_all(module: nn.Module, trace: Trace) -> bool:
    """Return whether every part of a model with parameters was called, or is part of a module that was called."""
    parts = [child for child in module.named_children() if any(True for _ in child[1].parameters())]
    return "" in trace.calls or all(
        any(path == name or path.startswith(f"{name}.") for path in trace.calls) for name, _ in parts
    )
