"""What `alchemy watch` shows of records: running, resumed, damaged and gone."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from alchemy.analysis.screen import Screen
from alchemy.analysis.watch import RecordWatch
from alchemy.errors import AlchemyError, display_width
from alchemy.index import read_curves
from alchemy.records import Record
from tests.analysis.fake_curves import change_info, write_curves

PLAIN = Screen(80, 24, color=False, unicode=True, live=False)


def look(watch: RecordWatch, screen: Screen = PLAIN) -> str:
    watch.refresh()
    return "\n".join(watch.draw(screen))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A record of two complete epochs of ten updates, and five updates of the third, of four epochs."""
    curves = {"train/loss": [1 / (place + 1) for place in range(25)], "dev/f1": [place / 25 for place in range(25)]}
    return write_curves(tmp_path, 0, curves, {"sched": {"epochs": 4}})


def append(folder: Path, *rows: dict[str, Any]) -> None:
    with open(folder / "metrics.jsonl", "a") as file:
        file.writelines(f"{json.dumps(row)}\n" for row in rows)


def row(update: int, values: dict[str, float], gen: int = 0) -> dict[str, Any]:
    return {
        "update": update,
        "step": update - 1,
        "epoch": (update - 1) // 10,
        "t": update * 0.5,
        "gen": gen,
        "values": values,
    }


def test_it_shows_progress_curves_and_scores(folder: Path) -> None:
    text = look(RecordWatch(folder))
    assert text.startswith(
        "demo  finished  2026-03-01_12-00-00.000000\n━━━━━━━━━━━━━━━╌╌╌╌╌╌╌╌╌  epoch 3/4  update 25/40  time 0:12\n\n"
    )
    assert "\ntrain/loss by update\n" in text and "\ndev/f1 by update\n" in text
    assert text.endswith("\ntrain  loss 0.04\ndev    f1 0.96\nbest checkpoint: dev/f1 0.96 at update 2")


def test_the_time_left_is_estimated_while_a_run_is_active(tmp_path: Path) -> None:
    record = Record.create(tmp_path, name="run", tag="live")
    (tmp_path / "run/cfg.toml").write_text("[sched]\nnum_training_steps = 100\n")
    watch = RecordWatch(tmp_path / "run")
    assert "no metrics yet" in look(watch)
    append(tmp_path / "run", *(row(update, {"loss": 1.0}) for update in range(1, 21)))
    text = look(watch)
    assert "live  running" in text and "update 20/100  time 0:10  eta 0:40  2 updates/s" in text
    assert "no loss and no monitored metric; choose with --metric: loss" in text
    record.finish("failed", "ValueError: \x1b[2Jboom\nmore")
    text = look(watch)
    assert "live  failed: ValueError: \\u001b[2Jboom  run" in text and "eta" not in text and not watch.is_running


def test_only_new_lines_are_read_and_a_resume_takes_back_lines(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watch = RecordWatch(folder)
    look(watch)
    sizes: list[int] = []
    parse = read_curves.parse_lines
    monkeypatch.setattr(read_curves, "parse_lines", lambda block: sizes.append(block.count(b"\n")) or parse(block))
    with open(folder / "metrics.jsonl", "a") as file:
        file.write('{"update": 99, "val')  # a line that is being written
    assert "update 25/40" in look(watch) and sizes == []
    os.truncate(folder / "metrics.jsonl", (folder / "metrics.jsonl").read_text().rindex("\n") + 1)
    append(folder, row(26, {"train/loss": 0.5}))
    assert "update 26/40" in look(watch) and sizes == [1]
    append(folder, {"event": "resume", "gen": 1, "from_update": 10, "from_line": 10}, row(11, {"train/loss": 7.5}, 1))
    text = look(watch)
    assert "epoch 2/4  update 11" in text and "train/loss: last 7.5" in text and sizes == [1, 2]


def test_a_file_that_was_replaced_is_read_again(folder: Path) -> None:
    watch = RecordWatch(folder)
    look(watch)
    (folder / "metrics.jsonl").rename(folder / "old")
    assert "no metrics yet" in look(watch)
    append(folder, row(1, {"train/loss": 2.0}))
    assert "train/loss: last 2, min 2, max 2" in look(watch)


def test_a_record_that_is_gone_is_an_error(folder: Path) -> None:
    watch = RecordWatch(folder)
    shutil.rmtree(folder)
    with pytest.raises(AlchemyError, match="is gone; it was moved or removed"):
        watch.refresh()


def test_metrics_may_be_chosen_before_they_are_logged(folder: Path) -> None:
    watch = RecordWatch(folder, [["dev/f1", "dev/f2"], ["test/f1"]])
    assert "not logged yet: dev/f2, test/f1" in look(watch)
    with pytest.raises(AlchemyError, match=r"has not logged dev/f2; did you mean 'dev/f1'\?"):
        watch.check_metrics()


@pytest.mark.parametrize("columns", [20, 60, 80, 120, 200])
@pytest.mark.parametrize("rows", [5, 24, 60])
@pytest.mark.parametrize("color", [False, True])
def test_everything_fits_the_terminal(folder: Path, columns: int, rows: int, color: bool) -> None:
    change_info(folder, tag="标签\x1b[31m" * 30, reason="很长" * 99)
    append(folder, row(26, {"dev/" + "名" * 200: float("nan"), "train/loss": float("inf")}))
    watch = RecordWatch(folder)
    lines = look(watch, Screen(columns, rows, color=color, unicode=True, live=True)).split("\n")
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    assert len(lines) <= rows - 1 and max(map(display_width, plain)) <= columns and "\x1b" not in "".join(plain)


def test_damaged_files_do_no_harm(folder: Path) -> None:
    (folder / "cfg.toml").write_text("[sched]\nepochs = 'many'\n")
    (folder / "metrics.jsonl").write_bytes(b'\x00{"update": []}\n{"update": 1, "values": 3}\n')
    (folder / "record.json").write_text('{"format": 1')
    assert look(RecordWatch(folder)).startswith("run  unknown  2026")
