"""Assign data files to the train, dev and test splits."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from alchemy.data.files import COMPRESSED, check_file
from alchemy.data.messages import in_short
from alchemy.data.sniff.names import SPLITS, split_of
from alchemy.errors import AlchemyError

NOT_DATA = (".md", ".py", ".ipynb", ".pdf", ".toml", ".yaml", ".yml", ".zip", ".tar", ".html")
TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".txt")


def find_splits(paths: Sequence[Path], *, sides: bool = False) -> tuple[dict[str, list[Path]], list[Path]]:
    """Return the files of each split, and the files that are not used.

    Folders are expanded to the files in them. A single file is the training data, regardless of its name. With
    `sides`, a split may have two files, one for each language.
    """
    files: list[Path] = []
    for path in paths:
        files += _list_files(path) if path.is_dir() else [_check_regular(check_file(path))]
    named: dict[str, list[Path]] = {}
    for file in files:
        named.setdefault(split_of(file.name), []).append(file)
    other = named.pop("", [])
    if "train" not in named and not (len(named) == 0 and len(other) in ((1, 2) if sides else (1,))):
        hint = "name the files train.csv, dev.csv and test.csv, or pass a single file"
        text = f"cannot determine which of {in_short([file.name for file in files])} is the training data"
        raise AlchemyError(text, hint=hint)
    if "train" not in named:
        named["train"], other = other, []
    chosen = {split: _choose(named[split], sides) for split in SPLITS if split in named}
    used = {file for group in chosen.values() for file in group}
    return chosen, [file for file in files if file not in used]


def _check_regular(path: Path) -> Path:
    if path.is_fifo():  # a named pipe can be read only once, but training reads the data again
        raise AlchemyError(f"expected a file, but {path} is a named pipe", hint="save its output to a file")
    return path


def _list_files(folder: Path) -> list[Path]:
    existing = [path for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    existing.sort(key=lambda path: (not _plain_name(path).endswith(".en"), path.name))  # English is usually the source
    data = [path for path in existing if not _plain_name(path).lower().endswith(NOT_DATA)]
    named = [path for path in data if split_of(path.name)]
    found = named or [path for path in data if _plain_name(path).lower().endswith(TABLES)]
    if not found:
        listed = in_short([path.name for path in existing]) or "no files"
        hint = f"expected files such as train.csv, dev.csv and test.csv; found {listed}"
        raise AlchemyError(f"{folder} has no data files with a known name", hint=hint)
    return found


def _plain_name(path: Path) -> str:
    return path.stem if path.suffix.lower() in COMPRESSED else path.name


def _choose(files: list[Path], sides: bool) -> list[Path]:
    """Return all parts of a file that is split into numbered parts, both files of a parallel text, or a single file."""
    if sides and len(files) > 1:
        return _find_sides(files)
    shortest = min(files, key=lambda file: len(_plain_name(file)))
    parts = [file for file in files if _without_digits(file) == _without_digits(shortest)]
    return sorted(parts) if len(parts) > 1 and _without_digits(shortest) != shortest.name else [shortest]


def _without_digits(file: Path) -> str:
    return re.sub(r"\d+", "", file.name)


def _find_sides(files: list[Path]) -> list[Path]:
    """Return the two files whose names differ only in the language code at the end."""
    groups: dict[str, list[Path]] = {}
    for file in files:
        groups.setdefault(Path(_plain_name(file)).stem, []).append(file)
    pairs = [group for group in groups.values() if len(group) == 2]
    if pairs:
        return min(pairs, key=lambda group: len(group[0].name))
    tables = [file for file in files if _plain_name(file).lower().endswith(TABLES)]
    if len(files) == 2 and not tables:
        return files
    return [min(tables or files, key=lambda file: len(_plain_name(file)))]
