"""TensorBoard: every number that is logged, as event files in the record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.optional_packages import import_package
from alchemy.plugins.base import AlchemyPlugin


class _NoWriter:
    """Takes every call of a SummaryWriter and writes nothing: what there is without a record."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


@AlchemyPlugin.register()
class TensorboardLogger(AlchemyPlugin):
    """Opens a SummaryWriter on the record and keeps it as a global for parts that draw more than numbers."""

    packages = ("tensorboard",)

    def __init__(self, *, varname: str = "summary_writer") -> None:
        super().__init__()
        self.writer: Any = _writer(self.run.record_dir) if self.run.record_dir is not None else _NoWriter()
        self.run.symbols.set_global(varname, self.writer)

    def log(self, values: Mapping[str, float], update: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, update)

    def exit(self) -> None:
        try:
            self.writer.close()
        except OSError as error:  # a full disk does not fail the run
            logger.warning("the TensorBoard event files are incomplete: {}", error)


def _writer(folder: Path) -> Any:
    import_package("tensorboard", "TensorboardLogger")  # torch's own error does not say how to install it
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
