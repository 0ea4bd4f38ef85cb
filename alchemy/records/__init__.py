"""What a run leaves behind: a folder that can be found, read and compared months later."""

from alchemy.records.folder import NoRecord, Record, RecordLike, find, newest
from alchemy.records.ledger import Ledger

__all__ = ["Ledger", "NoRecord", "Record", "RecordLike", "find", "newest"]
