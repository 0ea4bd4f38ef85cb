"""Create, update, find and read the record folders of runs."""

from alchemy.records.folder import NoRecord, Record, RecordLike, find, newest
from alchemy.records.ledger import Ledger

__all__ = ["Ledger", "NoRecord", "Record", "RecordLike", "find", "newest"]
