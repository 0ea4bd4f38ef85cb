"""Ready-made tasks keep the checkpoint with the best main metric on dev, unless the config sets another one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from alchemy.records.status import read_info
from alchemy.runner import run_task
from alchemy.tasks import Relation, Tagging
from tests.tasks.texts import config


def best_of(cfg: dict[str, Any]) -> dict[str, Any] | None:
    cfg["sched"] |= {"epochs": 2, "pipes": [{"type": "alchemy.pipeline.sched.EvalEEPipeline"}]}
    result = run_task(cfg, raise_errors=True)
    return read_info(result.record_dir).get("best")


def test_the_best_checkpoint_on_dev_is_kept(tmp_path: Path) -> None:
    best = best_of(config(tmp_path, "classes"))
    assert best is not None
    assert best["metric"] == "dev/accuracy"
    assert len(list(tmp_path.glob("records/*/state/best"))) == 1
    assert (Tagging.main_score, Relation.main_score) == ("f1", "f1")


def test_what_the_config_says_goes_before(tmp_path: Path) -> None:
    best = best_of(config(tmp_path, "classes") | {"checkpoint": {"monitor": "dev/loss", "mode": "min", "best": 0}})
    assert best is not None
    assert best["metric"] == "dev/loss"
    assert not list(tmp_path.glob("records/*/state/best"))
