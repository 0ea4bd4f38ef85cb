"""What happens around a run: logging, the record folder, backups, seeds."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from alchemy.plugins.backup import Backup as Backup
    from alchemy.plugins.base import AlchemyPlugin as AlchemyPlugin
    from alchemy.plugins.base import RunnerPlugin as RunnerPlugin
    from alchemy.plugins.basic import BasicSetup as BasicSetup
    from alchemy.plugins.basic import DisplayRunningInfo as DisplayRunningInfo
    from alchemy.plugins.board import TensorboardLogger as TensorboardLogger
    from alchemy.plugins.files import FileLogger as FileLogger
    from alchemy.plugins.seeding import Seeding as Seeding

_WHERE = {
    "AlchemyPlugin": "base",
    "RunnerPlugin": "base",
    "BasicSetup": "basic",
    "DisplayRunningInfo": "basic",
    "Backup": "backup",
    "FileLogger": "files",
    "TensorboardLogger": "board",
    "Seeding": "seeding",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_WHERE[name]}"), name)


def __dir__() -> list[str]:
    return sorted(_WHERE)
