"""Weights are written completely or not at all, with the permissions of the umask."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch import nn

from alchemy.errors import AlchemyError
from alchemy.nn.weights import load_weights, save_all


@pytest.fixture
def full_disk() -> Iterator[None]:
    """Limit file sizes to 4 KiB."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o007, 0o660)])
def test_files_have_the_mode_of_the_umask(tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        save_all({"model": nn.Linear(2, 2)}, tmp_path / "a")
    finally:
        os.umask(before)
    assert (tmp_path / "a/model.safetensors").stat().st_mode & 0o777 == mode


def test_a_full_disk_is_one_error_and_leaves_no_half_folder(tmp_path: Path, full_disk: None) -> None:
    small = nn.Linear(2, 2)
    save_all({"model": small}, tmp_path / "old")
    for name in ("new", "old"):
        with pytest.raises(AlchemyError, match=rf"cannot write the weights to '.*{name}': .*; is the disk full"):
            save_all({"criterion": small, "model": nn.Linear(90, 90)}, tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["criterion.safetensors", "model.safetensors", "old"]
    load_weights(small, tmp_path / "old/model.safetensors")


def test_what_fits_in_part_is_taken_only_on_request_and_told(tmp_path: Path, said: list[str]) -> None:
    saved, body, head = nn.Linear(2, 3), nn.Linear(2, 3), nn.Linear(3, 4)
    wider = nn.ModuleDict({"body": body, "head": head})
    save_all({"model": nn.ModuleDict({"body": saved, "head": nn.Linear(3, 2)})}, tmp_path / "a")
    before = head.weight.clone()
    with pytest.raises(AlchemyError, match="does not fit ModuleDict"):
        load_weights(wider, tmp_path / "a/model.safetensors")
    assert said == []
    load_weights(wider, tmp_path / "a/model.safetensors", strict=False)
    assert torch.equal(body.weight, saved.weight)
    assert torch.equal(head.weight, before)
    (report,) = said
    assert "model.safetensors: 2 of 4 tensors loaded\n2 unchanged, shapes differ: head.weight" in report


@pytest.mark.parametrize("strict", [True, False])
def test_a_broken_file_is_named(tmp_path: Path, strict: bool) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(AlchemyError, match=r"model\.safetensors' does not fit Linear: "):
        load_weights(nn.Linear(1, 1), tmp_path / "model.safetensors", strict)


def test_the_other_name_of_tied_weights_is_not_missing(tmp_path: Path, said: list[str]) -> None:
    tied = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    tied[1].weight = tied[0].weight
    save_all({"model": tied}, tmp_path / "a")
    load_weights(tied, tmp_path / "a/model.safetensors", strict=False)
    assert said[0].strip().endswith("3 tensors loaded")
