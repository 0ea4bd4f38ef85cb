"""The building blocks of a page, as JSON values; `page/blocks.js` shows each kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

Block = dict[str, Any]
Cell = str | float | None | dict[str, Any]


def build_text(value: str, style: str = "") -> Block:
    return {"kind": "text", "value": value, "style": style or None}


def build_pre(value: str, *, wrap: bool = False) -> Block:
    """Return a text in a fixed-width font."""
    return {"kind": "pre", "value": value, "style": "wrap" if wrap else None}


def build_list(values: Sequence[str], style: str = "") -> Block:
    return {"kind": "list", "value": list(values), "style": style or None}


def build_title(value: str, small: str = "") -> Block:
    return {"kind": "title", "value": value, "small": small or None}


def build_fold(title: str | dict[str, Any], *blocks: Block, is_open: bool = False) -> Block:
    """Return blocks that the reader can unfold."""
    return {"kind": "fold", "title": title, "value": list(blocks), "open": is_open}


def build_table(columns: Sequence[Cell], rows: Sequence[Sequence[Cell]], **options: Any) -> Block:
    """Return a table. A row with one cell is a heading of the rows below it.

    Options are `marked`, the numbers of rows to highlight, `main`, for the most important table, and `tall`, for a
    table that scrolls if it is long.
    """
    return {"kind": "table", "columns": list(columns), "rows": [list(row) for row in rows], **options}


def name_group(group: int, *, brief: bool = False, small: str = "") -> dict[str, Any]:
    """Return a cell that names a group: its color and letter and, unless `brief`, its label."""
    return {"group": group, "brief": brief, "small": small or None}


def format_cell(text: str, small: str = "", *, best: bool = False) -> dict[str, Any]:
    """Return a cell with a number as text, something smaller next to it, and whether it is the best of its row."""
    return {"text": text, "small": small or None, "best": best}
