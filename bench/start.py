"""Benchmark startup: commands that must answer instantly, and training up to its second step."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from alchemy.cli.new import project
from bench.measure import Figure, difference

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "examples" / "reviews"
BARE = [sys.executable, "-c", "pass"]
ALCHEMY = str(Path(sys.executable).with_name("alchemy"))
COMMANDS = {
    "alchemy --help": ([ALCHEMY, "--help"], 0.15),
    "alchemy version": ([ALCHEMY, "version"], 0.15),
    "alchemy check (the demo's config)": ([ALCHEMY, "check", "reviews.toml"], 0.6),
}


# the first two steps of the template as a script with minimal imports
PLAIN = """
import csv
import torch
from torch import nn
from torch.utils.data import DataLoader
rows = list(csv.DictReader(open("data/train.csv")))
names = ["red", "green", "blue"]
samples = [{"point": torch.tensor([float(r["x"]), float(r["y"])]), "label": names.index(r["label"])} for r in rows]
model = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 3))
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.01)
batches = iter(DataLoader(samples, batch_size=32, shuffle=True))
for _ in range(2):
    batch = next(batches)
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(batch["point"]), batch["label"])
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""


# a pipe that ends the process after the second step, before anything is evaluated or saved
LEAVE = """
import os
from alchemy.pipeline import EndStepPipeline, SchedPipeline

@SchedPipeline.register()
class Leave(EndStepPipeline):
    steps = 0

    def __call__(self, outputs, **kwargs):
        self.steps += 1
        if self.steps == 2:
            os._exit(0)
        return kwargs
"""


def _second_step(rounds: int) -> Figure:
    """Measure the CPU seconds of `alchemy run` on the template up to the second step, minus those of the script."""
    pairs = []
    with tempfile.TemporaryDirectory() as name:
        for place, text in {**project("bench"), "src/leave.py": LEAVE}.items():
            (Path(name) / place).parent.mkdir(parents=True, exist_ok=True)
            (Path(name) / place).write_text(text)
        ours = [ALCHEMY, "run", "train.toml", "--set", 'sched.pipes=[{type="src.leave.Leave"}]']
        for _ in range(rounds):
            pairs.append((cpu_seconds(ours, name), cpu_seconds([sys.executable, "-c", PLAIN], name)))
    return difference("alchemy run up to the second step, minus the same as a script", pairs, 0.4)


def figures(quick: bool = False) -> list[Figure]:
    """Measure the CPU seconds of each command minus those of `python -c pass`, in turns."""
    rounds = 5 if quick else 40
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, (command, _) in COMMANDS.items():
            bare = cpu_seconds(BARE)
            pairs[name].append((cpu_seconds(command), bare))
    made = [difference(name, pairs[name], bound) for name, (_, bound) in COMMANDS.items()]
    return [*made, _second_step(3 if quick else 15)]


def cpu_seconds(command: list[str], folder: Path | str = DEMO) -> float:
    """Return the user and system time of a process and its children."""
    return process_seconds(command, folder, dict(os.environ))[1]


def process_seconds(command: list[str], folder: Path | str, env: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its wall time, and the user and system time of the process and its children."""
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, cwd=folder, env=env | {"PYTHONPATH": str(ROOT)}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} exited with code {process.returncode}")
    return wall, usage.ru_utime + usage.ru_stime
