"""What FileLogger writes to `record.json` and next to it: kind, folding hash, code and usage."""

from __future__ import annotations

import datetime
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.config.load import prepare_cfg
from alchemy.config.toml_writer import dumps
from alchemy.plugins.config_hash import fold_hash
from alchemy.records.create_folder import SWEEP_POINT
from alchemy.records.status import read_info
from alchemy.resuming import resume
from alchemy.runner import run
from tests.toy import config

SEEDING = {"type": "alchemy.plugins.Seeding", "seed": 5}
FILES = {"type": "alchemy.plugins.FileLogger", "log_dir": "a"}


def train(folder: Path, **changes: Any) -> Path:
    (result,) = run([config(folder, **changes)], device=[-1], raise_errors=True)
    assert result.record_dir is not None
    return result.record_dir


def hash_of(**changes: Any) -> str:
    return fold_hash(prepare_cfg({"tag": "t", "plugins": [FILES, SEEDING], "optim": {"lr": 0.1}, **changes}))


def test_runs_that_differ_only_in_seed_or_folder_have_one_hash() -> None:
    same = hash_of()
    assert hash_of(seed=3) == hash_of(seed=4) == same
    assert hash_of(plugins=[FILES | {"log_dir": "b"}, SEEDING | {"seed": 6}]) == same
    assert hash_of(plugins=[FILES | {"level": "INFO"}, SEEDING]) != same
    assert hash_of(sweep={"trials": 3}) == same  # a run does not read it
    assert hash_of(optim={"lr": 0.2}) != same
    assert hash_of(optim={"lr": 0.1, "seed": 1}) != same  # not the seed of the run


def test_a_run_of_a_sweep_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_info(train(tmp_path / "alone"))["sweep"] is None
    monkeypatch.setenv(SWEEP_POINT, "v1.2-best/7")
    assert read_info(train(tmp_path / "swept"))["sweep"] == {"name": "v1.2-best", "point": 7}


def test_tests_fold_if_their_training_runs_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    variants: dict[str, dict[str, Any]] = {"a": {}, "b": {"seed": 2}, "c": {"optim__lr": 0.2}}
    for name, changes in variants.items():
        (tmp_path / f"{name}.toml").write_text(dumps(config(f"records-{name}/train", **changes)))
        assert main(["run", f"{name}.toml", "--test", "--device", "-1"]) == 0
    found = {path.parent.name: read_info(next(path.iterdir())) for path in tmp_path.glob("records-*/test")}
    a, b, c = (found[f"records-{name}"] for name in "abc")
    assert {info["kind"] for info in found.values()} == {"test"}
    assert a["fold_hash"] == b["fold_hash"] != c["fold_hash"]
    trained = read_info(next((tmp_path / "records-a" / "train").iterdir()))
    assert (trained["kind"], a["parent"], a["code"]) == ("train", trained["id"], trained["code"])


def test_a_run_says_what_it_used_over_all_generations(tmp_path: Path) -> None:
    folder = train(tmp_path, sched__pipes=[{"type": "tests.toy.SignalAt", "step": 5}])
    before = read_info(folder)
    assert before["status"] == "stopped" and before["peak_memory"]["rss"] > 50 and before["cpu_seconds"] > 0
    assert (before["peak_memory"]["gpu"], before["gpu_seconds"]) == (None, None)
    early = datetime.datetime.fromisoformat(before["started"]) - datetime.timedelta(days=1)
    (folder / "record.json").write_text(json.dumps(before | {"started": early.isoformat()}))
    resume(folder, device=[-1])
    after = read_info(folder)
    assert before["seconds"] < after["seconds"] < 3600  # the pause of a day does not count
    assert after["gen"] == 1 and after["cpu_seconds"] > before["cpu_seconds"]
    assert after["peak_memory"]["rss"] >= before["peak_memory"]["rss"]


def test_the_changes_of_the_project_follow_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def git(*words: str) -> None:
        subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *words], check=True)

    (tmp_path / "notes.txt").write_text("one\n")
    git("init", "-q", "-b", "main")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    (tmp_path / "notes.txt").write_text("two\n")
    folder = train(tmp_path / "records", sched__pipes=[{"type": "tests.toy.SignalAt", "step": 5}])
    info = read_info(folder)
    assert (info["git"]["branch"], info["git"]["dirty"]) == ("main", True)
    assert "+two" in (folder / "git.diff").read_text()
    git("commit", "-q", "-a", "-m", "second")
    resume(folder, device=[-1])
    after = read_info(folder)["git"]
    assert after["dirty"] is False and after["commit"] != info["git"]["commit"]
    assert not (folder / "git.diff").exists() and "+two" in (folder / "git.0.diff").read_text()


def test_a_record_of_format_1_is_resumed(tmp_path: Path) -> None:
    whole = read_info(train(tmp_path / "whole"))
    folder = train(tmp_path / "cut", sched__pipes=[{"type": "tests.toy.SignalAt", "step": 5}])
    new = {"kind", "fold_hash", "git", "alchemy", "boot_id", "oom_kills", "peak_memory"}
    new |= {"seconds", "cpu_seconds", "gpu_seconds"}
    old = {key: value for key, value in read_info(folder).items() if key not in new}
    (folder / "record.json").write_text(json.dumps(old | {"format": 1}))
    resume(folder, device=[-1])
    info = read_info(folder)
    assert (info["format"], info["kind"], info["status"]) == (2, "train", "finished")
    assert set(info) == set(whole) and info["fold_hash"] != ""
