"""Import paths of renamed modules still resolve: in a config, in a record, in the registry."""

from __future__ import annotations

import importlib
import importlib.util

import pytest

from alchemy.config.load import prepare_cfg
from alchemy.moved import MOVED, current_path
from alchemy.registry import resolve


@pytest.mark.parametrize("old", MOVED)
def test_an_old_module_has_a_new_home(old: str) -> None:
    assert importlib.util.find_spec(old) is None
    assert importlib.util.find_spec(MOVED[old]) is not None


def test_an_old_path_in_a_config_is_updated() -> None:
    tables = {
        "optim": {"type": "alchemy.optim.parts.AdamW", "lr": 0.1},
        "sched": {"type": "alchemy.sched.parts.Cosine"},
        "plugins": [{"type": "alchemy.plugins.files.FileLogger", "log_dir": "x"}],
        "task": {"datasets": {"train": {"pipes": [{"type": "alchemy.pipeline.targets.LabelIds"}]}}},
    }
    doc = prepare_cfg(tables)
    assert doc["optim"]["type"] == "alchemy.optim.optimizers.AdamW"
    assert doc["sched"]["type"] == "alchemy.sched.schedules.Cosine"
    assert doc["plugins"][0]["type"] == "alchemy.plugins.file_logger.FileLogger"
    assert doc["task"]["datasets"]["train"]["pipes"][0]["type"] == "alchemy.pipeline.label_ids.LabelIds"


def test_an_old_path_is_resolved_in_code() -> None:
    assert resolve("alchemy.optim.parts.AdamW") is resolve("alchemy.optim.AdamW")


def test_other_paths_stay() -> None:
    assert current_path("src.optim.parts.AdamW") == "src.optim.parts.AdamW"
    assert current_path("AdamW") == "AdamW"
