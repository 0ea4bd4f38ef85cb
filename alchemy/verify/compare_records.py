"""Compare two records bit for bit and report where they differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from alchemy.checkpoint.files import read
from alchemy.checkpoint.manifest import newest_valid, read_manifest
from alchemy.checkpoint.run_state import STATE, tensors_by_reference
from alchemy.errors import RunFailed
from alchemy.records.agreement import find_metric_difference
from alchemy.records.ledger import NAME
from alchemy.verify.ledger import compare_ledgers

SHOWN = 5  # maximum number of differences shown per kind; the rest are only counted


@dataclass
class Comparison:
    """The number of tensors, rows and updates compared, and a description of each difference, earliest first."""

    tensors: int = 0
    rows: int = 0
    updates: int = 0
    differences: list[str] = field(default_factory=list)

    @property
    def equal(self) -> bool:
        return not self.differences

    def plain(self) -> dict[str, Any]:
        return {"equal": self.equal, **asdict(self)}

    def __str__(self) -> str:
        if self.differences:
            return "\n".join(self.differences)
        return f"equal: {self.tensors} tensors, {self.rows} rows, {self.updates} ledger updates"


def compare(one: Path, other: Path) -> Comparison:
    """Compare the samples, metrics and last state of two records."""
    states = [_read_state(record) for record in (one, other)]
    tensors = [tensors_by_reference(state) for state in states]
    rows, diverging = find_metric_difference(one / "metrics.jsonl", other / "metrics.jsonl")
    found = Comparison(len(tensors[0]), rows)
    samples = [compare_ledgers(one, other)] if all((record / NAME).is_file() for record in (one, other)) else []
    found.updates = sum(row.updates for row in samples)
    found.differences += [
        f"the runs see different samples from update {row.updates + 1} on" for row in samples if not row.equal
    ]
    found.differences += [diverging] if diverging else []
    found.differences += _shorten(list(_compare_tensors(*tensors)), "tensors differ")
    return found


def is_stream(record: Path) -> bool:
    """Return whether the training data of a record is a stream, which cannot be indexed."""
    return _read_state(record)[STATE]["parts"]["data"]["samples"] is None


def last_update(record: Path) -> int:
    """Return the update number of the latest valid state."""
    folder = newest_valid(record / "state")[0]
    return 0 if folder is None else read_manifest(folder).update


def _read_state(record: Path) -> dict[str, Any]:
    folder, skipped = newest_valid(record / "state")
    if folder is None:
        raise RunFailed(f"{record} has no valid state to compare", hint="; ".join(skipped))
    return read(folder)


# -- tensors
def _compare_tensors(one: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Iterator[str]:
    for name in {**one, **other}:
        label = f"tensor {name.replace('/', '.', 1)}"
        if name not in one or name not in other:
            yield f"{label} exists only in the {'first' if name in one else 'second'} state"
        elif (text := describe_difference(one[name], other[name])) != "":
            yield f"{label} {text}"


def describe_difference(one: Tensor, other: Tensor) -> str:
    """Describe how two tensors differ bitwise; return an empty string if they are equal."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return f"is {_kind(one)} vs. {_kind(other)}"
    if not one.numel():
        return ""
    count = int((_bytes(one) != _bytes(other)).any(dim=1).sum())
    if not count:
        return ""
    text = f"differs in {count:,} of {one.numel():,} values"
    if one.is_floating_point():
        text += f", by {(one.double() - other.double()).abs().max():.2g} at most"
    return text


def _bytes(tensor: Tensor) -> Tensor:
    """View each value as a row of bytes, so that NaN equals itself and 0 differs from -0."""
    flat = tensor.contiguous().reshape(-1)
    flat = torch.view_as_real(flat) if flat.is_complex() else flat
    return flat.view(torch.uint8).reshape(tensor.numel(), -1)


def _kind(tensor: Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def _shorten(texts: list[str], what: str) -> list[str]:
    if len(texts) <= SHOWN:
        return texts
    return [*texts[:SHOWN], f"and {len(texts) - SHOWN} more {what}"]
