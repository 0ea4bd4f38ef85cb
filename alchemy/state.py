"""The whole state of a training: what it is made of, where it is kept, and how a run takes it up again."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger
from torch.utils.data import IterableDataset

from alchemy.checkpoint import Checkpoints
from alchemy.context import Run
from alchemy.errors import AlchemyError
from alchemy.files import hash_text, write_atomic
from alchemy.records.ledger import Ledger
from alchemy.registry import construct
from alchemy.seeds import Generators


def keep_state(run: Run) -> None:
    """Opens ledger and checkpoints of a run that has a record; a run that is resumed goes on from the newest state."""
    folder = run.group.broadcast(None if run.record_dir is None else str(run.record_dir))
    if folder is None:
        return
    run.ledger = Ledger(Path(folder) / "ledger.jsonl" if run.group.is_main else None)
    run.exits.callback(run.ledger.close)
    given = {"state_dir": Path(folder) / "state"}
    checkpoints: Checkpoints = construct(Checkpoints, run.table("checkpoint"), given=given, section="checkpoint")
    checkpoints.group, checkpoints.parts = run.group, parts_of(run)
    checkpoints.saver.before = lambda: _write_down(run)
    run.checkpoints = checkpoints
    run.exits.callback(checkpoints.close)
    if run.resume_from is not None:
        _take_up(run)


def parts_of(run: Run) -> dict[str, Any]:
    """Everything that the next update depends on, by the names under which it is saved."""
    parts = {
        "model": run.model,
        "optim": run.optim,
        "average": run.average,
        "sched": run.train_sched,
        "backward": run.model.backward,
        "precision": run.precision,
        "rules": run.rules,
        "data": Source(run),
        "ledger": Seen(run),
        "metrics": run.metrics,
        "rows": Rows(run),
        "generators": Generators(),
        "run": run,
        "settings": Settings(run),
        "task": Several({f"{type(run.task).__name__}": run.task}),
        "outputpipes": Several(_numbered(run.task.outputpipes)),
        "evalpipes": Several(_numbered(run.task.evalpipes)),
        "plugins": Several(_numbered(run.plugins or [])),
    }
    return {name: part for name, part in parts.items() if hasattr(part, "state_dict")}


def _take_up(run: Run) -> None:
    """Loads the newest valid state, and marks what the record has of the time after it as void."""
    restored = run.checkpoints.restore()
    if restored is None:
        logger.warning("there is no valid checkpoint in {}: the training begins again", run.checkpoints.state_dir)
    if run.group.is_main:
        update = restored["update"] if restored else 0
        lines = run.checkpoints.parts["rows"].kept
        run.record.resume(from_update=update, from_line=lines, seconds=run.elapsed if restored else 0.0)
        run.ledger.resume(run.record.generation, update)


def _write_down(run: Run) -> None:
    """Called ahead of a save, in its thread: a state must not know of rows that the disk does not have."""
    run.record.sync()
    run.ledger.sync()


class Rows:
    """How many lines of `metrics.jsonl` belong to the state, and what the next one has of the update before it."""

    def __init__(self, run: Run) -> None:
        self.run, self.kept = run, 0

    def state_dict(self) -> dict[str, Any]:
        return {"lines": self.run.record.lines, "grad_norm": getattr(self.run.optim, "grad_norm", None)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.kept = state["lines"]
        if state["grad_norm"] is not None:
            self.run.optim.grad_norm = state["grad_norm"].to(self.run.device)


class Seen:
    """The ledger, with what all processes have seen."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        self.run.ledger.flush(self.run.group)
        state: dict[str, Any] = self.run.ledger.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.run.ledger.load_state_dict(state)


class Settings:
    """The config that a state belongs to: one that ended for a reason of its config may go on with another config."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        values = {key: value for key, value in self.run.cfg.plain().items() if key not in ("plugins", "tag")}
        return {"hash": hash_text(json.dumps(values, sort_keys=True, default=str))}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if state != self.state_dict():
            self.run.stopping = self.run.rules.after_update(self.run) or None


class Several:
    """Parts of which some have a state; each is known by its place and its class."""

    def __init__(self, parts: Mapping[str, Any]) -> None:
        self.parts = {name: part for name, part in parts.items() if hasattr(part, "state_dict")}

    def state_dict(self) -> dict[str, Any]:
        return {name: part.state_dict() for name, part in self.parts.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        for name, part in self.parts.items():
            if name in state:
                part.load_state_dict(state[name])
            else:
                logger.warning("{} is new: it begins without a state", name)
        for name in state.keys() - self.parts.keys():
            logger.warning("{} is not there any more: its state is dropped", name)


class Source:
    """What the order of the data depends on: a state that was saved with another one is refused, unless allowed."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def state_dict(self) -> dict[str, Any]:
        dataset, kwargs = self.run.task.dataset("train")
        stream = isinstance(dataset, IterableDataset)
        # data with an index has the same order for any number of workers, and global batches for any of processes
        per_device = bool(kwargs.get("per_device")) or kwargs.get("batch_size") is None
        tied = stream or (per_device and self.run.group.size * _period(self.run))
        return {
            "samples": None if stream else len(dataset),
            "num_workers": kwargs.get("num_workers", 0) if stream else None,
            "ranks": self.run.group.size if stream else tied or None,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        now = self.state_dict()
        names = {"samples": "data", "num_workers": "num_workers", "ranks": "ranks"}
        for key, name in names.items():
            if state[key] != now[key] and name not in self.run.allowed:
                raise AlchemyError(
                    f"the training data had {key} = {state[key]} and now has {now[key]}: it would not be the same run",
                    section="task.datasets.train",
                    hint=f"give it as it was, or go on all the same with --allow {name}",
                )


def _period(run: Run) -> int:
    return int(getattr(run.model.backward, "period", 1))


def _numbered(parts: Any) -> dict[str, Any]:
    return {f"{place}.{type(part).__name__}": part for place, part in enumerate(parts)}


def keep_bad_update(run: Run, reason: str) -> None:
    """Saves the state before an update that was not finite, with all that is needed to look at it again.

    The weights are untouched by it; the counters go back to the boundary, and the random numbers of a step are a
    function of its number, so that `alchemy replay` makes the very same update.
    """
    sched, steps = run.train_sched, len(run.window)
    sched.cur_step -= steps
    sched.cur_step_this_epoch -= steps
    run.optim.zero_grad()
    run.model.backward.drop_window()
    run.checkpoints.save(run.where, "nonfinite")
    if run.record_dir is None:
        return
    row = {
        "format": 1,
        "update": run.update + 1,
        "epoch": sched.cur_epoch,
        "step": sched.cur_step + 1,
        "ids": list(run.window),
        "seed": run.seed,
        "lr": [rate if math.isfinite(rate) else str(rate) for rate in run.optim.get_lr()],
        "reason": reason,
    }
    folder = Path(run.record_dir) / "bad"
    folder.mkdir(exist_ok=True)
    write_atomic(folder / f"u{run.update + 1}.json", json.dumps(row) + "\n")
    logger.error("look at it again with: alchemy replay {} --update {}", run.record_dir, run.update + 1)
