"""Protein tasks resume exactly, with and without workers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.resume.conftest import Lab, kill_and_resume
from tests.tasks.proteins import CONVOLUTION, ENCODERS, tagging, variants

SLOW = pytest.mark.slow


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The changes of the config of `tests.resume.parts` for each kind, by its number of workers."""
    root, found = tmp_path_factory.mktemp("proteins"), {}
    configs = {"tagging": tagging(root), "regression": variants(root, {**ENCODERS["substitutions"], "dropout": 0.3})}
    configs["tagging"]["model"]["encoder"] = {**CONVOLUTION, "dropout": 0.3, "word_dropout": 0.2}
    for kind, cfg in configs.items():
        task = {**cfg["task"], "evalpipes": [{"type": "tests.resume.parts.Draw"}]}
        for workers in (0, 2):
            train = {**task["datasets"]["train"], "shuffle": True, "num_workers": workers}
            datasets = {"train": train, "dev": task["datasets"]["dev"]}
            found[f"{kind}-{workers}"] = {"task": {**task, "datasets": datasets}, "model": cfg["model"]}
    return found


@pytest.mark.parametrize(
    ("kind", "place"),
    [
        ("tagging-0", ("end_step", 3)),
        ("regression-2", ("end_step", 5)),
        *(
            pytest.param(kind, place, marks=SLOW)
            for kind in ("tagging-0", "tagging-2", "regression-0", "regression-2")
            for place in (("begin_epoch", 2), ("end_epoch", 1), ("end_step", 2))
        ),
    ],
)
def test_a_killed_training_on_proteins_resumes_exactly(
    lab: Lab, tmp_path: Path, kinds: dict[str, Any], kind: str, place: tuple[str, int]
) -> None:
    assert kill_and_resume(lab, tmp_path, place, kinds[kind], kinds[f"{kind[:-1]}0"]) == []
