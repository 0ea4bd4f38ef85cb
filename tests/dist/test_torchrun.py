"""`torchrun -m alchemy ..`: killed runs resume, and terminated runs report it to the scheduler."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest

from alchemy.config.toml_writer import dumps
from alchemy.records.status import read_info
from tests.clients.accelerated import HERE, PARTS
from tests.clients.conftest import NER
from tests.dist.leaving import recorded
from tests.dist.start import python, torchrun
from tests.dist.work import record
from tests.resume.compare import differences

pytestmark = pytest.mark.dist


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """An undisturbed run, and its output."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, alchemy("run", written(folder), "--resume", "auto")


def written(folder: Path, **leave: object) -> Path:
    """A config of two epochs with a checkpoint after every second update; `leave` are keywords of `LeaveAt`."""
    cfg = recorded(folder, "run", checkpoint={"every": 2})
    cfg["plugins"].append({"type": "alchemy.plugins.BasicSetup"})
    cfg["sched"]["pipes"][0] |= leave
    (folder / "cfg.toml").write_text(dumps(cfg))
    return folder / "cfg.toml"


def alchemy(*words: object, code: int = 0, options: tuple[str, ...] = ()) -> str:
    return torchrun(2, "tests.dist.exit", *words, "--device", -1, code=code, options=options)


def codes(folder: Path) -> list[int]:
    return [int((folder / f"code.{rank}").read_text()) for rank in (0, 1)]


def test_every_line_is_said_once(whole: tuple[Path, str]) -> None:
    folder, said = whole
    assert read_info(record(folder, "run"))["status"] == "finished"
    lines = [line for line in said.splitlines() if line.strip() and "reducer.cpp" not in line]  # a warning of torch
    assert [line for line, count in Counter(lines).items() if count > 1] == []
    for text in ("no unfinished record", "training: examples 13", "cfg.toml  finished"):
        assert len([line for line in lines if text in line]) == 1


def test_the_command_starts_its_processes_itself(whole: tuple[Path, str], tmp_path: Path) -> None:
    said = python("alchemy", "run", written(tmp_path), "--processes", 2, "--device", -1)
    assert said.count("cfg.toml  finished") == 1
    assert json.loads((record(tmp_path, "run") / "env.json").read_text())["processes"] == 2
    assert differences(record(whole[0], "run"), record(tmp_path, "run")) == []


def test_all_processes_are_killed_and_go_on(whole: tuple[Path, str], tmp_path: Path) -> None:
    alchemy("run", written(tmp_path, step=6, how="SIGKILL", who="all"), code=1)
    assert read_info(record(tmp_path, "run"))["status"] == "killed"
    alchemy("resume", record(tmp_path, "run"))
    assert differences(record(whole[0], "run"), record(tmp_path, "run")) == []


def test_one_process_is_killed_and_torchrun_starts_them_again(whole: tuple[Path, str], tmp_path: Path) -> None:
    cfg = written(tmp_path, step=6, how="SIGKILL", who="last")
    alchemy("run", cfg, "--resume", "auto", options=("--max-restarts", "1"))
    assert read_info(record(tmp_path, "run"))["gen"] == 1
    assert differences(record(whole[0], "run"), record(tmp_path, "run")) == []


def test_one_process_is_told_to_leave_and_all_say_so(whole: tuple[Path, str], tmp_path: Path) -> None:
    alchemy("run", written(tmp_path, step=5), code=1)
    assert codes(tmp_path) == [143, 143]
    assert read_info(record(tmp_path, "run"))["status"] == "stopped"
    alchemy("resume", record(tmp_path, "run"))
    assert codes(record(tmp_path, "run")) == [0, 0]
    assert differences(record(whole[0], "run"), record(tmp_path, "run")) == []


def test_an_old_project_trains_through_accelerate(tmp_path: Path) -> None:
    shutil.copytree(NER, tmp_path / "ner", ignore=shutil.ignore_patterns("__pycache__", "records"))
    changes = {key: f"'{HERE}.{part}'" for key, part in PARTS.items()}
    changes |= {"sched.epochs": "2", "task.datasets.train.num_workers": "0", "plugins.1.log_dir": "'records/run'"}
    words = [word for key, value in changes.items() for word in ("--set", f"{key}={value}")]
    torchrun(2, "alchemy", "run", "new.toml", "--device", -1, *words, cwd=tmp_path / "ner")
    found = record(tmp_path / "ner", "run")
    assert read_info(found)["status"] == "finished"
    losses = [line for line in (found / "diary.jsonl").read_text().splitlines() if '"loss"' in line]
    assert len(losses) == 6  # each process has half of the twelve batches of two epochs
