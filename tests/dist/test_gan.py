"""The GAN that `alchemy new --kind gan` writes, in two processes: the updates of one, and one set of pictures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from safetensors.torch import load_file

from alchemy.records.ledger import read_ledger
from alchemy.records.metrics_file import comparable
from tests.dist.start import python
from tests.resume.gan_project import RUN, record_in, write

pytestmark = pytest.mark.dist


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The records of one process and of two; 100 images in batches of 32 are 3 updates per epoch."""
    folders = [write(tmp_path_factory.mktemp("gan") / name) for name in ("one", "two")]
    for folder, processes in zip(folders, (1, 2)):
        python("alchemy", *RUN, *(["--processes", 2] if processes == 2 else []), cwd=folder)
    return [record_in(folder) for folder in folders]


def test_two_processes_make_the_updates_of_one(records: list[Path]) -> None:
    ledgers = [[row for _, row in read_ledger(record / "ledger.jsonl")] for record in records]
    assert ledgers[0] == ledgers[1]
    for name in ("model.safetensors", "ema.safetensors"):
        one, two = (load_file(record / "state" / "last" / name) for record in records)
        assert one.keys() == two.keys() != set()
        for key, weight in one.items():
            np.testing.assert_allclose(two[key], weight, rtol=1e-3, atol=1e-5, err_msg=key)


def test_two_processes_log_the_scores_and_pictures_of_one(records: list[Path]) -> None:
    one, two = ([row["values"] for row in comparable(record / "metrics.jsonl")] for record in records)
    names = ("train/loss_generator", "train/loss_discriminator", "dev/frechet")
    for first, second in zip(one, two, strict=True):
        for name in first.keys() & set(names):
            assert second[name] == pytest.approx(first[name], rel=1e-3)
    pictures = [sorted((record / "images").iterdir()) for record in records]
    assert [path.name for path in pictures[0]] == [path.name for path in pictures[1]] != []
    for paths in zip(*pictures):
        pixels = [np.asarray(Image.open(path), dtype=int) for path in paths]
        assert abs(pixels[0] - pixels[1]).max() <= 1
