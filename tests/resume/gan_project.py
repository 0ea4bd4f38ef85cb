"""The GAN project that `alchemy new --kind gan` writes, with small networks and few updates."""

from __future__ import annotations

from pathlib import Path

from alchemy.cli.starter.gan import gan_project

CHANGES = {
    "task.n_critic": 2,
    "task.datasets.train.pipes.Shapes.count": 100,
    "task.datasets.dev.pipes.Shapes.count": 64,
    "model.width": 8,
    "sched.num_training_steps": 8,
    "sched.pipes.EvalESPipeline.period": 3,
    "checkpoint.every": 2,
    "log_every": 1,
}
RUN = ("run", "train.toml", "--device", "-1", *(f"--set={key}={value}" for key, value in CHANGES.items()))


def write(folder: Path) -> Path:
    for name, text in gan_project(folder, []).items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def record_in(folder: Path) -> Path:
    (record,) = (folder / "records" / "gan").iterdir()
    return record
