"""Add curves, code, environments and ledgers to the records of `fake_runs`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tests.analysis.fake_runs import write_run


def write_curves(
    root: Path,
    number: int,
    curves: Mapping[str, Iterable[float]],
    config: dict[str, Any] | None = None,
    *,
    per_epoch: int = 10,
    seconds: float = 0.5,
    **more: Any,
) -> Path:
    """Write a record with one row per update, beginning with update 1; return its folder."""
    last = {name: list(values)[-1] for name, values in curves.items()}
    folder = root / write_run(root, number, last, config, **more)
    rows: list[dict[str, Any]] = []
    for place, values in enumerate(zip(*curves.values(), strict=True)):
        table = {name: value if value == value else "nan" for name, value in zip(curves, values, strict=True)}
        row = {"update": place + 1, "step": place, "epoch": place // per_epoch, "t": seconds * (place + 1), "gen": 0}
        rows.append(row | {"values": table})
    (folder / "metrics.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return folder


def write_code(folder: Path, files: Mapping[str, str], *, backup: bool = True) -> None:
    """Write the code of a record: copies of the files, or only their hashes."""
    for name, text in files.items():
        if backup:
            path = folder / "backup" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    change_info(folder, code={name: hashlib.sha256(text.encode()).hexdigest() for name, text in files.items()})


def write_ledger(folder: Path, hashes: Iterable[str]) -> None:
    rows = [
        {"update": place + 1, "epoch": 0, "n": 4, "ids": text * 8, "hash": text, "set": None}
        for place, text in enumerate(hashes)
    ]
    (folder / "ledger.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")


def write_environment(folder: Path, **values: Any) -> None:
    found = {"format": 1, "platform": "Linux", "cpus": 2, "device": {"device": "cpu"}, "packages": {"numpy": "2.0"}}
    (folder / "env.json").write_text(json.dumps(found | values), "utf-8")


def change_info(folder: Path, **fields: Any) -> None:
    path = folder / "record.json"
    path.write_text(json.dumps(json.loads(path.read_text("utf-8")) | fields), "utf-8")
