"""The pictures, tables and texts of a record, each ready to be put on the page."""

from __future__ import annotations

import base64
import json
import math
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from alchemy.errors import AlchemyError
from alchemy.files import parse_json, read_bytes, read_json, read_table
from alchemy.index.value_format import format_count, format_number
from alchemy.records.jsonl_writer import read_lines
from alchemy.records.read_media import read_media
from alchemy.records.symlinks import path_inside
from alchemy.report import confusion

LARGEST = 16 * 2**20  # bytes of a file
MOST_PIXELS = 2**25  # a small PNG file can contain an image that no browser can show
MOST_ROWS, MOST_COLUMNS, LONGEST_CELL, LONGEST_TEXT = 100, 20, 300, 20_000
MOST_TOKENS, MOST_HEADS = 96, 16  # of an attention map
CUT = "only the first tokens and heads are shown"
MOST_BINS = 128
PNG = b"\x89PNG\r\n\x1a\n"
_UPDATE = re.compile(r"(?P<name>.+?)_u(?P<update>\d{1,12})")
_RESULT = re.compile(r"(?P<split>[^/]+)_(?P<piece>confusion\.csv|hardest\.jsonl|numbers\.png)")
Frame = dict[str, Any]


class FrameSource(NamedTuple):
    """Something to show: `load` returns its content, or None if the file is damaged."""

    kind: str
    name: str
    update: int | None
    load: Callable[[], Frame | None]


def list_frames(folder: Path) -> list[FrameSource]:
    """Return the media of a record. The files of evaluations are added where the run has logged no such media."""
    found = [
        FrameSource(row["kind"], shorten(row["name"], 200), row["update"], partial(_load, folder, row))
        for row in read_media(folder)
    ]
    names = {(entry.kind, entry.name) for entry in found}
    others = [*_list_results(folder), *_list_images(folder)]
    return [*found, *(entry for entry in others if (entry.kind, entry.name) not in names)]


def _list_results(folder: Path) -> Iterator[FrameSource]:
    loaders = {"confusion.csv": _load_csv, "hardest.jsonl": load_examples, "numbers.png": load_image}
    kinds = {"confusion.csv": "confusion", "hardest.jsonl": "table", "numbers.png": "image"}
    for name in _list_files(folder, "results"):
        if match := _RESULT.fullmatch(name):
            piece = match["piece"]
            title = f"{match['split']}/{piece.partition('.')[0]}"
            yield FrameSource(kinds[piece], title, None, _guard(loaders[piece], folder, f"results/{name}"))


def _list_images(folder: Path) -> Iterator[FrameSource]:
    for name in _list_files(folder, "images"):
        stem, suffix = os.path.splitext(name)
        if suffix == ".png":
            match = _UPDATE.fullmatch(stem)
            title, update = (match["name"], int(match["update"])) if match else (stem, None)
            title = title.replace("_", "/", 1)  # as metrics are named
            yield FrameSource("image", title, update, _guard(load_image, folder, f"images/{name}"))


def _list_files(folder: Path, name: str) -> list[str]:
    try:
        with os.scandir(path_inside(folder, name)) as entries:
            files = [entry for entry in entries if entry.is_file(follow_symlinks=False)]
            return sorted(entry.name for entry in files if entry.stat().st_size)  # empty: nothing to report
    except (OSError, AlchemyError):
        return []


def _guard(load: Callable[[Path], Frame | None], folder: Path, name: str) -> Callable[[], Frame | None]:
    """Return a function that loads a file, or returns None if it cannot be read."""

    def read() -> Frame | None:
        try:
            return load(path_inside(folder, name))
        except (OSError, ValueError, LookupError, RecursionError, AlchemyError):
            return None

    return read


