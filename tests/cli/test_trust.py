"""A record from another source is data: names in its config are vetted before anything is imported."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from alchemy import trust
from alchemy.cli import main
from alchemy.config.load import prepare_cfg
from alchemy.errors import AlchemyError
from tests.hostile.code_records import CASES

Foreign = Callable[[str], Path]

# commands that read a record: R is its folder, C its config
COMMANDS = (
    "test R --device -1",
    "predict R --device -1",
    "generate R --input lines.txt --device -1",
    "score R --source lines.txt --target lines.txt --device -1",
    "export R --format ctranslate2 --device -1",
    "replay R --update 2 --device -1",
    "resume R --device -1",
    "run C --device -1",
    "run C --device -1 --fast-dev-run 1",
    "test C --device -1",
    "predict C --device -1",
    "check C",
    "check C --deep",
    "data peek C",
    "verify resume C",
    "verify determinism C",
    "verify parallel C --ranks 1",
    "find lr C",
    "find batch-size C --max 2",
)


@pytest.fixture
def own(trained_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of the user's own run, in a copy of the project as the working folder."""
    shutil.copytree(trained_project, tmp_path / "project", symlinks=True)
    monkeypatch.chdir(tmp_path / "project")
    Path("lines.txt").write_text("a\n")
    monkeypatch.setenv("HOSTILE_MARKER", str(tmp_path / "marker"))
    (record,) = (tmp_path / "project" / "records" / "train").iterdir()
    return record


@pytest.fixture
def foreign(own: Path) -> Foreign:
    """Make a hostile record, by the name of its case."""

    def make(case: str) -> Path:
        record = Path("records", "stranger")
        shutil.copytree(own, record, symlinks=True)
        CASES[case](record)
        return record

    return make


def start(command: str, record: Path) -> int:
    places = {"R": str(record), "C": str(record / "cfg.toml")}
    return main([places.get(word, word) for word in command.split()])


def untouched() -> bool:
    marker = Path(os.environ["HOSTILE_MARKER"])
    return not list(marker.parent.glob(f"{marker.name}*"))


@pytest.mark.parametrize("command", COMMANDS)
def test_a_stranger_runs_no_code(command: str, foreign: Foreign, capfd: pytest.CaptureFixture[str]) -> None:
    record = foreign("map_calls_os_system")
    line = next(n for n, text in enumerate((record / "cfg.toml").read_text().splitlines(), 1) if "os.system" in text)
    assert start(command, record) == 2
    told = "".join(capfd.readouterr())
    assert "fn = 'os.system' is not allowed" in told and "Traceback" not in told
    assert f"{record / 'cfg.toml'}:{line} " in told and f"alchemy trust {record}" in told
    assert untouched()


@pytest.mark.parametrize("case", CASES)
def test_no_case_gets_through(case: str, foreign: Foreign, capfd: pytest.CaptureFixture[str]) -> None:
    code = start("test R --device -1", foreign(case))
    # a tokenizer is read by the run, which then fails; packages are never imported
    late = {"tokenizer_in_the_record": 1, "record_that_is_a_package": 0}
    assert code == 2 or code == late.get(case)
    assert "Traceback" not in "".join(capfd.readouterr())
    assert untouched()


def test_a_trusted_record_may_name_anything(foreign: Foreign, capsys: pytest.CaptureFixture[str]) -> None:
    record = foreign("map_calls_os_system")
    assert main(["trust", str(record)]) == 0
    told = capsys.readouterr().out
    assert told.startswith(f"{record / 'cfg.toml'}: trusted; these settings need trust:\n  ")
    assert "fn = 'os.system'" in told
    start("data peek C", record)
    assert not untouched()


