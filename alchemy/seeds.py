"""Seeds: one number for a run, and from it a stream for every purpose."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from collections.abc import Iterator
from typing import Any


def derive(seed: int, *purpose: str | int) -> int:
    """A seed of its own for each purpose, so that drawing in one place does not shift another.

    >>> derive(0, "order", 1) != derive(0, "order", 2)
    True
    """
    text = "\0".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def seed_everything(seed: int) -> None:
    """Seeds Python, numpy and torch, on all devices."""
    import numpy as np
    import torch

    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


@contextlib.contextmanager
def unchanged_generators() -> Iterator[None]:
    """Whatever draws inside leaves the generators of Python, numpy and torch as they were."""
    import numpy as np
    import torch

    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(python)
    np.random.set_state(arrays)


def deterministic(on: bool = True) -> dict[str, Any]:
    """Makes torch refuse operations that give other bits each time; returns the settings that were in force."""
    import torch

    before = {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "deterministic": torch.backends.cudnn.deterministic,
    }
    if on:
        # read by cuBLAS when CUDA starts, so it must stand in the environment before the first kernel
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
    return before


def restore_determinism(before: dict[str, Any]) -> None:
    """Puts back what `deterministic` found, so that one run does not change the next."""
    import torch

    torch.use_deterministic_algorithms(before["algorithms"])
    torch.backends.cudnn.benchmark = before["benchmark"]
    torch.backends.cudnn.deterministic = before["deterministic"]
