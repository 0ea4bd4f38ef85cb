"""Runs that outlive the terminal, with real processes."""

import os
import time
from pathlib import Path

import pytest

from alchemy.cli import background, main
from alchemy.errors import AlchemyError
from alchemy.records.status import is_alive


def wait_until(true, seconds=30.0):
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it took too long"
        time.sleep(0.02)


def test_a_background_run_has_a_session_and_a_log_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    info = background.launch_detached(["version"])
    assert Path(info["log"]).parent == tmp_path / ".alchemy" / "background"
    wait_until(lambda: "python" in Path(info["log"]).read_text())
    wait_until(lambda: not is_alive(info))
    os.waitpid(info["pid"], 0)
    with pytest.raises(AlchemyError, match="has already ended"):
        background.stop_detached(info["pid"])


def test_only_runs_of_the_project_are_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["stop", str(os.getpid())]) == 2
    assert f"no background run with pid {os.getpid()}" in capsys.readouterr().err


def test_the_nearest_project_folder_is_used(tmp_path, monkeypatch):
    (tmp_path / ".alchemy").mkdir()
    (tmp_path / "a" / "b").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "a" / "b")
    assert background.home() == tmp_path / ".alchemy"
