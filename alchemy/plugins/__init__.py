"""Plugins for logging, the record folder, backups and seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.plugins.backup import Backup as Backup
    from alchemy.plugins.base import AlchemyPlugin as AlchemyPlugin
    from alchemy.plugins.base import RunnerPlugin as RunnerPlugin
    from alchemy.plugins.console import BasicSetup as BasicSetup
    from alchemy.plugins.console import DisplayRunningInfo as DisplayRunningInfo
    from alchemy.plugins.file_logger import FileLogger as FileLogger
    from alchemy.plugins.profiler import Profile as Profile
    from alchemy.plugins.seeding import Seeding as Seeding
    from alchemy.plugins.tensorboard import TensorboardLogger as TensorboardLogger

__getattr__, __dir__ = lazy(
    __name__,
    {
        "AlchemyPlugin": "base",
        "RunnerPlugin": "base",
        "BasicSetup": "console",
        "DisplayRunningInfo": "console",
        "Backup": "backup",
        "FileLogger": "file_logger",
        "Profile": "profiler",
        "TensorboardLogger": "tensorboard",
        "Seeding": "seeding",
    },
)
