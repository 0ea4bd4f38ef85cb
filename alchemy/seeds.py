"""Seeds: one number for a run, and from it a stream for every purpose."""

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
    """A seed of its own for each purpose, so that drawing in one place does not shift another.

    >>> derive(0, "order", 1) != derive(0, "order", 2)
    True
    """
    text = "\0".join(map(str, (seed, *purpose)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1


def mix(seed: int, *numbers: int) -> int:
    """A seed of its own for each tuple of numbers: `derive` for every step, where a hash would take too long.

    >>> len({mix(0, update, step) for update in range(10) for step in range(10)})
    100
    """
    for number in numbers:
        seed = (seed ^ number) * 0x9E3779B97F4A7C15 & 0x7FFFFFFFFFFFFFFF
    return seed


def seed_everything(seed: int) -> None:
    """Seeds Python, numpy and torch, on all devices."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


_python: Any = random._inst
_seed_python = super(random.Random, _python).seed  # what random.seed comes to for a number


def reseed(seed: int) -> None:
    """The same, cheap enough for every step: 7 µs, where `torch.manual_seed` alone takes 135."""
    _seed_python(seed)
    _python.gauss_next = None
    np.random.seed(seed & 0xFFFFFFFF)
    torch.default_generator.manual_seed(seed)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed_all(seed)


def seed_worker(worker_id: int) -> None:
    """A `worker_init_fn` for loaders of torch: seeds Python and numpy from the seed that torch gave the worker."""
    reseed(torch.initial_seed())


class Generators:
    """The global generators of Python, numpy and torch, as a part of a run's state."""

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
        # another number of devices: every step is seeded by its own number, so only draws between steps could differ
        if len(state.get("cuda", ())) == torch.cuda.device_count() > 0:
            torch.cuda.set_rng_state_all(state["cuda"])


class _Sample:
    """The sample that is being loaded in this process, and its random numbers once somebody has asked for them."""

    __slots__ = ("index", "numbers", "seed")  # set for every sample

    def __init__(self) -> None:
        self.seed = 0
        self.index: int | None = None
        self.numbers: np.random.Generator | None = None


_sample = _Sample()


def at_sample(seed: int, index: int) -> None:
    """Says which sample is loaded next; costs next to nothing until the sample asks for random numbers."""
    _sample.seed, _sample.index, _sample.numbers = seed, index, None


def sample_rng() -> np.random.Generator:
    """Random numbers for the sample that is being loaded: a function of (seed, epoch, index).

    The same whatever batch, worker or process loads it; for `__getitem__` of a data set, and for functions that a
    pipe over a list calls.
    """
    if _sample.index is None:
        raise AlchemyError(
            "sample_rng() is for code that loads a sample of data with an index",
            hint="in a stream, draw from a random.Random of your own",
        )
    if _sample.numbers is None:
        _sample.numbers = np.random.Generator(np.random.Philox(derive(_sample.seed, "sample", _sample.index)))
    return _sample.numbers


def sample_has_drawn() -> bool:
    """Whether the sample that is being loaded has asked for random numbers."""
    return _sample.numbers is not None


@contextlib.contextmanager
def unchanged_generators() -> Iterator[None]:
    """Whatever draws inside leaves the generators of Python, numpy and torch as they were."""
    python, arrays = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        yield
    random.setstate(python)
    np.random.set_state(arrays)


def deterministic(on: bool = True) -> dict[str, Any]:
    """Makes torch refuse operations that give other bits each time; returns the settings that were in force."""
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
    torch.use_deterministic_algorithms(before["algorithms"])
    torch.backends.cudnn.benchmark = before["benchmark"]
    torch.backends.cudnn.deterministic = before["deterministic"]
