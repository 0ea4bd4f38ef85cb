"""Train a plain module on MNIST: the files of docs/plain-modules.md."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import alchemy
from tests.docs import pages
from tests.idx_files import write_idx
from tests.text.sets import DATA


@pytest.fixture
def mnist(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write the files of docs/plain-modules.md to a folder, with the dataset or with generated images."""
    for block in pages.blocks(pages.ROOT / "docs" / "plain-modules.md"):
        if block.file:
            (tmp_path / block.file).parent.mkdir(exist_ok=True)
            (tmp_path / block.file).write_text(block.body.partition("\n")[2], "utf-8")
    if (DATA / "mnist" / "train-images-idx3-ubyte.gz").is_file():
        (tmp_path / "mnist").symlink_to(DATA / "mnist")
    else:
        write_idx(tmp_path / "mnist")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "src"]:
        del sys.modules[name]


def test_mnist_needs_no_more_than_49_lines(mnist: Path) -> None:
    lines = [line for name in ("mnist.toml", "src/net.py") for line in (mnist / name).read_text().splitlines()]
    assert len(lines) <= 49
    assert not re.search(r"\balchemy\b", (mnist / "src" / "net.py").read_text())


def test_mnist_is_learnt_in_a_few_updates(mnist: Path) -> None:
    overrides = ["sched.num_training_steps=60", "sched.epochs=8"]
    (result,) = alchemy.run([alchemy.prepare_cfg("mnist.toml", overrides=overrides)], device=[-1], raise_errors=True)
    assert result.ret["accuracy"] > 0.8
    assert result.record_dir is not None
