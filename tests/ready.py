"""Build runs that are ready to train."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from alchemy.context import Run
from alchemy.runner import Trainer


@contextmanager
def ready(cfg: dict[str, Any]) -> Iterator[Run]:
    """Build everything that `Trainer` builds, without its plugins, before the first step."""
    with Trainer({**cfg, "plugins": []}, {"device": "cpu"}) as runner:
        runner.set_up()
        yield runner.context
