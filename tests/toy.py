"""Small parts for test runs: fit a line to a few points, in milliseconds."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from alchemy.model import AlchemyModel
from alchemy.pipeline import (
    EndStepPipeline,
    EvalPipeline,
    ItrDataPipeline,
    LstDataPipeline,
    OutputPipeline,
    SchedPipeline,
)
from alchemy.plugins.base import AlchemyPlugin
from alchemy.task import DefaultTask


class Points(LstDataPipeline):
    """`(x, 2x + 1)` for `count` points."""

    def __init__(self, *, count: int = 16) -> None:
        super().__init__()
        self.xs = torch.linspace(-1, 1, count) if count else torch.zeros(0)

    def __len__(self) -> int:
        return len(self.xs)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": self.xs[index : index + 1], "y": 2 * self.xs[index : index + 1] + 1}


class Stream(ItrDataPipeline):
    """The same points as a stream of unknown length, in batches of four."""

    def __init__(self, *, count: int = 16) -> None:
        super().__init__()
        self.count = count

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        for xs in torch.linspace(-1, 1, self.count).split(4):
            yield {"x": xs[:, None], "y": 2 * xs[:, None] + 1}


class Line(AlchemyModel):
    """A line, fitted by least squares."""

    def __init__(self, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.model = nn.Sequential(nn.Linear(1, 1), nn.Dropout(dropout))

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        outputs: dict[str, Any] = {"y": self.model(batch["x"])}
        if needs_loss:
            loss_sum, count = (outputs["y"] - batch["y"]).square().sum(), len(batch["y"])
            outputs["loss"] = self.backward.backward(loss_sum, count=count, requires_grad=requires_grad)
            outputs |= {"loss_sum": loss_sum.detach(), "count": count}
        return outputs


class Broken(Line):
    """Cannot be built."""

    def __init__(self) -> None:
        raise ValueError("no [weights] in {here}")


class NoLoss(Line):
    """Returns no loss."""

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        return {"y": self.model(batch["x"])}


class OldLine(Line):
    """The same line in the old style: a mean loss, returned as a float."""

    def __init__(self) -> None:
        super().__init__()

    def forward(self, batch: Any, needs_loss: bool, requires_grad: bool, **kwargs: Any) -> dict[str, Any]:
        loss = (self.model(batch["x"]) - batch["y"]).square().mean()
        return {"loss": self.backward.backward(loss, requires_grad=requires_grad)} if needs_loss else {}


@SchedPipeline.register()
class Trace(EndStepPipeline):
    """Append the loss of every step to a file."""

    def __init__(self, *, path: str) -> None:
        super().__init__()
        self.path = Path(path)

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        with self.path.open("a") as file:
            file.write(f"{float(outputs['loss']):.9g}\n")
        return kwargs


@SchedPipeline.register()
class SignalAt(EndStepPipeline):
    """Send a signal to its own process at a step, or kill it."""

    def __init__(self, *, step: int, number: int = signal.SIGINT) -> None:
        super().__init__()
        self.step, self.number = step, number

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        from alchemy import sym_tbl

        if sym_tbl().train_sched.cur_step == self.step:
            os.kill(os.getpid(), self.number)
            time.sleep(0.01)
        return kwargs


@SchedPipeline.register()
class Interrupt(EndStepPipeline):
    """Press Ctrl-C at a step, when armed."""

    at = 0

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        if Interrupt.at and self.run.train_sched.cur_step == Interrupt.at:
            os.kill(os.getpid(), signal.SIGINT)
        return kwargs


@SchedPipeline.register()
class FailAt(EndStepPipeline):
    """Raise an error at a step."""

    def __init__(self, *, step: int) -> None:
        super().__init__()
        self.step = step

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        from alchemy import sym_tbl

        if sym_tbl().train_sched.cur_step == self.step:
            raise RuntimeError("[/x] broke with {braces} and 中文")
        return kwargs


@EvalPipeline.register()
class Count(EvalPipeline):
    """Count evaluations in a file, with the inverse loss as score."""

    def __init__(self, *, path: str = "") -> None:
        super().__init__()
        self.path = path

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        if self.path:
            with open(self.path, "a") as file:
                file.write(f"{split}\n")
        return {**kwargs, "score": 1 / max(kwargs.get("loss", 1.0), 1e-9)}


class Listener(AlchemyPlugin):
    """Fails at every logged metric."""

    def __init__(self) -> None:
        super().__init__()

    def log(self, values: Any, update: int) -> None:
        raise OSError("disk [full]")


def config(log_dir: str | Path | None = None, **changes: Any) -> dict[str, Any]:
    """Return the config of four epochs of four steps; `changes` replace tables, or keys such as `sched__epochs=2`."""
    plugins: list[dict[str, Any]] = [{"type": "alchemy.plugins.BasicSetup"}]
    if log_dir is not None:
        plugins.append({"type": "alchemy.plugins.FileLogger", "log_dir": str(log_dir)})
    points = {"pipes": [{"type": "tests.toy.Points"}], "batch_size": 4}
    cfg: dict[str, Any] = {
        "tag": "toy",
        "seed": 1,
        "log_every": 2,
        "runner": "alchemy.runner.Trainer",
        "plugins": plugins,
        "task": {
            "type": "alchemy.task.DefaultTask",
            "evalpipes": [{"type": "tests.toy.Count"}],
            "datasets": {"train": {**points, "shuffle": True}, "dev": points, "test": points},
        },
        "model": {"type": "tests.toy.Line"},
        "optim": {"type": "torch.optim.SGD", "lr": 0.1},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 4, "pipes": []},
    }
    for key, value in changes.items():
        table, _, inner = key.partition("__")
        if inner:
            cfg[table] = {**cfg[table], inner: value}
        else:
            cfg[table] = value
    return cfg


class OwnSteps(DefaultTask):
    """A task with its own evaluation step, in the old style: it does not report its loss."""

    def eval_step(self, batch: Any, needs_loss: bool = True) -> tuple[str, Any]:
        return "", {"loss": float(batch["x"].abs().sum()), "count": len(batch["x"])}


class Exits(Line):
    """Call sys.exit in its constructor."""

    def __init__(self) -> None:
        raise SystemExit(0)


class BadExit(AlchemyPlugin):
    """Fails at the end of the run."""

    def exit(self) -> None:
        raise OSError("cannot leave")


@EvalPipeline.register()
class Slow(EvalPipeline):
    """A slow part."""

    def __init__(self, *, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def __call__(self, split: str, **kwargs: Any) -> dict[str, Any]:
        time.sleep(self.seconds)
        return kwargs


@OutputPipeline.register()
class SignalOnce(OutputPipeline):
    """Send SIGTERM to its own process at the first batch."""

    sent = False

    def __call__(self, outputs: Any, inputs: Any) -> Any:
        if not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(0.01)
        return outputs
