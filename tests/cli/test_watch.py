"""`alchemy watch`: in a terminal, in a pipe, and bad options."""

from __future__ import annotations

import contextlib
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from alchemy.cli import main
from alchemy.records import Record
from tests.analysis.fake_curves import write_curves
from tests.cli.run_command import run


def test_a_pipe_gets_one_frame(records: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Record.create(records, name="run", tag="live").log({"train/loss": 0.5}, update=1, step=0, epoch=0)
    out = run(capsys, "watch", "last")
    assert out.startswith("live  running") and "\x1b" not in out and "q quits" not in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "--every", "0"], "--every must be between 0.1 and 86400 seconds, got 0"),
        (["last", "--every", "nan"], "--every must be between 0.1 and 86400 seconds, got nan"),
        (["last", "--metric", "dev/loss"], "has not logged dev/loss"),
        (["nothing"], "record not found: 'nothing'"),
        ([], "no run is active"),
    ],
)
def test_bad_options(records: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    write_curves(records, 0, {"train/loss": [1.0, 0.5]})
    assert message in run(capsys, "watch", *words, code=2)


@pytest.mark.parametrize("end", ["key", "run"])
def test_a_terminal_is_updated_until_a_key_or_the_end_of_the_run(records: Path, end: str) -> None:
    record = Record.create(records, name="run", tag="live") if end == "key" else None
    reader, writer = pty.openpty()
    env = {**os.environ, "COLUMNS": "80", "LINES": "24", "TERM": "xterm", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "alchemy", "watch", *(["last"] if record else []), "--every", "0.1"]
    shown = b""

    def wait_for(text: bytes) -> None:
        nonlocal shown
        deadline = time.monotonic() + 60
        while text not in shown and time.monotonic() < deadline:
            shown += os.read(reader, 2**16)
        assert text in shown

    with subprocess.Popen(command, stdin=writer, stdout=writer, env=env) as process:
        os.close(writer)
        if record is None:
            wait_for(b"no run is active, waiting for one to start; q quits")
            record = Record.create(records, name="run", tag="live")
        wait_for(b"no metrics yet")
        record.log({"train/loss": 0.5}, update=7, step=6, epoch=0)
        wait_for(b"update 7")
        if end == "key":
            os.write(reader, b"q")
        else:
            record.finish("finished")
        wait_for(b"\x1b[?25h\x1b[?1049l")
        assert process.wait(60) == 0
    with contextlib.suppress(OSError):  # the terminal is closed
        shown += os.read(reader, 2**16)
    os.close(reader)
    live, _, after = shown.partition(b"\x1b[?1049l")
    assert live.count(b"\x1b[?1049h") == 1 and b"q quits" in live
    assert (b"live  running" if end == "key" else b"live  finished") in after


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["watch", "--help"]) == 0
    assert "alchemy watch last --once" in capsys.readouterr().out
