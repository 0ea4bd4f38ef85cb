"""Optimizers: the base class, the built-in optimizers, and several optimizers in one task."""

from __future__ import annotations

from alchemy.optim.base import AlchemyOptimizer
from alchemy.optim.build import build_optimizer
from alchemy.optim.multiple import Optimizers
from alchemy.optim.optimizers import SGD, Adafactor, Adagrad, Adam, AdamW, HFAdamW, Wrapped

__all__ = [
    "SGD",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "AlchemyOptimizer",
    "HFAdamW",
    "Optimizers",
    "Wrapped",
    "build_optimizer",
]
