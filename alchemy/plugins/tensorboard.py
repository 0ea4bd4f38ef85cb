"""Write metrics as TensorBoard event files to the record."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy.optional_packages import import_package
from alchemy.plugins.base import AlchemyPlugin


class _NullWriter:
    """Null object for a SummaryWriter, used when there is no record."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: None


@AlchemyPlugin.register()
class TensorboardLogger(AlchemyPlugin):
    """Plugin that writes metrics to TensorBoard. Its SummaryWriter is a global symbol that other parts can use."""

    packages = ("tensorboard",)

    def __init__(self, *, varname: str = "summary_writer") -> None:
        super().__init__()
        self.writer: Any = _open_writer(self.run.record_dir) if self.run.record_dir is not None else _NullWriter()
        self.run.symbols.set_global(varname, self.writer)

    def log(self, values: Mapping[str, float], update: int) -> None:
        for name, value in values.items():
            self.writer.add_scalar(name, value, update)

    def exit(self) -> None:
        try:
            self.writer.close()
        except OSError as error:  # a full disk must not make the run fail
            logger.warning("the TensorBoard event files are incomplete: {}", error)


def _open_writer(folder: Path) -> Any:
    import_package("tensorboard", "TensorboardLogger")  # torch's own error does not explain how to install it
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder))
