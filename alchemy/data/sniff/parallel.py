"""Detect parallel text in two files or in two columns of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from alchemy.data.files import lines_of
from alchemy.data.messages import in_short
from alchemy.data.sniff import names
from alchemy.data.sniff.columns import ColumnStats, describe_columns, get_column
from alchemy.data.sniff.encoding import detect_encoding, read_head
from alchemy.data.sniff.finding import (
    Finding,
    Hints,
    describe_format,
    format_lengths,
    layout_keys,
    measure_lengths,
    merge_keys,
    rank_example,
    shorten_text,
    uses_characters,
)
from alchemy.data.sniff.layout import SniffedTable, sniff_table
from alchemy.data.tables import is_blank
from alchemy.errors import AlchemyError


@dataclass(frozen=True)
class SentencePairs:
    """Pairs of sentences, and the format of their files."""

    names: tuple[str, str]
    pairs: list[tuple[str, str]]
    keys: dict[str, Any]
    summary: str
    notes: list[str]


def sniff_parallel(paths: Mapping[str, list[Path]], asked: Hints) -> Finding:
    """Detect the config keys of a translation dataset."""
    found = {split: _open(files, asked) for split, files in paths.items()}
    train = found["train"]
    keys = {split: side.keys for split, side in found.items()}
    sides = list(zip(*train.pairs, strict=True))
    task: dict[str, Any] = {"type": "Translation"}
    finding = Finding(task, dict(keys["train"]), merge_keys(paths, keys))
    finding.sizes = {split: len(side.pairs) for split, side in found.items()}
    finding.unit = "pairs"
    finding.question = shorten_text(min((pair[0] for pair in train.pairs[:100]), key=rank_example), 80)
    finding.shown = [train.summary]
    for role, name, texts in zip(("source", "target"), train.names, sides, strict=True):
        characters = uses_characters(texts)
        lengths = format_lengths(measure_lengths(texts, characters), characters)
        finding.shown.append(f"  {role}  {name}: {lengths}; {shorten_text(texts[0])!r}")
    finding.notes = [note for side in found.values() for note in side.notes]
    return finding


def _open(files: list[Path], asked: Hints) -> SentencePairs:
    return (
        _read_two_files(files, asked) if len(files) == 2 else _read_table(sniff_table(files[0], asked.encoding), asked)
    )


def _read_two_files(files: list[Path], asked: Hints) -> SentencePairs:
    encodings = [asked.encoding or detect_encoding(file) for file in files]
    plain = [read_head(file)[0].isascii() for file in files]
    if any(plain):  # ASCII is a subset of the other side's encoding
        encodings = [encodings[plain[0]]] * 2
    if encodings[0] != encodings[1]:
        text = f"{files[0]} is {encodings[0]}, but {files[1]} is {encodings[1]}"
        raise AlchemyError(text, hint="convert one of them: both sides must have the same encoding")
    sides = [lines_of(file, encoding) for file, encoding in zip(files, encodings, strict=True)]
    if len(sides[0]) != len(sides[1]):
        text = f"{files[0]} has {len(sides[0]):,} lines, but {files[1]} has {len(sides[1]):,}"
        raise AlchemyError(text, hint="both sides of parallel text must have the same number of lines")
    pairs = [(first, second) for first, second in zip(*sides, strict=True) if not (is_blank(first) or is_blank(second))]
    empty = len(sides[0]) - len(pairs)
    if not pairs:
        raise AlchemyError(f"{files[0]} is empty", hint="use a file with at least one line")
    keys = ({"encoding": encodings[0]} if encodings[0] != "utf-8" else {}) | ({"bad": "skip"} if empty else {})
    summary = f"{files[0]}, {files[1].name}: two aligned files, {encodings[0]}, {len(sides[0]):,} lines"
    notes = [f"{files[0]}: {empty:,} lines that are empty in either file are skipped"] if empty else []
    return SentencePairs((files[0].name, files[1].name), pairs, keys, summary, notes)


def _read_table(table: SniffedTable, asked: Hints) -> SentencePairs:
    source, target = _find_sides(table, describe_columns(table), asked)
    rows = [(row[source.place], row[target.place]) for row in table.rows]
    pairs = [row for row in rows if all(isinstance(text, str) and not is_blank(text) for text in row)]
    if not pairs:
        raise AlchemyError(f"{table.path} has no row with text in both columns")
    keys = {"source": table.key(source.place), "target": table.key(target.place), **layout_keys(table)}
    skipped = len(rows) - len(pairs) + len(table.bad)
    keys |= {"bad": "skip"} if skipped else {}
    notes = [f"{table.path}: {skipped:,} rows without text in both columns are skipped"] if skipped else []
    return SentencePairs((source.name, target.name), pairs, keys, f"{table.path}: {describe_format(table)}", notes)


def _find_sides(table: SniffedTable, columns: list[ColumnStats], asked: Hints) -> list[ColumnStats]:
    """Return the source and target columns: set by the user, found by name, or else the first two text columns."""
    found: list[ColumnStats | None] = []
    for option, key, known in (
        ("--source", asked.source, names.NAMES["source"]),
        ("--target", asked.target, names.NAMES["target"]),
    ):
        by_name = next((column for column in columns if names.normalize(column.name) in known and column.is_text), None)
        found.append(get_column(columns, key, option, table.path) if key else by_name)
    free = [column for column in columns if column.is_text and column not in found and column.distinct > 1]
    free = [column for column in free if names.normalize(column.name) not in names.NAMES["id"]]
    chosen = [side or (free.pop(0) if free else None) for side in found]
    if None in chosen or chosen[0] == chosen[1]:
        hint = f"available columns: {in_short(table.names)}; set them with --source and --target"
        raise AlchemyError(f"{table.path} does not have two text columns", hint=hint)
    return [side for side in chosen if side]
