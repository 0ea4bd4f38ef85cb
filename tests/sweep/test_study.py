"""The files of a sweep, and two sweeps of one name."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from alchemy.errors import AlchemyError
from alchemy.sweep.space import Choice, Space
from alchemy.sweep.study import find_study, list_studies, open_study
from tests.sweep.trivial import SPACE, make_plan, make_settings

OTHER = Space((Choice("a", (1, 2)),))


def test_a_study_is_read_back():
    settings = make_settings(seeds=[1, 2])
    with open_study(make_plan(settings)) as study:
        trial = study.ask({"a": 1, "b": "x"})
        study.settle(trial, "done", value=0.5, values={"1": 0.4, "2": 0.6}, records=["r1", "r2"])
        study.settle(study.ask({"a": 2, "b": "y"}), "failed", reason="out of memory")
    again = find_study("toy")
    assert list_studies() == ["toy"]
    assert again.trials == study.trials
    assert again.space == SPACE
    assert again.trials[1].reason == "out of memory"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"space": make_plan(make_settings(OTHER)).space}, "another space: a, b"),
        ({"digest": "other"}, "another config"),
        ({"metric": "dev/f1"}, "another metric: .* -> .dev/f1."),
        ({"seeds": [1, 2]}, r"another list of seeds: \[1\] -> \[1, 2\]"),
        ({"overrides": ["a=1"]}, r"another --set options: \[\] -> \[.a=1.\]"),
    ],
)
def test_another_sweep_of_the_same_name_is_refused(change, message):
    with open_study(make_plan(make_settings())):
        pass
    expected = f"the sweep 'toy' already exists, with {message}; pass --name"
    with pytest.raises(AlchemyError, match=expected), open_study(make_plan(make_settings(), **change)):
        pass


def test_a_running_sweep_is_not_started_again():
    code = "from tests.sweep.trivial import *\nwith open_study(make_plan(make_settings())): pass"
    root = Path(__file__).parents[2]
    with open_study(make_plan(make_settings())):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={"PYTHONPATH": str(root)}
        )
    assert "the sweep 'toy' is already running; wait for it, or pass another --name" in done.stderr


def test_a_damaged_study_is_reported():
    with open_study(make_plan(make_settings())) as study:
        pass
    (study.folder / "study.json").write_text("{")
    with pytest.raises(AlchemyError, match=r"toy/study.json cannot be read: .*; remove the folder"):
        find_study("toy")


def make_unreadable(path, kind):
    path.unlink(missing_ok=True)
    os.mkfifo(path) if kind == "fifo" else path.mkdir()


@pytest.mark.parametrize("kind", ["fifo", "folder"])
def test_points_that_are_not_a_file_are_reported(kind):
    with open_study(make_plan(make_settings())) as study:
        make_unreadable(study.folder / "points.jsonl", kind)
    with pytest.raises(AlchemyError, match=r"toy/points.jsonl cannot be read: it is not a file; remove the folder"):
        find_study("toy")


@pytest.mark.parametrize("result", [{"value": "abc"}, {"values": [1]}, {"records": "r"}, {"reason": 1}])
def test_a_result_of_another_type_is_reported(result):
    with open_study(make_plan(make_settings())) as study:
        study.settle(study.ask({"a": 1, "b": "x"}), "done", **result)
    with pytest.raises(AlchemyError, match=r"toy/points.jsonl:2 is damaged; remove the line"):
        find_study("toy")


def test_a_point_outside_the_space_is_reported():
    with open_study(make_plan(make_settings())) as study:
        study.ask({"a": 4, "b": "x"})
    with pytest.raises(AlchemyError, match=r"points.jsonl is damaged: point 0 is not in the space"):
        find_study("toy")


@pytest.mark.parametrize("field", [{"space": [1]}, {"seeds": 3}, {"trials": "x"}])
def test_a_setting_of_another_type_is_reported(field):
    with open_study(make_plan(make_settings())) as study:
        pass
    path = study.folder / "study.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | field))
    with pytest.raises(AlchemyError, match=rf"study.json cannot be read: its {next(iter(field))} is"):
        find_study("toy")


def test_an_unknown_name_is_reported_with_a_hint():
    with open_study(make_plan(make_settings())):
        pass
    with pytest.raises(AlchemyError, match=r"there is no sweep 'toi' .*did you mean 'toy'"):
        find_study("toi")


def test_study_json_has_a_format():
    with open_study(make_plan(make_settings())) as study:
        pass
    plan = json.loads((study.folder / "study.json").read_text())
    assert plan["format"] == 1
    assert plan["space"] == {"a": {"choice": [1, 2, 3]}, "b": {"choice": ["x", "y"]}}
