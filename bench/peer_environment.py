"""The virtual environments of the programs that alchemy is compared with, created on demand."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.start import ROOT

RAY = ("ray[tune]==2.60.0",)
PEERS = ("mlflow-skinny==3.17.2", "sqlalchemy==2.1.8", "alembic==1.20.1", "tensorboard==2.21.0")
VARIABLE = "ALCHEMY_BENCH_PEERS"  # the folder of the environment


def find_peers(create: bool, packages: Sequence[str] = PEERS) -> str | None:
    """Return the Python of the environment; None, with a message, if there is none and it cannot be created."""
    root, names = Path(os.environ.get(VARIABLE) or ROOT / "build" / "peers"), ", ".join(packages)
    folder = root if packages == PEERS else root.with_name(f"{root.name}-ray")
    python, installed = folder / "bin" / "python", folder / "installed.txt"
    if installed.is_file() and installed.read_text().split() == [*packages]:
        return str(python)
    if not create:
        print(f"no environment with {names} in {folder}: not compared; a full run creates it")
        return None
    for command in (
        [sys.executable, "-m", "venv", "--clear", str(folder)],
        [python, "-m", "pip", "install", *packages],
    ):
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            reason = (done.stderr or done.stdout).strip().rpartition("\n")[2]
            print(f"cannot create an environment with {names} in {folder}: not compared ({reason})")
            return None
    installed.write_text("\n".join(packages) + "\n")
    return str(python)
