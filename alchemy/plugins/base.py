"""Plugin interface: constructor, `log`, `log_media` and `exit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Self

from alchemy.context import Run, current_run
from alchemy.records.media_entry import MediaEntry
from alchemy.registry import Registrable, build
from alchemy.result import log_failure


class AlchemyPlugin(Registrable):
    """Base class for plugins. Override the methods you need; in `exit`, `sys.exc_info()` returns the error, if any.

    Set `aside = True` for a plugin that only copies files, sends notifications or records traces: short verification
    runs skip it.
    """

    aside: ClassVar[bool] = False

    def __init__(self, **kwargs: object) -> None:
        self.run = current_run()

    def log(self, values: Mapping[str, float], update: int) -> None:
        """Receive metrics every `log_every` updates and after each evaluation."""

    def log_media(self, entry: MediaEntry) -> None:
        """Receive images, histograms and other media; called in a background thread."""

    def exit(self) -> None:
        """Clean up when the run ends, even if it failed."""

    # plugins of older projects override these instead of `exit`, and call super()
    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> bool | None:
        return None


RunnerPlugin = AlchemyPlugin


def start_plugin(run: Run, table: Mapping[str, object], section: str) -> AlchemyPlugin:
    """Build a plugin and register its `exit`, or the `__exit__` of an older one."""
    plugin: AlchemyPlugin = build(AlchemyPlugin, table, section=section)
    run.exits.enter_context(plugin)
    if type(plugin).exit is not AlchemyPlugin.exit:
        run.exits.callback(_exit, plugin)
    if type(plugin).log is not AlchemyPlugin.log and run.group.is_main:
        run.loggers.append(plugin.log)
    if type(plugin).log_media is not AlchemyPlugin.log_media and run.group.is_main:
        run.media.sinks.append(plugin.log_media)
    return plugin


def _exit(plugin: AlchemyPlugin) -> None:
    try:
        plugin.exit()
    except Exception as error:
        error.add_note(f"in {type(plugin).__name__}.exit, at the end of the run")
        log_failure(plugin.run, error)
        raise
