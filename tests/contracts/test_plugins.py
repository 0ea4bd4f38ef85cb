"""The contract of plugins: they are built, receive metrics, end with the run, and restore the process state."""

from __future__ import annotations

import logging
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from alchemy.plugins.base import AlchemyPlugin
from alchemy.runner import run
from tests.contracts.parts import each
from tests.hidden import EVERYTHING, HIDE, python
from tests.toy import config

RECORD = {"type": "alchemy.plugins.FileLogger", "log_dir": "records"}
PLUGINS: dict[str, dict[str, Any]] = {
    "FileLogger": RECORD,
    "Backup": {"type": "alchemy.plugins.Backup", "paths": ["alchemy"]},
    "Seeding": {"type": "alchemy.plugins.Seeding", "seed": 3, "use_deterministic_algorithms": True},
}


def training(table: dict[str, Any], *, fails: bool = False, folder: str = "records") -> dict[str, Any]:
    record = {**RECORD, "log_dir": folder}
    plugins = [record] if table == RECORD else [record, table]
    pipes = [{"type": "tests.toy.FailAt", "step": 2}] if fails else []
    return config(plugins=plugins, sched__epochs=1, sched__pipes=pipes)


def of_the_process() -> tuple[Any, ...]:
    """Return the global state that a plugin might change."""
    torch_state = torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled()
    return (*torch_state, os.getcwd(), list(logging.getLogger().handlers), logging.getLogger().level)


@each("plugin", PLUGINS)
@pytest.mark.parametrize("fails", [False, True])
def test_a_plugin_hears_the_numbers_and_ends_with_the_run(
    table: dict[str, Any], fails: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    calls: list[Any] = []
    kind: Any = AlchemyPlugin.resolve_registered_module(table["type"])
    log, leave = kind.log, kind.exit
    monkeypatch.setattr(kind, "log", lambda self, values, update: (calls.append("log"), log(self, values, update)))
    monkeypatch.setattr(kind, "exit", lambda self: (calls.append(type(sys.exception())), leave(self)))
    before = of_the_process()
    (result,) = run([training(table, fails=fails)], device=[-1])
    assert result.status == ("failed" if fails else "finished")
    assert calls[0] == "log" and calls[-1] is (RuntimeError if fails else type(None)) and calls.count("log") > 1 - fails
    assert [call for call in calls if call != "log"] == calls[-1:]
    assert of_the_process() == before


@each("plugin", PLUGINS)
def test_a_plugin_writes_nothing_without_files(
    table: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (result,) = run([training(table)], device=[-1], no_file=True, raise_errors=True)
    assert result.record_dir is None and list(tmp_path.iterdir()) == []


ASK = """
from alchemy.runner import run
for cfg in {cfgs!r}:
    (result,) = run([cfg], device=[-1])
    print("=", cfg["plugins"][-1]["type"], result.status, result.exception)
"""


def test_a_plugin_whose_package_is_missing_says_what_to_install(tmp_path: Path) -> None:
    cases = each("plugin", PLUGINS).args[1]
    cfgs = [training(table, folder=str(tmp_path / "records")) for table in cases]
    out = python(HIDE.format(hidden=EVERYTHING) + ASK.format(cfgs=cfgs))
    said = dict(line[2:].split(" ", 1) for line in out.splitlines() if line.startswith("= "))
    assert said.keys() == {table["type"] for table in cases}
    missing = {name: text for name, text in said.items() if text != "finished None"}
    assert list(missing) == ["alchemy.plugins.TensorboardLogger"]
    assert all(re.search(r"needs the package \w+; pip install", text) for text in missing.values())
