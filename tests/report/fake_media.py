"""Write `media.jsonl` and its files into a record, as a run would leave them, without running anything."""

from __future__ import annotations

import json
import math
import struct
import zlib
from pathlib import Path
from typing import Any

TOKENS = ["the", "bank", "says", "profit", "rate", "."]


def write_media(folder: Path, kind: str, name: str, update: int, content: object, **info: Any) -> str:
    """Write a file, if `content` is not None, and append its row; return the name of the file."""
    suffix = {"text": ".txt", "table": ".json", "attention": ".json", "confusion": ".json"}.get(kind, ".png")
    file = "" if content is None else f"media/{name}/u{update}{suffix}"
    if file:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content.encode() if isinstance(content, str) else data)
    append_row(
        folder,
        {"update": update, "epoch": 0, "t": 1.0, "gen": 0, "kind": kind, "name": name, "file": file, "info": info},
    )
    return file


def append_row(folder: Path, row: dict[str, Any]) -> None:
    path = folder / "media.jsonl"
    with path.open("a", encoding="utf-8") as file:
        if not path.stat().st_size:
            file.write(json.dumps({"event": "start", "format": 1}) + "\n")
        file.write(json.dumps(row) + "\n")


def build_png(width: int, height: int, shift: float = 0.0) -> bytes:
    """Return a gray image of waves."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    rows = []
    for y in range(height):
        waves = (math.sin(0.2 * x + shift) * math.cos(0.2 * y) for x in range(width))
        rows.append(b"\0" + bytes(round(127 + 120 * wave) for wave in waves))
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    parts = chunk(b"IHDR", head), chunk(b"IDAT", zlib.compress(b"".join(rows))), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def write_all_kinds(folder: Path, updates: int = 4) -> None:
    """Write one series of media of each kind."""
    for number in range(1, updates + 1):
        update = 50 * number
        write_media(folder, "image", "dev/sample", update, build_png(48, 32, number), caption=f"sample {number}")
        edges = [(place - 10) * number / 10 for place in range(21)]
        counts = [round(1000 * math.exp(-(((place - 9.5) / 4) ** 2))) for place in range(20)]
        write_media(
            folder, "histogram", "weights/encoder", update, None, edges=edges, counts=counts, count=sum(counts), nan=0
        )
        write_media(folder, "text", "dev/translation", update, f"Ein Hund läuft ({number}).\nZwei Hunde laufen.")
        rows = [[f"example {place}", place, place / 7] for place in range(30)]
        write_media(
            folder, "table", "dev/lengths", update, {"columns": ["text", "words", "loss"], "rows": rows, "cut": False}
        )
        cells = [[0, 0, 40 + number], [0, 1, 9 - number], [1, 1, 50], [1, 0, 3]]
        write_media(folder, "confusion", "dev/confusion", update, {"labels": ["negative", "positive"], "cells": cells})
        sharp = [[[math.exp(-number * abs(q - k - head)) for k in range(6)] for q in range(6)] for head in range(3)]
        weights = [[[round(value / sum(row), 4) for value in row] for row in head] for head in sharp]
        content = {"rows": TOKENS, "columns": TOKENS, "weights": weights}
        write_media(
            folder, "attention", "encoder.0", update, content, heads=3, rows=6, columns=6, example="the bank .."
        )
