"""Load, check, explain and write back experiment configs without importing torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from alchemy.lazy import lazy

if TYPE_CHECKING:
    from alchemy.config.load import prepare_cfg
    from alchemy.config.toml_writer import dumps
    from alchemy.config.tree import Document

__all__ = ["Document", "dumps", "prepare_cfg"]

__getattr__, __dir__ = lazy(__name__, {"Document": "tree", "dumps": "toml_writer", "prepare_cfg": "load"})