def _load(folder: Path, row: Mapping[str, Any]) -> Frame | None:
    if row["kind"] == "histogram":
        return load_histogram(row["info"])
    loaders = {"text": load_text, "table": load_table, "attention": load_attention, "confusion": _load_confusion}
    frame = _guard(loaders.get(row["kind"], load_image), folder, row["file"])()
    caption, nan = row["info"].get("caption") or row["info"].get("example"), row["info"].get("nan")
    if frame and isinstance(caption, str):
        frame |= {"caption": shorten(caption, 500)}
    if frame and isinstance(nan, int) and nan:
        frame |= {"note": f"{nan:,} values are not finite: drawn black"}
    return frame


def load_image(path: Path) -> Frame | None:
    """Return a PNG file with its size. Any other file is refused, above all SVG, which can contain scripts."""
    data = read_bytes(path, LARGEST)
    if not data.startswith(PNG) or data[12:16] != b"IHDR" or len(data) < 33:
        return None
    width, height = (int.from_bytes(data[place : place + 4], "big") for place in (16, 20))
    if not 0 < width * height <= MOST_PIXELS:
        return None
    return {"png": base64.b64encode(data).decode("ascii"), "width": width, "height": height}


def load_text(path: Path) -> Frame:
    text = read_bytes(path, LARGEST).decode("utf-8", "replace").replace("\r\n", "\n")
    more = len(text) - LONGEST_TEXT
    return {"text": text[:LONGEST_TEXT], "note": f"{more:,} more characters are in the record" if more > 0 else ""}


def load_table(path: Path) -> Frame | None:
    content = read_table(path, LARGEST)
    columns, rows = content.get("columns"), content.get("rows")
    if not isinstance(columns, list) or not isinstance(rows, list):
        return None
    return bound_table(columns, [row for row in rows if isinstance(row, list)], bool(content.get("cut")))


def load_examples(path: Path) -> Frame | None:
    """Return the first rows of a JSON Lines file as a table; nested values become texts."""
    rows: list[dict[str, Any]] = []
    total = 0
    for _, row in read_lines(path):
        total += row is not None
        if row is not None and len(rows) < MOST_ROWS:
            rows.append(row)
    columns = list(dict.fromkeys(key for row in rows for key in row))
    if not columns:
        return None
    table = bound_table(columns, [[row.get(key) for key in columns] for row in rows])
    return table | {"note": table["note"] or _count_rows(len(rows), total)}


def bound_table(columns: Sequence[object], rows: Sequence[Sequence[object]], cut: bool = False) -> Frame:
    """Return a table of bounded size, whose cells are numbers or texts, with a note on what was left out."""
    shown = [[to_cell(cell) for cell in row[:MOST_COLUMNS]] for row in rows[:MOST_ROWS]]
    names = [shorten(str(name), LONGEST_CELL) for name in columns[:MOST_COLUMNS]]
    return {"columns": names, "rows": shown, "note": _count_rows(len(shown), len(rows), cut, len(columns) - len(names))}


def _count_rows(shown: int, total: int, cut: bool = False, columns: int = 0) -> str:
    """Return how much of a table is shown; nothing if it is complete.

    >>> _count_rows(100, 250), _count_rows(3, 3)
    ('100 of 250 rows are shown', '')
    """
    if shown == total and not cut and not columns:
        return ""
    more = f", without {format_count(columns, 'column')}" if columns else ""
    return f"{shown:,} of {total:,}{' or more' if cut else ''} rows are shown{more}"


def to_cell(value: object) -> str | float | None:
    """Return a value for a table: numbers are rounded, and everything but numbers becomes a text.

    >>> to_cell(0.123456789), to_cell(float("nan")), to_cell({"yes": 0.98765}), to_cell([1, True])
    (0.1235, 'nan', 'yes 0.9877', '[1, true]')
    """
    if value is None or isinstance(value, str):
        return None if value is None else shorten(value, LONGEST_CELL)
    if isinstance(value, int | float) and not isinstance(value, bool):
        short = abs(value) < 1e15 and math.isfinite(value)
        return parse_json(format_number(value)) if short else shorten(str(value), LONGEST_CELL)
    if isinstance(value, dict):  # such as the probabilities of some classes
        return shorten(", ".join(f"{key} {to_cell(inner)}" for key, inner in value.items()), LONGEST_CELL)
    return shorten(json.dumps(_round(value), ensure_ascii=False), LONGEST_CELL)


