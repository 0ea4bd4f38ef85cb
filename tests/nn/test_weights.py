"""Weights are written whole, for whom the umask allows, or not at all."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from pathlib import Path

import pytest
from torch import nn

from alchemy.errors import AlchemyError
from alchemy.nn.weights import load_weights, save_all


@pytest.fixture
def full_disk() -> Iterator[None]:
    """No file may grow beyond 4 KiB."""
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
        with pytest.raises(AlchemyError, match=rf"the weights cannot be written to '.*{name}': .*; is the disk full"):
            save_all({"criterion": small, "model": nn.Linear(90, 90)}, tmp_path / name)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["criterion.safetensors", "model.safetensors", "old"]
    load_weights(small, tmp_path / "old/model.safetensors")