def test_trust_is_listed_and_taken_back(foreign: Foreign, capsys: pytest.CaptureFixture[str]) -> None:
    record = foreign("map_calls_os_system")
    assert main(["trust", "records", "--json"]) == 0
    statuses = {row["config"]: row["status"] for row in json.loads(capsys.readouterr().out)}
    assert sorted(statuses.values()) == ["already trusted", "trusted; these settings need trust:"]
    assert main(["trust", "--list"]) == 0
    assert os.path.realpath(record / "cfg.toml") in capsys.readouterr().out
    assert main(["trust", "--remove", str(record)]) == 0
    assert start("data peek C", record) == 2


@pytest.mark.parametrize("words", [[], ["--list", "records"], ["nowhere"], ["data"]])
def test_trust_tells_what_is_wrong(words: list[str], own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trust", *words]) == 2
    assert capsys.readouterr().err.startswith("error: ")


@pytest.mark.parametrize("name", ["link.toml", "linked/cfg.toml", "records/train/../stranger/cfg.toml", "mine.toml"])
def test_however_a_config_is_named_it_is_the_record_s(
    name: str, foreign: Foreign, capsys: pytest.CaptureFixture[str]
) -> None:
    record = foreign("map_calls_os_system")
    Path("link.toml").symlink_to(record / "cfg.toml")
    Path("linked").symlink_to(record)
    Path("mine.toml").write_text(f'base = "{record}/cfg.toml"\ntag = "mine"\n')
    assert main(["data", "peek", name]) == 2
    assert "os.system" in capsys.readouterr().err and untouched()


def test_the_user_s_own_values_are_not_vetted(foreign: Foreign, capsys: pytest.CaptureFixture[str]) -> None:
    record = foreign("map_calls_os_system")
    fn = "task.datasets.train.pipes.1.fn=operator.methodcaller"
    others = [f"task.datasets.{split}.pipes.1.fn=builtins.len" for split in ("dev", "test")]
    words = [word for text in (fn, *others) for word in ("--set", text)]
    assert main(["check", str(record / "cfg.toml"), *words]) in (0, 2)
    assert "not allowed" not in "".join(capsys.readouterr())


def test_a_record_from_another_machine_needs_no_ceremony(
    own: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "other home"))
    monkeypatch.setattr(trust, "_written", set())
    assert trust.entries() == {} and trust.untrusted_record(own)
    for command in ("test R --device -1", "replay R --update 2 --device -1", "check C --deep", "data peek C"):
        assert start(command, own) == 0, capsys.readouterr()


def test_an_own_run_may_call_anything_again(own: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = Path("train.toml").read_text()
    pipe = '{ type = "alchemy.pipeline.openers.CsvOpener" },'
    Path("train.toml").write_text(
        text.replace(pipe, f'{pipe}\n{{ type = "alchemy.pipeline.itr.Map", fn = "copy.copy" }},')
    )
    assert main(["run", "train.toml", "--device", "-1", "--set", "sched.epochs=1"]) == 0
    record = max(own.parent.iterdir())
    assert start("test R --device -1", record) == 0
    longer = ["--set", "sched.epochs=2", "--allow", "sched.epochs"]
    assert main(["resume", str(record), "--device", "-1", *longer]) == 0
    assert start("test R --device -1", record) == 0  # the resume has written another config
    with (record / "cfg.toml").open("a") as file:
        file.write("\n# edited\n")
    assert start("test R --device -1", record) == 2


def test_code_is_not_imported_from_a_record(
    foreign: Foreign, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = foreign("remote_code")
    (record / "src").mkdir()
    assert main(["check", "train.toml", "--user-dir", str(record / "src")]) == 2
    assert "it is in an untrusted record" in capsys.readouterr().err
    monkeypatch.chdir(record)
    with pytest.raises(AlchemyError, match="trust_remote_code = true"):
        prepare_cfg("cfg.toml")


def test_another_process_runs_no_code(foreign: Foreign) -> None:
    record = foreign("model_is_os_system")
    command = [sys.executable, "-m", "alchemy", "test", str(record), "--device", "-1"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2 and "type = 'os.system'" in done.stderr and untouched()
