"""A warm start loads the weights that fit and reports the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from loguru import logger
from torch import nn

from alchemy.nn.partial_load import load_partial
from tests.logs import warned


def test_what_fits_is_taken_and_the_rest_is_told() -> None:
    module = nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 3), "new": nn.Linear(1, 1)})
    saved = {
        "body.weight": torch.full((2, 2), 7.0),
        "body.bias": torch.ones(2, dtype=torch.float64),
        "head.weight": torch.ones(5, 2),
        "head.bias": torch.ones(3),
        "old.weight": torch.ones(1),
    }
    report = load_partial(module, saved)
    assert report.loaded == ["body.weight", "body.bias", "head.bias"]
    assert report.reshaped == ["head.weight: saved [5, 2], here [3, 2]"]
    assert report.missing == ["new.weight", "new.bias"]
    assert report.unexpected == ["old.weight"]
    assert torch.equal(module.state_dict()["body.weight"], saved["body.weight"])
    assert str(report).splitlines() == [
        "3 of 6 tensors loaded",
        "2 unchanged, missing from the file: new.weight, new.bias",
        "1 unchanged, shapes differ: head.weight: saved [5, 2], here [3, 2]",
        "1 ignored, not in the model: old.weight",
    ]


def test_the_second_name_of_a_tied_tensor_is_not_missing() -> None:
    module = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    module[1].weight = module[0].weight
    report = load_partial(module, {"0.weight": torch.ones(2, 2), "0.bias": torch.ones(2), "1.bias": torch.ones(2)})
    assert (report.missing, report.unexpected) == ([], [])


@pytest.mark.parametrize(("names", "level"), [(["0.bias"], "WARNING"), (["0.bias", "1.bias"], "INFO")])
def test_a_file_that_matches_less_than_half_of_the_model_is_a_warning(names: list[str], level: str) -> None:
    levels: list[str] = []
    sink = logger.add(lambda line: levels.append(line.record["level"].name), format="{message}")
    with warned("INFO") as lines:
        report = load_partial(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), dict.fromkeys(names, torch.ones(2)))
        report.log(Path("net.pt"))
    logger.remove(sink)
    assert levels == [level]
    assert f"{len(names)} of 4 tensors loaded" in lines[0]
    assert ("net.pt: fewer than half of the model's tensors match" in lines[0]) == (level == "WARNING")


def test_a_long_list_is_cut() -> None:
    report = load_partial(nn.ReLU(), {str(i): torch.ones(1) for i in range(10)})
    assert str(report).endswith("0, 1, 2, 3, 4, 5, 6, 7, and 2 more")
