"""Derive independent random seeds for every purpose from the seed of a run."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from alchemy.errors import AlchemyError


def derive(seed: int, *purpose: str | int) -> int:
    """Derive a separate seed for each purpose, so that random draws in one place do not affect another.

    >>> derive(0, "order", 1) != derive(0, "order", 2)
    True
    """
    text = "\0".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def mix(seed: int, *numbers: int) -> int:
    """Derive a separate seed for each tuple of numbers; faster than `derive`, for use in every step.

    >>> len({mix(0, update, step) for update in range(10) for step in range(10)})
    100
    """
    for number in numbers:
        seed = (seed ^ number) * 0x9E3779B97F4A7C15 & 0x7FFFFFFFFFFFFFFF
    return seed


def seed_everything(seed: int) -> None:
    """Seed Python, NumPy and torch on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


_python: Any = random._inst
_seed_python = super(random.Random, _python).seed  # random.seed without its argument handling


def reseed(seed: int) -> None:
    """A faster `seed_everything` for use in every step: it takes 7 µs, while `torch.manual_seed` alone takes 135 µs."""
    _seed_python(seed)
    _python.gauss_next = None
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def seed_worker(worker_id: int) -> None:
    """Seed Python and NumPy in a loader worker from its torch seed; a `worker_init_fn` for torch loaders."""
    reseed(torch.initial_seed())


class Generators:
    """The state of the global random number generators of Python, NumPy and torch."""

    def state_dict(self) -> dict[str, Any]:
        arrays: Any = np.random.get_state(legacy=False)
        state: dict[str, Any] = {
            "python": random.getstate(),
            "numpy": {**arrays, "state": {**arrays["state"], "key": torch.from_numpy(arrays["state"]["key"].copy())}},
            "torch": torch.default_generator.get_state(),
        }
        if torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state_all()
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        version, numbers, gauss_next = state["python"]
        random.setstate((version, tuple(numbers), gauss_next))
        arrays = state["numpy"]
        np.random.set_state({**arrays, "state": {**arrays["state"], "key": arrays["state"]["key"].numpy()}})
        torch.default_generator.set_state(state["torch"])
        # with a different number of devices, only draws between steps could differ, because every step is reseeded
        if len(state.get("cuda", ())) == torch.cuda.device_count() > 0:
            torch.cuda.set_rng_state_all(state["cuda"])


class _Sample:
    """The sample being loaded in this process, and its random number generator if requested."""

    __slots__ = ("drawn", "index", "numbers", "seed")  # set for every sample

    def __init__(self) -> None:
        self.seed = 0
        self.index: int | None = None
        self.numbers: np.random.Generator | None = None
        self.drawn = False


_sample = _Sample()


def set_current_sample(seed: int, index: int) -> None:
    """Set the sample to be loaded next; its generator is created only on request."""
    _sample.seed, _sample.index, _sample.numbers, _sample.drawn = seed, index, None, False


@contextlib.contextmanager
def sample_stream(seed: int, index: int) -> Iterator[None]:
    """Give the block random numbers of its own in `sample_rng`; afterwards, the sample before is the current one."""
    before = _sample.seed, _sample.index, _sample.numbers, _sample.drawn
    set_current_sample(seed, index)
    try:
        yield
    finally:
        drawn = before[3] or sample_has_drawn()
        _sample.seed, _sample.index, _sample.numbers, _sample.drawn = *before[:3], drawn


def current_seed() -> int:
    """Return the seed of the sample being loaded, which depends on (seed, epoch); 0 outside a loader."""
    return _sample.seed


def mark_drawn() -> None:
    """Record that the sample being loaded depends on its seed, without using `sample_rng`."""
    _sample.drawn = True


def sample_rng() -> np.random.Generator:
    """Return the random number generator of the sample being loaded, seeded by (seed, epoch, index).

    It does not depend on the batch, worker or process that loads the sample. Use it in a dataset's `__getitem__` and
    in functions called by a pipe over a list.
    """
    if _sample.index is None:
        raise AlchemyError(
            "sample_rng() is only available while a sample of an indexed dataset is loaded",
            hint="in a stream, use your own random.Random",
        )
    if _sample.numbers is None:
        _sample.numbers = np.random.Generator(np.random.Philox(derive(_sample.seed, "sample", _sample.index)))
    return _sample.numbers


def sample_has_drawn() -> bool:
    """Return whether the sample being loaded depends on random numbers of its own."""
    return _sample.drawn or _sample.numbers is not None


@contextlib.contextmanager
def preserve_rng_state() -> Iterator[None]:
    """Restore the random number generators of Python, NumPy and torch at the end of the block."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(python)
    np.random.set_state(arrays)


def make_deterministic(on: bool = True) -> dict[str, Any]:
    """Make torch raise an error for nondeterministic operations; return the previous settings."""
    before = {
        "algorithms": torch.are_deterministic_algorithms_enabled(),
        "benchmark": torch.backends.cudnn.benchmark,
        "make_deterministic": torch.backends.cudnn.deterministic,
    }
    if on:
        # cuBLAS reads this when CUDA starts, so it must be set before the first kernel
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
        torch.use_deterministic_algorithms(True)
        torch.backends.cudnn.benchmark = False
        torch.backends.cudnn.deterministic = True
    return before


def restore_determinism(before: dict[str, Any]) -> None:
    """Restore the settings returned by `make_deterministic`, so that one run does not affect the next."""
    torch.use_deterministic_algorithms(before["algorithms"])
    torch.backends.cudnn.benchmark = before["benchmark"]
    torch.backends.cudnn.deterministic = before["make_deterministic"]
