"""The contract of a plugin: it works when it is made, may listen to the numbers, and ends with the run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from alchemy.context import Run, current_run
from alchemy.registry import Registrable, build
from alchemy.result import log_failure


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

    # plugins of older projects override these in place of `exit`, and call ours
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> bool | None:
        return None


RunnerPlugin = AlchemyPlugin


def start_plugin(run: Run, table: Mapping[str, object], section: str) -> AlchemyPlugin:
    """Builds a plugin and sees to its end: `exit`, or `__exit__` of an old one."""
    plugin: AlchemyPlugin = build(AlchemyPlugin, table, section=section)
    run.exits.enter_context(plugin)
    if type(plugin).exit is not AlchemyPlugin.exit:
        run.exits.callback(_exit, plugin)
    if type(plugin).log is not AlchemyPlugin.log and run.group.is_main:
        run.loggers.append(plugin.log)
    return plugin


def _exit(plugin: AlchemyPlugin) -> None:
    try:
        plugin.exit()
    except Exception as error:
        error.add_note(f"in {type(plugin).__name__}.exit, at the end of the run")
        log_failure(plugin.run, error)
        raise
