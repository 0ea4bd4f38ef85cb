"""Imports of the project's tasks."""

from __future__ import annotations

from typing import Any


def length_of(task: Any) -> int:
    return int(task.cfg["longest"])
