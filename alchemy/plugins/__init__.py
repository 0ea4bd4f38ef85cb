"""What happens around a run: logging, the record folder, backups, seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.plugins.backup import Backup as Backup
    from alchemy.plugins.base import AlchemyPlugin as AlchemyPlugin
    from alchemy.plugins.base import RunnerPlugin as RunnerPlugin
    from alchemy.plugins.basic import BasicSetup as BasicSetup
    from alchemy.plugins.basic import DisplayRunningInfo as DisplayRunningInfo
    from alchemy.plugins.board import TensorboardLogger as TensorboardLogger
    from alchemy.plugins.files import FileLogger as FileLogger
    from alchemy.plugins.profile import Profile as Profile
    from alchemy.plugins.seeding import Seeding as Seeding

__getattr__, __dir__ = lazy(
    __name__,
    {
        "AlchemyPlugin": "base",
        "RunnerPlugin": "base",
        "BasicSetup": "basic",
        "DisplayRunningInfo": "basic",
        "Backup": "backup",
        "FileLogger": "files",
        "Profile": "profile",
        "TensorboardLogger": "board",
        "Seeding": "seeding",
    },
)
