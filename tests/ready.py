"""Runs that are made ready to train, and wait for what the test does with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alchemy.context import Run
from alchemy.runner import Trainer


@contextmanager
def ready(cfg: dict[str, Any]) -> Iterator[Run]:
    """All that `Trainer` builds, without its plugins and before its first step."""
    with Trainer({**cfg, "plugins": []}, {"device": "cpu"}) as runner:
        runner.set_up()
        yield runner.context
