"""The names that configs and projects used for the backward handler until it moved."""

from __future__ import annotations

from alchemy.legacy.backward import BackwardHandler, DefaultBackwardHandler
from alchemy.update import NotFinite

__all__ = ["BackwardHandler", "DefaultBackwardHandler", "NotFinite"]