def _round(value: object) -> object:
    """Round the numbers in nested lists."""
    if isinstance(value, list):
        return [_round(inner) for inner in value]
    return float(f"{value:.4g}") if isinstance(value, float) and math.isfinite(value) else value


def shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def load_attention(path: Path) -> Frame | None:
    """Return attention weights in thousandths, at most `MOST_TOKENS` tokens and `MOST_HEADS` heads."""
    content = read_table(path, LARGEST)
    rows, columns, heads = (content.get(key) for key in ("rows", "columns", "weights"))
    if not (isinstance(rows, list) and isinstance(columns, list) and isinstance(heads, list) and heads):
        return None
    try:
        weights = [
            [
                [round(1000 * min(max(float(value), 0.0), 1.0)) for value in row[:MOST_TOKENS]]
                for row in head[:MOST_TOKENS]
            ]
            for head in heads[:MOST_HEADS]
        ]
    except (TypeError, ValueError, LookupError, OverflowError):  # NaN and infinities cannot be rounded
        return None
    names = [[shorten(str(token), 40) for token in tokens[:MOST_TOKENS]] for tokens in (rows, columns)]
    shapes = {(len(head), *map(len, head)) for head in weights}
    if shapes != {(len(names[0]), *[len(names[1])] * len(names[0]))}:
        return None
    left_out = max(len(rows), len(columns)) > MOST_TOKENS or len(heads) > MOST_HEADS
    return {"rows": names[0], "columns": names[1], "weights": weights, "note": CUT if left_out else ""}


def _load_confusion(path: Path) -> Frame | None:
    return confusion.parse_media(read_json(path, LARGEST))


def _load_csv(path: Path) -> Frame | None:
    return confusion.parse_csv(read_bytes(path, LARGEST).decode("utf-8", "replace"))


def load_histogram(info: Mapping[str, Any]) -> Frame | None:
    """Return the bins of a histogram, with a line that describes the values; no bins if none of them is finite."""
    edges, counts = info.get("edges"), info.get("counts")
    if counts is None and isinstance(info.get("count"), int):
        return {"edges": [], "counts": [], "note": f"no value is finite: {_describe_values(info)}"}
    if not isinstance(edges, list) or not isinstance(counts, list) or not 0 < len(counts) <= MOST_BINS:
        return None
    numbers = all(isinstance(value, int | float) and abs(value) < 1e100 for value in (*edges, *counts))
    if len(edges) != len(counts) + 1 or not numbers or sorted(edges) != edges or min(counts) < 0:
        return None
    if edges[-1] - edges[0] < 1e-290:  # too narrow to draw
        return None
    bins: dict[float, float] = {}  # by their upper edge: the edges of a narrow histogram may be equal after rounding
    for edge, count in zip(edges[1:], counts, strict=True):
        bins[edge] = bins.get(edge, 0) + count
    first = bins.pop(edges[0], 0)
    if not bins:
        return None
    bins[min(bins)] += first
    low, high = (_read_number(info, name, edge) for name, edge in (("min", edges[0]), ("max", edges[-1])))
    ends = {"min": low, "max": high}
    return {"edges": [edges[0], *bins], "counts": list(bins.values()), "caption": _describe_values(info), **ends}


def _describe_values(info: Mapping[str, Any]) -> str:
    texts = []
    for name in ("count", "mean", "std", "min", "max", "nan", "inf"):
        value = info.get(name)
        if isinstance(value, int | float) and (value or name not in ("nan", "inf")):
            texts.append(f"{name} {format_number(value)}")
    return ", ".join(texts)


def _read_number(info: Mapping[str, Any], name: str, default: float) -> float:
    value = info.get(name)
    return value if isinstance(value, int | float) and abs(value) < 1e100 else default
