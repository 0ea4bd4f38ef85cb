"""The finders try a config: learning rates until the loss diverges, batch sizes until memory is full."""

from __future__ import annotations

import json
import math
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.cli import main
from alchemy.config.load import prepare_cfg
from alchemy.config.toml_writer import dumps
from alchemy.errors import AlchemyError
from alchemy.verify.finders import Rates, Sizes, Try, find_batch_size, find_rate, sizes_to_try, sort_by_size
from tests.toy import Line, Points, config


class Tight(Line):
    """A line that has memory for `limit` samples."""

    def __init__(self, *, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def forward(self, batch: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        if len(batch["x"]) > self.limit:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return super().forward(batch, *args, **kwargs)


class Growing(Points):
    """Samples of which the last is the largest."""

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"x": torch.zeros(index + 1)}


def tight(limit: int, **changes: Any) -> dict[str, Any]:
    return config(model={"type": f"{__name__}.Tight", "limit": limit}, **changes)


# -- the learning rate
def test_the_rate_grows_evenly_until_the_loss_explodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = find_rate(prepare_cfg(config("records")), first=1e-4, last=100.0, updates=61)
    growth = (100.0 / 1e-4) ** (1 / 60)
    for one, two in zip(found.rates, found.rates[1:], strict=False):
        assert two / one == pytest.approx(growth)
    assert found.rates[0] == pytest.approx(1e-4)
    assert len(found.rates) < 60
    assert found.ended
    assert found.steepest is not None
    assert found.lowest is not None
    assert 1e-3 < found.steepest < found.lowest < 2.0
    assert not list(tmp_path.iterdir())


def test_groups_keep_their_proportion_and_windows_their_mean() -> None:
    cfg = config(backward={"type": "alchemy.model.DefaultBackwardHandler", "period": 2})
    cfg["optim"]["lr"] = 0.5
    found = find_rate(prepare_cfg(cfg), first=1e-4, last=1e-2, updates=5)
    assert len(found.rates) == 4
    assert found.rates[-1] == pytest.approx(1e-2 / 100**0.25)


def test_a_loss_that_does_not_fall_gives_no_suggestion() -> None:
    found = find_rate(prepare_cfg(config()), first=1e-12, last=1e-11, updates=40)
    assert found.lowest is None
    assert found.steepest is None


def test_the_steepest_point_comes_before_the_lowest() -> None:
    found = Rates()
    for i, loss in enumerate([4.0, 4.1] * 5 + [3.0, 1.0, 0.5, 0.5, 0.5, 9.0, math.nan]):
        found.add(10.0**i, loss)
    assert found.exploded
    assert found.steepest is not None
    assert found.lowest is not None
    assert 1e9 <= found.steepest < found.lowest < 1e15


def test_rates_that_make_no_sense_are_told() -> None:
    with pytest.raises(AlchemyError, match=r"from 1.0 to 0.1; use rates > 0"):
        find_rate(prepare_cfg(config()), first=1.0, last=0.1)


# -- the batch size
@pytest.mark.parametrize(
    ("limit", "most", "best"), [(5, 16, 5), (8, 16, 8), (1, 16, 1), (0, 16, 0), (99, 6, 6), (99, 99, 16)]
)
def test_the_largest_batch_that_fits(limit: int, most: int, best: int) -> None:
    found = find_batch_size(prepare_cfg(tight(limit)), limit=most)
    assert found.best == best
    assert [row.batch_size for row in found.tries if row.fits and row.batch_size > limit] == []
    assert max(row.batch_size for row in found.tries) <= min(most, 16)


def test_sizes_are_doubled_then_halved_in() -> None:
    found, tried = Sizes(1000, ""), []
    for size in sizes_to_try(found):
        tried.append(size)
        found.tries.append(Try(size, size <= 300))
    assert tried[:10] == [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]
    assert 300 - 300 // 32 <= found.best <= 300
    assert len(tried) < 17


@pytest.mark.parametrize("find", [find_rate, partial(find_batch_size, limit=4)])
def test_a_task_that_loads_its_own_data_is_told(find: Any) -> None:
    task = {"type": "alchemy.task.DefaultTask"}
    with pytest.raises(AlchemyError, match=r"there is no training data; add \[task\.datasets\.train\]"):
        find(prepare_cfg(config(task=task)))


def test_the_largest_samples_come_first() -> None:
    assert sort_by_size(Growing(count=5)) == [4, 3, 2, 1, 0]


def test_the_cpu_needs_an_end() -> None:
    with pytest.raises(AlchemyError, match="--max N"):
        find_batch_size(prepare_cfg(config()))


def test_batches_that_pipes_make_have_no_size_to_find() -> None:
    cfg = config()
    cfg["task"]["datasets"]["train"] = {"pipes": [{"type": "tests.toy.Stream"}], "batch_size": None}
    with pytest.raises(AlchemyError, match="not created with a batch_size"):
        find_batch_size(prepare_cfg(cfg), limit=4)


def test_other_errors_are_not_taken_for_a_lack_of_memory() -> None:
    with pytest.raises(Exception, match="NoLoss"):
        find_batch_size(prepare_cfg(config(model={"type": "tests.toy.NoLoss"})), limit=4)


# -- the command
@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "train.toml"
    path.write_text(dumps(prepare_cfg(tight(6))))
    return path


def test_the_command_prints_a_table_and_advice(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", "lr", str(written), "--last", "1", "--first", "1e-4", "--updates", "80"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split() == ["rate", "loss"]
    assert "suggested: lr = " in out
    assert main(["find", "batch-size", str(written), "--max", "16"]) == 0
    out = capsys.readouterr().out
    assert "8  out of memory" in out
    assert out.splitlines()[-1] == "batch_size = 6 fits, measured with the largest samples"


def test_the_command_prints_nothing_but_json(written: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["find", "batch-size", str(written), "--max", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["batch_size"], found["limit"], found["why"]) == (4, 4, "--max")
    assert main(["find", "lr", str(written), "--json", "--updates", "40", "--last", "1e-6"]) == 1
    assert json.loads(capsys.readouterr().out)["suggestion"] is None
