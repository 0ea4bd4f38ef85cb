"""The work of every rank in these tests, also with a single one: several training runs in a given folder."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import alchemy
from alchemy.errors import AlchemyError
from alchemy.resuming import resume
from tests.dist.counting import COUNTED
from tests.dist.leaving import PLACES, recorded
from tests.dist.parts import LOSSES, UNSPLIT, append, config, file_of

SPLIT = {"type": "alchemy.pipeline.itr.SplitByWorker"}

# the same four updates for 1, 2 and 3 ranks
TRAININGS: dict[str, dict[str, Any]] = {
    # 8 of the 13 texts, and the other 5
    **{loss: {"loss": loss} for loss in LOSSES},
    "accumulated": {"loss": "tokens", "period": 2, "train": {"batch_size": 4}},
    "averaged": {"loss": "learnt", "ema": {"decay": 0.5}, "period": 3, "train": {"batch_size": 3}},
    # only a single process splits a batch that does not fit, with no other effect
    "halved": {"loss": "tokens", "period": 2, "train": {"batch_size": 4}, "precision": {"halve_on_oom": True}},
    # the gradient of an embedding, averaged by DDP
    "sparse": {"loss": "tokens", "sparse": True, "period": 2, "train": {"batch_size": 4}},
    # frozen when DDP is created, trained from the second epoch on
    "thawed": {"loss": "tokens", "thaw": {"step": 2, "requires_grad": True, "mode": "words"}},
    # batches of two texts for each rank, twelve of them per update
    "per_device": {
        "loss": "tokens",
        "backward": {"window": 6},
        "train": {"batch_size": 2, "per_device": True},
    },
}


# how processes share a batch: split among all of them, or whole batches in turns
KINDS: dict[str, dict[str, Any]] = {
    "global": {},
    "dealt": {"train": {"batch_size": 1, "per_device": True}, "backward": {"window": 6}},
}


def ranks() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def streams() -> dict[str, dict[str, Any]]:
    """Training on streams: twelve texts per update, for any number of readers; the processes end at different steps."""
    return {
        "stream": _stream(period=1),
        "stream_accumulated": _stream(period=2),
        # its end is unknown, so the gradients of its last window are averaged after the backward pass
        "stream_unsplit": {"loss": "tokens", "sparse": True, "backward": {"window": 6}, "train": UNSPLIT},
    }


def uneven() -> dict[str, dict[str, Any]]:
    """A stream whose parts are known to end at different steps, within an update; other updates for other ranks."""
    return {"stream_with_length": _stream(period=4, has_length=True)}


def _stream(period: int, **source: Any) -> dict[str, Any]:
    pipes = [{"type": "tests.dist.parts.TextStream", **source}, SPLIT]
    train = {"pipes": pipes, "batch_size": 12 // period // ranks(), "shuffle": False}
    return {"loss": "tokens", "period": period, "train": train}


def train(out: Path) -> None:
    for name, changes in {**TRAININGS, **streams(), **uneven()}.items():
        plugins = [{"type": "alchemy.plugins.FileLogger", "log_dir": str(out / "records" / name)}]
        model = {"sparse": changes.get("sparse", False), "frozen": "thaw" in changes}
        thaw = changes.get("thaw")
        tables = {key: value for key, value in changes.items() if key not in ("thaw", "sparse")}
        cfg = config(into=out / name, plugins=plugins, **tables)
        pipes = [{"type": "alchemy.pipeline.sched.SetRequiresGradBSPipeline", **thaw}] if thaw else []
        cfg["model"] |= model
        cfg["sched"] = {**cfg["sched"], "pipes": [*pipes, {"type": "alchemy.pipeline.sched.EvalEEPipeline"}]}
        alchemy.run([cfg], device=[-1], raise_errors=True)


def tell(out: Path, name: str, cfg: dict[str, Any] | Path, **options: Any) -> None:
    """Start or resume a run; write the result for each rank."""
    begin = time.monotonic()
    try:
        result = (
            resume(cfg, device=[-1], **options)
            if isinstance(cfg, Path)
            else alchemy.run([cfg], device=[-1], **options)[0]
        )
    except AlchemyError as error:
        append(file_of(out, "told"), {"name": name, "refused": str(error)})
        return
    row = {"status": result.status, "signal": result.signal, "reason": result.reason}
    append(file_of(out, "told"), {"name": name, **row, "seconds": time.monotonic() - begin})


def record(out: Path, name: str) -> Path:
    (found,) = (out / "records" / name).iterdir()
    return found


def places(ranks: int) -> list[str]:
    """Runs that are stopped; tests/resume covers a single process."""
    return {1: [], 2: list(PLACES), 3: ["step", "evaluation in a window"]}[ranks]


def leave_and_go_on(out: Path) -> None:
    for name in places(ranks()):
        how = PLACES[name]
        tell(out, f"{name}: whole", recorded(out, f"{name}: whole", **_without_place(how)))
        tell(out, name, recorded(out, name, **how))
        if int(os.environ.get("RANK", "0")) == 0:
            shutil.copytree(record(out, name), out / "stopped" / name)
        tell(out, f"{name}: resumed", record(out, name))


def _without_place(how: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in how.items() if key not in ("step", "evaluation")}


def take_over(out: Path, other: Path | None) -> None:
    """A run started by other processes, and the same from its beginning."""
    for kind, changes in KINDS.items():
        tell(out, f"{kind} alone", recorded(out, f"{kind} alone", dropout=0.0, **changes))
        step = 5 if kind == "global" else 6 // ranks() - 1  # the first update of six batches
        tell(out, f"{kind} begun", recorded(out, f"{kind} begun", dropout=0.0, step=step, **changes))
        if other is not None:
            tell(out, f"{kind} taken over", other / kind, allow=["threads"])


def others(out: Path) -> None:
    """Runs of which only the end matters."""
    net, sgd = {"type": "tests.resume.parts.Net"}, {"type": "torch.optim.SGD", "lr": 0.1}
    data = {"pipes": [{"type": "tests.resume.parts.Noisy", "count": 18}], "batch_size": 6}
    cfg = config("tokens", out / "normed", period=2, model=net, optim=sgd)
    cfg["task"]["datasets"] = {"train": data, "dev": data}
    cfg["sched"]["pipes"] = [{"type": "alchemy.pipeline.sched.EvalESPipeline", "period": 1}]
    del cfg["criterion"]
    tell(out, "normed", cfg)
    tell(out, "odd window", config("tokens", out / "odd", backward={"window": 7}))
    counted = config("tokens", out / "counted", period=3, train={"batch_size": 3})
    counted["sched"]["pipes"] = [{"type": COUNTED, "into": str(out)}]
    tell(out, "counted", counted)
    # last, because it breaks the connections between the processes
    failing = recorded(out, "failing", dropout=0.0)
    failing["model"] |= {"type": "tests.dist.leaving.Failing", "step": 2}
    del failing["model"]["dropout"]
    tell(out, "failing", failing)


def work(out: Path, other: Path | None = None) -> None:
    train(out)
    leave_and_go_on(out)
    take_over(out, other)
    others(out)


if __name__ == "__main__":
    work(*map(Path, sys.argv[1:]))
