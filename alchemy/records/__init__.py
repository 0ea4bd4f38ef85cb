"""Create, update, find and read the record folders of runs."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.records.folder import NoRecord as NoRecord
    from alchemy.records.folder import Record as Record
    from alchemy.records.folder import RecordLike as RecordLike
    from alchemy.records.folder import find as find
    from alchemy.records.folder import newest as newest
    from alchemy.records.ledger import Ledger as Ledger

# loaded on first use: reading the status of a record must not import what writes one
__getattr__, __dir__ = lazy(
    __name__,
    {
        "NoRecord": "folder",
        "Record": "folder",
        "RecordLike": "folder",
        "find": "folder",
        "newest": "folder",
        "Ledger": "ledger",
    },
)


class _CallableModule(ModuleType):
    """Makes `alchemy.records("records")` find records, although `alchemy.records` is this package.

    The function is in `analysis`, which imports this package: it is loaded by name, when it is called.
    """

    def __call__(self, *folders: Any, **options: Any) -> Any:
        return import_module("alchemy.analysis.record_set").records(*folders, **options)


sys.modules[__name__].__class__ = _CallableModule
