"""What it costs to start: the commands that must answer in a blink, against a bare Python."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def figures(quick: bool = False) -> list[Figure]:
    """CPU seconds of each command above those of `python -c pass`, measured in turn."""
    rounds = 5 if quick else 40
    pairs: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, (command, _) in COMMANDS.items():
            bare = cpu_seconds(BARE)
            pairs[name].append((cpu_seconds(command), bare))
    return [difference(name, pairs[name], bound) for name, (_, bound) in COMMANDS.items()]


def cpu_seconds(command: list[str]) -> float:
    """User and system time of a process and its children."""
    process = subprocess.Popen(command, cwd=DEMO, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime
