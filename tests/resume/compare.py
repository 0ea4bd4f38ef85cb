"""Compare the runs of two records: metrics and media by bytes, tensors by bits, samples by hashes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from alchemy.checkpoint.files import read
from alchemy.checkpoint.manifest import newest_valid, read_manifest, verify
from alchemy.records.ledger import read_ledger
from alchemy.records.metrics_file import comparable
from alchemy.records.read_media import read_media

# times, line counts and folder names, which differ between equal runs
OF_THE_RECORD = {"rows", "checkpoints", "settings"}


def differences(one: Path, other: Path) -> list[str]:
    """Return the differences by name; empty for equal runs."""
    return [*_rows(one, other), *_ledgers(one, other), *_states(one, other), *_media(one, other)]


def _rows(one: Path, other: Path) -> Iterator[str]:
    first, second = (list(map(json.dumps, comparable(folder / "metrics.jsonl"))) for folder in (one, other))
    for row, again in zip(first, second):
        if row != again:
            names = [name for name, value in json.loads(row)["values"].items() if f'"{name}": {value}' not in again]
            yield f"metrics {json.loads(row)['update']}: {', '.join(names) or 'another row'}"
    if len(first) != len(second):
        yield f"metrics: {len(first)} rows and {len(second)}"


def _ledgers(one: Path, other: Path) -> Iterator[str]:
    first, second = ([row for _, row in read_ledger(folder / "ledger.jsonl")] for folder in (one, other))
    if first != second:
        yield f"ledger: {len(first)} rows and {len(second)}"


def _media(one: Path, other: Path) -> Iterator[str]:
    first, second = (
        {
            (row["kind"], row["name"], row["update"]): (
                row["info"],
                (folder / row["file"]).read_bytes() if row["file"] else b"",
            )
            for row in read_media(folder)
        }
        for folder in (one, other)
    )
    for key in sorted(first.keys() | second.keys()):
        if first.get(key) != second.get(key):
            yield f"media {' '.join(map(str, key))}"


def _states(one: Path, other: Path) -> Iterator[str]:
    first, second = (_checkpoint(folder / "state") for folder in (one, other))
    for name in sorted(first.keys() | second.keys()):
        if name not in first or name not in second or not _same(first[name], second[name]):
            yield f"state {name}"


def _checkpoint(state: Path) -> dict[str, Any]:
    """Return the content of the last checkpoint, and the weights of the best one, by flat names."""
    newest, _ = newest_valid(state)
    assert newest is not None, f"no valid checkpoint in {state}"
    flat: dict[str, Any] = {}
    for file, content in read(newest).items():
        if file == "state.json":
            flat |= {f"{part}": json.dumps(_timeless(value)) for part, value in content["parts"].items()}
        else:
            flat |= {f"{file}/{name}": tensor for name, tensor in content.items()}
    for part in OF_THE_RECORD:
        flat.pop(part, None)
    if (state / "best").is_dir():
        assert verify(state / "best") == ""
        flat["best"] = str(read_manifest(state / "best").update)
        flat |= {f"best/{name}": tensor for name, tensor in read(state / "best")["model.safetensors"].items()}
    return flat


def _timeless(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _timeless(inner) for key, inner in value.items() if key not in ("elapsed", "seconds", "lines")}
    return [_timeless(inner) for inner in value] if isinstance(value, list) else value


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        same = one.dtype == other.dtype and one.shape == other.shape
        return same and torch.equal(one.reshape(-1).view(torch.uint8), other.reshape(-1).view(torch.uint8))
    return bool(one == other)
