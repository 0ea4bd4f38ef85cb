"""The progress bar: one line, rarely redrawn, plain without a terminal."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console

from alchemy import progress
from alchemy.progress import Bar
from alchemy.runner import run_task
from tests.labeled import config


def bar(terminal: bool, total: int | None = 10) -> tuple[Bar, io.StringIO]:
    out = io.StringIO()
    return Bar("epoch 1", total, Console(file=out, force_terminal=terminal, width=120)), out


def test_the_line_tells_loss_rate_speed_and_time_left() -> None:
    line, _ = bar(terminal=False)
    for _ in range(5):
        line.step()
    line.update_values(
        {"train/loss": 0.51234, "train/lr": 0.001, "time/targets_per_s": 2000.0, "system/rss": 1.0}, update=4
    )
    text = line.line()
    for part in ("epoch 1  5/10", "loss 0.5123", "lr 1.00e-03", "update 4", "targets/s 2,000", "it/s", "eta 0:00"):
        assert part in text
    line.update_values({"time/tokens_per_s": 9000.0}, update=5)
    assert "tokens/s 9,000" in line.line()
    assert "targets/s" not in line.line()
    assert "rss" not in line.line()


def test_a_file_gets_a_plain_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "PLAIN_SECONDS", 0.0)
    line, out = bar(terminal=False, total=None)
    with line:
        line.step("[x] {y}")
    assert out.getvalue().startswith("epoch 1  1  [x] {y}")
    assert "\x1b" not in out.getvalue()


def test_a_terminal_gets_one_live_line_that_goes_away() -> None:
    line, out = bar(terminal=True)
    with line:
        line.step()
        line.show()
        line.add_task("a task of the project", total=3)
        line.show()
    text = out.getvalue()
    assert "epoch 1  1/10" in text
    assert "a task of the project" in text


def test_between_two_drawings_nothing_is_written() -> None:
    line, out = bar(terminal=True, total=1000)
    with line:
        begin = len(out.getvalue())
        for _ in range(100):
            line.step()
        assert len(out.getvalue()) - begin < 2000


def test_a_rate_below_one_is_not_shown_as_zero() -> None:
    line, _ = bar(terminal=False)
    line.update_values({"time/targets_per_s": 0.314}, update=1)
    assert "targets/s 0.31" in line.line()


def test_a_rate_of_what_is_not_counted_is_not_logged(tmp_path: Path) -> None:
    logs = [{"type": "alchemy.plugins.FileLogger", "log_dir": str(tmp_path)}]
    cfg = config(type="tests.labeled.Silent") | {"plugins": logs, "log_every": 1}
    record = run_task(cfg, raise_errors=True).record_dir
    assert record is not None
    rows = [json.loads(row)["values"] for row in (record / "metrics.jsonl").read_text().splitlines()]
    assert any("time/step" in row for row in rows) and not any("time/targets_per_s" in row for row in rows)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that stands still."""
    monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 100.0))


def filled(columns: int) -> str:
    line, _ = bar(terminal=False, total=500)
    line.what, line.done, line.before = "epoch 10/12", 120, 20
    line.update_values({"train/loss": 0.51234, "train/lr": 0.001, "time/tokens_per_s": 123456.0}, update=4000)
    line.first = 90.0
    return line.fit(columns)


@pytest.mark.parametrize("columns", range(30, 131, 5))
def test_rate_and_time_left_are_never_cut(columns: int, clock: None) -> None:
    text = filled(columns)
    assert cell_len(text) <= columns
    assert text.endswith("eta 0:38") and "epoch 10/12  120/500" in text
    assert ("10.0 it/s" in text) == (columns >= 41)


def test_the_least_important_fields_are_dropped_first(clock: None) -> None:
    assert filled(130).startswith("━━━━━━╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌╌  epoch 10/12  120/500  loss 0.5123  lr 1.00e-03  tokens/s")
    assert filled(80) == "━━━╌╌╌╌╌╌╌╌  epoch 10/12  120/500  loss 0.5123  lr 1.00e-03  10.0 it/s  eta 0:38"
    assert filled(60) == "epoch 10/12  120/500  loss 0.5123  10.0 it/s  eta 0:38"


def test_a_long_text_of_a_project_is_cut_and_nothing_else() -> None:
    line, _ = bar(terminal=False)
    line.step("标签" * 100)
    text = line.fit(80)
    assert cell_len(text) <= 80 and text.startswith("epoch 1  1/10  标签") and "eta" in text


@pytest.mark.slow
def test_a_notebook_has_one_bar_that_is_updated_in_place_and_goes_away(tmp_path: Path) -> None:
    nbclient: Any = pytest.importorskip("nbclient", reason="nbclient and ipykernel run the notebook")
    nbformat = pytest.importorskip("nbformat", reason="nbclient and ipykernel run the notebook")
    pytest.importorskip("ipykernel", reason="nbclient and ipykernel run the notebook")
    code = """import os
for name in ("TTY_COMPATIBLE", "NO_COLOR", "TERM"):  # of the shell that runs the test
    os.environ.pop(name, None)
from alchemy import run
from alchemy import progress
from tests.labeled import config
progress.REFRESH_SECONDS = 0
cfg = config() | {"plugins": [{"type": "alchemy.plugins.BasicSetup"}], "log_every": 1}
[result] = run([cfg], device=[-1], raise_errors=True)"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    seen: list[str] = []
    base: Any = nbclient.NotebookClient

    class Client(base):
        def process_message(self, message, cell, index):
            if message["msg_type"] in ("display_data", "update_display_data"):
                seen.append(message["content"]["data"]["text/plain"])
            return super().process_message(message, cell, index)

    Client(notebook, timeout=120, kernel_name="python3").execute(cwd=str(Path.cwd()))
    assert seen[-1] == "" and any("epoch 1/" in line and "eta" in line for line in seen)
    displays = [output for output in notebook.cells[0].outputs if output.output_type == "display_data"]
    assert [output.data["text/plain"] for output in displays] == [""]
    text = "".join(output.text for output in notebook.cells[0].outputs if output.output_type == "stream")
    assert "dev: " in text and "━" not in text and "\x1b" not in text
