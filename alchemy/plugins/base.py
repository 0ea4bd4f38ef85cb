"""The contract of a plugin: it works when it is made, may listen to the numbers, and ends with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from alchemy.context import current_run
from alchemy.registry import Registrable


class AlchemyPlugin(Registrable):
    """Base of the plugins. Override what you need; `sys.exc_info()` shows a failure during `exit`.

    `aside = True` says that it copies, sends or traces, and changes no number: short trainings do without it.
    """

    aside: ClassVar[bool] = False

    def __init__(self, **kwargs: object) -> None:
        self.run = current_run()

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Called with the numbers that are due, every `log_every` updates and after each evaluation."""

    def exit(self) -> None:
        """Called when the run ends, also when it fails."""


RunnerPlugin = AlchemyPlugin
