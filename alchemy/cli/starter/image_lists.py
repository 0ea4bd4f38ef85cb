"""Detect image data that is not in folders by label: idx files, and tables with the path and label of each image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from alchemy.data.files import open_bytes, readable
from alchemy.data.sniff.columns import ColumnStats, count_labels, describe_columns, find_label, get_column
from alchemy.data.sniff.files import find_splits
from alchemy.data.sniff.finding import format_labels, layout_keys, merge_keys, relative_path
from alchemy.data.sniff.layout import SniffedTable, sniff_table
from alchemy.data.sniff.names import split_of
from alchemy.errors import AlchemyError

TRIED = 20  # cells of a column that must name existing files
BYTES_IN_3D = b"\0\0\x08\x03"  # the beginning of an idx file of gray images

Splits = dict[str, Any]  # keys of `[task.data]`: the table of each split, and keys of all splits


def find_idx(root: Path) -> dict[str, tuple[Path, Path]]:
    """Return the image and label file of each split in a folder, which are named like those of MNIST.

    The result is empty if there are none for training.
    """
    found: dict[str, tuple[Path, Path]] = {}
    for images in sorted(root.glob("*images*idx3*")) if root.is_dir() else ():
        labels = images.with_name(images.name.replace("images", "labels").replace("idx3", "idx1"))
        split = "test" if images.name.startswith("t10k") else split_of(images.name)
        if split and labels.is_file():
            found.setdefault(split, (images, labels))
    return found if "train" in found else {}


def idx_shape(path: Path, hint: str) -> tuple[int, int, int]:
    """Return the number, height and width of the images in an idx file."""
    with readable(path, 1), open_bytes(path) as file:
        head = file.read(16)
    if len(head) < 16 or head[:4] != BYTES_IN_3D:
        raise AlchemyError(f"{path} is not an idx file of gray images", hint=hint)
    count, height, width = (int.from_bytes(head[begin : begin + 4], "big") for begin in (4, 8, 12))
    return count, height, width


def read_idx_splits(files: Mapping[str, tuple[Path, Path]], folder: Path) -> Splits:
    """Return the keys of `[task.data]` that read idx files."""
    return {
        split: {"path": relative_path(images, folder), "label_path": relative_path(labels, folder)}
        for split, (images, labels) in files.items()
    }


def read_tables(paths: Sequence[str], label: str, folder: Path) -> tuple[Splits, list[Path], str]:
    """Return the keys of `[task.data]` that read image lists, the image files for training, and a line to print."""
    splits, _ = find_splits([Path(path) for path in paths])
    tables = {split: sniff_table(files[0]) for split, files in splits.items()}
    train = tables["train"]
    names, target = _find_columns(train, label)
    columns = {split: _find_columns(table, target.name) for split, table in tables.items()}
    keys = {
        split: {"file": table.key(columns[split][0].place), "label": table.key(columns[split][1].place)}
        | layout_keys(table)
        for split, table in tables.items()
    }
    moved = {split: [Path(relative_path(file, folder)) for file in files] for split, files in splits.items()}
    images = [train.path.parent / str(cell).strip() for cell in train.column(names.place)]
    labels = count_labels(train.column(target.place))
    line = f"{train.path}: {len(images):,} images, {format_labels(labels)}"
    return merge_keys(moved, keys) | keys["train"], [image for image in images if image.is_file()], line


def _find_columns(table: SniffedTable, label: str) -> tuple[ColumnStats, ColumnStats]:
    """Return the columns of the paths and the labels."""
    columns = describe_columns(table)
    names = next((column for column in columns if _names_files(table, column)), None)
    if names is None:
        hint = f"paths must be relative to {table.path.parent}"
        raise AlchemyError(f"no column of {table.path} has the paths of existing images", hint=hint)
    target = get_column(columns, label, "--label", table.path) if label else None
    target = target or find_label(columns, [names], len(table.rows))
    if target is None:
        raise AlchemyError(f"cannot determine the column of the labels in {table.path}", hint="pass --label COLUMN")
    return names, target


def _names_files(table: SniffedTable, column: ColumnStats) -> bool:
    cells = [cell for cell in table.column(column.place)[:TRIED] if isinstance(cell, str)]
    return bool(cells) and all((table.path.parent / cell.strip()).is_file() for cell in cells)
