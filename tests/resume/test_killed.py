"""A training run killed with SIGKILL at any place and resumed equals an uninterrupted one."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pytest

from tests.resume.compare import differences
from tests.resume.conftest import Lab, record_of, text_of

# minimum number of passes by place in three epochs of five steps; and the places that `make test` covers
STEPS = {"forward": 15, "end_step": 15, "begin_step": 15}
BETWEEN = {"eval": 12, "scored": 6, "begin_epoch": 3, "end_epoch": 3, "row": 11, "finish": 1}
SAVING = {"disk": 460, "link": 19, "swap": 14, "remove": 10}
SAMPLE = {
    "forward": (3, 10),
    "end_step": (5,),
    "eval": (3,),
    "scored": (6,),
    "begin_epoch": (2,),
    "end_epoch": (3,),
    "finish": (1,),
    "disk": (40, 203, 324),
    "link": (6,),
    "swap": (3,),
    "remove": (3,),
}


def case(period: int, workers: int, place: str, count: int, *, sample: bool = True) -> Any:
    marks = () if sample and count in SAMPLE.get(place, ()) else (pytest.mark.slow,)
    return pytest.param(period, workers, place, count, id=f"{period}-{workers}-{place}-{count}", marks=marks)


def cases() -> list[Any]:
    found = [case(p, w, place, n + 1) for p in (1, 3) for w in (0, 2) for place in STEPS for n in range(STEPS[place])]
    for place, times in BETWEEN.items():
        found += [case(p, 0, place, n + 1, sample=p == 1 + 2 * (n % 2)) for p in (1, 3) for n in range(times)]
    for place, times in SAVING.items():
        every = 9 if place == "disk" else 1
        counts = sorted({*range(1, times, every), *SAMPLE[place]})
        found += [case(p, 0, place, n, sample=p == 1) for p in (1, 3) for n in counts]
    return found


@pytest.mark.parametrize(("period", "workers", "place", "count"), cases())
def test_killed_once(lab: Lab, tmp_path: Path, period: int, workers: int, place: str, count: int) -> None:
    baseline, _ = lab.baseline(period=period, workers=workers)
    changes: dict[str, Any] = {"period": period, "workers": workers, "checkpoint__asynchronous": count % 2 == 1}
    assert lab.start(tmp_path, [[place, count, signal.SIGKILL]], **changes) == -signal.SIGKILL
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []


@pytest.mark.parametrize("period", [1, 3])
def test_every_place_is_passed_as_often_as_the_cases_say(lab: Lab, period: int) -> None:
    _, seen = lab.baseline(period=period, workers=0)
    assert {place: seen[place] for place in STEPS} == STEPS
    for place, times in (BETWEEN | SAVING).items():
        assert times <= seen[place] <= times * 1.6, place


@pytest.mark.parametrize(
    ("period", "places"),
    [
        pytest.param(1, [("forward", 6), ("forward", 3)], marks=pytest.mark.slow),
        (3, [("forward", 2), ("disk", 30), ("end_step", 4)]),
        pytest.param(1, [("disk", 200), ("disk", 5), ("disk", 41), ("begin_epoch", 1)], marks=pytest.mark.slow),
        pytest.param(3, [("end_epoch", 1), ("end_epoch", 1), ("end_epoch", 2)], marks=pytest.mark.slow),
        pytest.param(1, [("forward", 2)] * 14, marks=pytest.mark.slow),
        pytest.param(3, [("disk", 120)] * 3, marks=pytest.mark.slow),
        pytest.param(3, [("eval", 3), ("eval", 2), ("eval", 2)], marks=pytest.mark.slow),
        pytest.param(1, [("link", 3), ("swap", 2), ("remove", 1), ("link", 1)], marks=pytest.mark.slow),
    ],
)
def test_killed_again_and_again(lab: Lab, tmp_path: Path, period: int, places: list[tuple[str, int]]) -> None:
    baseline, _ = lab.baseline(period=period, workers=0)
    (first, *others) = places
    assert lab.start(tmp_path, [[*first, signal.SIGKILL]], period=period, workers=0) == -signal.SIGKILL
    for place in others:
        assert lab.resume(tmp_path, [[*place, signal.SIGKILL]]) == -signal.SIGKILL, text_of(tmp_path)
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []


@pytest.mark.slow
@pytest.mark.parametrize("every", [1, 2, {"epochs": 1}, {"epochs": 2}, 100], ids=str)
@pytest.mark.parametrize(
    "place", [("forward", 8), ("end_epoch", 2), ("eval", 12), ("disk", 41)], ids=lambda place: f"{place[0]}-{place[1]}"
)
def test_however_often_it_is_saved(lab: Lab, tmp_path: Path, every: Any, place: tuple[str, int]) -> None:
    baseline, _ = lab.baseline(every=every, workers=0)
    assert lab.start(tmp_path, [[*place, signal.SIGKILL]], every=every, workers=0) == -signal.SIGKILL
    assert lab.resume(tmp_path) == 0, text_of(tmp_path)
    assert differences(baseline, record_of(tmp_path)) == []
