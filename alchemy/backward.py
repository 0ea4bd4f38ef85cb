"""Former import path of the backward handlers, kept for existing configs and projects."""

from __future__ import annotations

from alchemy.legacy.backward import BackwardHandler, DefaultBackwardHandler
from alchemy.update import NotFinite

__all__ = ["BackwardHandler", "DefaultBackwardHandler", "NotFinite"]
