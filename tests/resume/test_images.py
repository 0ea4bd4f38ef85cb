"""Image tasks with random transforms resume exactly, with and without workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.resume.conftest import Lab, kill_and_resume
from tests.tasks.pictures import RANDOM, tables

SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The changes of the config of `tests.resume.parts` for each kind, by its number of workers."""
    found = {}
    for kind in ("image", "segmentation"):
        task, model = tables(tmp_path_factory.mktemp(kind), kind, augment=RANDOM)
        for workers in (0, 2):
            train = {**task["datasets"]["train"], "shuffle": True, "num_workers": workers}
            own = {**task, "evalpipes": [{"type": "tests.resume.parts.Draw"}]}
            own["datasets"] = {"train": train, "dev": task["datasets"]["dev"]}
            found[f"{kind}-{workers}"] = {"task": own, "model": model, "optim__lr": 0.01}
    return found


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("image-0", ("end_step", 5)),
        ("image-2", ("end_step", 3)),
        ("segmentation-0", ("end_step", 3)),
        ("segmentation-2", ("end_step", 5)),
        *(
            pytest.param(kind, place, marks=SLOW)
            for kind in ("image-0", "image-2", "segmentation-0", "segmentation-2")
            for place in (("begin_epoch", 2), ("end_epoch", 1), ("end_step", 2))
        ),
    ],
)
def test_a_killed_training_on_images_resumes_exactly(
    lab: Lab, tmp_path: Path, kinds: dict[str, Any], kind: str, place: tuple[str, int]
) -> None:
    assert kill_and_resume(lab, tmp_path, place, kinds[kind], kinds[f"{kind[:-1]}0"]) == []
