"""Listing records repairs those whose process is gone."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from alchemy.index.record_index import RecordIndex


@pytest.mark.parametrize("indexed", [False, True])
def test_a_killed_run_is_repaired_when_records_are_listed(
    indexed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = "import sys; from alchemy.records import Record; Record.create('records', name='r', tag='t'); "
    code += "print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        if indexed:
            with RecordIndex.open() as index:
                assert [row.status for row in index.query()] == ["running"]
        process.kill()
    with RecordIndex.open() as index:
        (row,) = index.query()
    info = json.loads((tmp_path / "records" / "r" / "record.json").read_text())
    assert (row.status, info["status"]) == ("killed", "killed")
    assert info["ended"] == info["heartbeat"] and row.ended is not None
    with RecordIndex.open() as index:
        assert index.changes == (0, 0, 0)
