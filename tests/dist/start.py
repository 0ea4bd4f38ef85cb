"""Start processes that train together, and wait for their end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def torchrun(
    ranks: int, module: str, *words: Any, code: int = 0, options: tuple[str, ...] = (), cwd: Path = ROOT
) -> str:
    """Return the output of `torchrun -m module words`; check its exit code."""
    launcher = ("torch.distributed.run", "--standalone", "--nproc-per-node", ranks, *options)
    return python(*launcher, "-m", module, *words, code=code, cwd=cwd)


def python(*words: Any, code: int = 0, cwd: Path = ROOT) -> str:
    """Return the output of `python -m words`, which may start other processes."""
    process = subprocess.Popen(
        [sys.executable, "-m", *map(str, words)],
        cwd=cwd,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        said = process.communicate(timeout=300)[0]
    finally:
        process.terminate()  # it terminates its workers too
        process.communicate()
    assert process.returncode == code, said
    return said
