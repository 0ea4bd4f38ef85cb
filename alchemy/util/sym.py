"""Old import path for the symbol table."""

from alchemy.context import SymbolTbl, new_scope, sym_tbl
from alchemy.errors import MissingKey, NoFrame

__all__ = ["MissingKey", "NoFrame", "SymbolTbl", "new_scope", "sym_tbl"]
