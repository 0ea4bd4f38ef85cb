"""A history: steps, values, errors, files, and the metrics of a record."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from alchemy import History
from alchemy.errors import AlchemyError, MissingKey
from tests.analysis.fake_curves import write_curves


def test_values_are_sorted_by_step_and_the_last_one_wins() -> None:
    history = History()
    for step, loss in [(2, 0.2), (1, 0.1), (2, 0.3)]:  # steps may go backwards
        history.log(step, loss=loss)
    series = history["loss"]
    assert (series.steps, series.data, history.step, history.metrics) == ([1, 2], [0.1, 0.3], 2, ["loss"])


@pytest.mark.parametrize(
    ("steps", "places"),
    [
        ([(0, 0), (0, 9), (1, 4)], [0, 9, 14]),  # starts again in each epoch
        ([(0, 0), (0, 9), (1, 14)], [0, 9, 14]),  # counts on
        ([(0, 4), (1, 4), (3, 4)], [4, 9, 14]),  # an epoch is missing
    ],
)
def test_steps_within_epochs_have_places_on_one_axis(steps: list[tuple[int, int]], places: list[int]) -> None:
    history = History()
    for step in steps:
        history.log(step, loss=1.0)
    assert history["loss"].places == places


def test_metrics_with_few_values_are_placed_like_those_with_many() -> None:
    history = History()
    for epoch in range(2):
        for step in range(10):
            history.log((epoch, step), loss=1.0)
        history.log((epoch, 4), score=1.0)
    assert history["score"].places == [4, 14]


@pytest.mark.parametrize(
    "value", [1, 1.0, np.float32(1), np.array(1), torch.tensor(1.0), torch.ones((), dtype=torch.bfloat16)]
)
def test_numbers_of_every_kind_become_floats(value: object) -> None:
    history = History()
    history.log(np.int64(3), loss=value)
    assert history["loss"].data == [1.0] and type(history["loss"].data[0]) is float and history.step == 3


def test_arrays_are_copied() -> None:
    weights, history = torch.zeros(2, requires_grad=True), History()
    history.log(0, weights=weights, half=torch.ones(2, dtype=torch.bfloat16))
    with torch.no_grad():
        weights += 1
    assert np.array_equal(history["weights"].data[0], [0, 0]) and np.array_equal(history["half"].data[0], [1, 1])


@pytest.mark.parametrize(
    ("step", "value", "message"),
    [
        ("1", 1.0, "'1' is not a step; expected an integer"),
        (1.5, 1.0, "1.5 is not a step"),
        ((1, 2, 3), 1.0, "is not a step"),
        (2**70, 1.0, "is not a step"),
        ((0, 1), 1.0, r"the step \(0, 1\) cannot follow 0"),
        (1, "high", "'loss' is neither a number nor an array"),
        (1, None, "'loss' is neither a number nor an array"),
        (1, [[1], [1, 2]], "'loss' is neither a number nor an array"),
        (1, 10**400, "too large for a float"),
    ],
)
def test_bad_steps_and_values(step: object, value: object, message: str) -> None:
    history = History()
    history.log(0, loss=1.0)
    with pytest.raises(AlchemyError, match=message):
        history.log(step, loss=value)  # type: ignore[arg-type]
    assert history["loss"].steps == [0] and history.step == 0


def test_an_unknown_metric_is_an_error_with_a_hint() -> None:
    history = History()
    with pytest.raises(MissingKey, match="nothing has been logged yet"):
        history["loss"]
    history.log(0, loss=1.0)
    assert "loss" in history and "los" not in history
    with pytest.raises(MissingKey, match=r"it has loss; did you mean 'loss'\?"):
        history["los"]


def test_progress_prints_the_numbers_of_the_last_step(capsys: pytest.CaptureFixture[str]) -> None:
    history = History()
    history.progress()
    history.log((0, 7), **{"损失\x1b[31m": math.nan}, image=np.zeros((2, 2)))
    history.progress()
    assert capsys.readouterr().out == "nothing has been logged yet\nstep 0:7  损失\\u001b[31m nan\n"


def test_a_record_becomes_a_history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = write_curves(tmp_path / "records", 0, {"train/loss": [3.0, 2.0, float("nan")]})
    for name in ("last", folder):
        history = History.from_record(name)
        assert (history["train/loss"].steps, history.step, history.seconds) == ([1, 2, 3], 3, 1.5)
        assert history["train/loss"].x_label == "update"
    (folder / "metrics.jsonl").unlink()
    with pytest.raises(AlchemyError, match=r"metrics.jsonl cannot be read: No such file"):
        History.from_record(folder)
