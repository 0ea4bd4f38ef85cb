"""The tables of evaluation reports: precision, recall and F1 of each class."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from alchemy.errors import AlchemyError
from alchemy.files import read_table
from alchemy.records.symlinks import path_inside
from alchemy.report.blocks import Block, build_title
from alchemy.report.frames import LARGEST, MOST_ROWS, bound_table, shorten

SUFFIX = "_report.json"
MOST_REPORTS = 10


def describe_classes(folders: Sequence[Sequence[Path]]) -> list[Block]:
    """Return the tables in `results/<split>_report.json`, those of several groups side by side."""
    groups = [{key: blocks for folder in own for key, blocks in _read_tables(folder)} for own in folders]
    found: list[Block] = []
    for key in dict.fromkeys(key for tables in groups for key in tables):
        sides = [[*_name(place, len(groups)), *tables[key]] for place, tables in enumerate(groups) if key in tables]
        small = "" if key.startswith("test: ") else "last evaluation"
        found += [build_title(key, small), {"kind": "side", "value": sides}]
    return found


def _name(place: int, groups: int) -> list[Block]:
    return [{"kind": "group", "value": place}] if groups > 1 else []


def _read_tables(folder: Path) -> list[tuple[str, list[Block]]]:
    """Return the tables of a record, each with its title."""
    try:
        names = sorted(name for name in os.listdir(path_inside(folder, "results")) if name.endswith(SUFFIX))
    except (OSError, AlchemyError):
        return []
    found = []
    for name in names[:MOST_REPORTS]:
        try:
            report = read_table(path_inside(folder, f"results/{name}"), LARGEST)
            tables = {title: _build_blocks(value) for title, value in report.items() if title != "scores"}
        except (OSError, ValueError, RecursionError, AlchemyError):
            continue
        split = name.removesuffix(SUFFIX)
        found += [(f"{split}: {shorten(title, 100)}", blocks) for title, blocks in tables.items() if blocks]
    return found


def _build_blocks(value: object) -> list[Block]:
    """Return a table of tables, such as the scores of each class, as columns and rows; nothing for any other value."""
    if not isinstance(value, dict) or not value or not all(isinstance(row, dict) for row in value.values()):
        return []
    columns = list(dict.fromkeys(column for row in value.values() for column in row))
    rows = [[name, *(row.get(column) for column in columns)] for name, row in value.items()]
    score = next((place for place, column in enumerate(columns, 1) if column in ("f1", "iou")), 0)
    if score and len(rows) > MOST_ROWS:  # the page shows the worst ones
        rows.sort(key=lambda row: row[score] if isinstance(row[score], int | float) else math.inf)
    table = bound_table(["", *columns], rows)
    note = [{"kind": "text", "value": table["note"], "style": "note"}] if table["note"] else []
    return [{"kind": "table", **table, "tall": True}, *note]
