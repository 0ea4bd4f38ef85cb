"""Record folders: created before training, with a correct final status, never blocking the loop."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from alchemy.errors import AlchemyError
from alchemy.records.folder import FORMAT, Record, find, newest
from alchemy.records.metrics_file import MetricsFile, read_metrics
from alchemy.records.status import read_info

KEYS = (
    "format id tag purpose status reason pid host started ended heartbeat cmd "
    "cfg_hash code_hash seed versions parent variant best"
)


def test_a_record_lives_and_ends(tmp_path: Path) -> None:
    record = Record.create(tmp_path / "日志 dir", name="r1", tag="t", purpose="why")
    assert read_info(record.path)["status"] == "running"
    record.log({"train/loss": float("nan"), "train/lr": 0.5}, update=1, step=2, epoch=0)
    record.finish("finished", "all epochs")
    info = read_info(record.path)
    assert set(KEYS.split()) <= set(info)
    assert (info["format"], info["status"], info["reason"], info["tag"]) == (FORMAT, "finished", "all epochs", "t")
    (row,) = read_metrics(record.path / "metrics.jsonl")
    assert row["values"] == {"train/loss": "nan", "train/lr": 0.5}
    assert (row["update"], row["step"], row["epoch"], row["gen"]) == (1, 2, 0, 0)


def test_two_records_of_one_moment_get_two_folders(tmp_path: Path) -> None:
    one, two = (Record.create(tmp_path, name="same", tag="t") for _ in range(2))
    assert one.path != two.path
    for record in (one, two):
        record.finish("finished")
    assert newest((str(tmp_path),)) == max(one.path, two.path)
    assert find(two.path.name, (str(tmp_path),)) == two.path


def test_a_folder_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AlchemyError, match=r"cannot write to the record folder .*; fix its permissions, choose an"):
        Record.create(tmp_path / "file" / "records", name="r", tag="t")


def test_a_full_disk_is_said_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alchemy.records.create_folder.MIN_FREE_BYTES", 2**60)
    with pytest.raises(AlchemyError, match=r"not enough disk space in .* MiB free"):
        Record.create(tmp_path, name="r", tag="t")
    assert not any(tmp_path.iterdir())


def test_trouble_with_the_disk_is_counted_and_never_raised() -> None:
    series = MetricsFile(Path("/dev/full"))  # a disk on which every write fails
    for update in range(3):
        series.log({"a": 1.0}, update=update, step=1, epoch=0)
    series.close()
    assert series.dropped == 3
    assert "No space left" in series.error


@pytest.mark.parametrize(
    ("text", "message"), [("{", "cannot be read"), ('{"format": 99}', "has format 99"), ("[]", "has format")]
)
def test_a_broken_record_is_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "record.json").write_text(text)
    with pytest.raises(AlchemyError, match=message):
        read_info(tmp_path)


def test_what_is_no_record_is_said(tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match=r"is not a record: it has no record\.json"):
        find(tmp_path)
    with pytest.raises(AlchemyError, match="record not found: 'gone'"):
        find("gone", (str(tmp_path),))
    (tmp_path / "m.jsonl").write_text(json.dumps({"update": 1}) + '\n{"upd')
    assert list(read_metrics(tmp_path / "m.jsonl")) == [{"update": 1}]


def test_the_heartbeat_outlives_trouble_and_tells_it_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("alchemy.records.folder.HEARTBEAT_SECONDS", 0.001)
    said: list[str] = []
    number = logger.add(lambda line: said.append(str(line)), format="{message}")
    beats = threading.Semaphore(0)
    record = Record.create(tmp_path, name="r", tag="t")
    note = record.note

    def failing(**fields: Any) -> None:
        beats.release()
        raise RuntimeError("dictionary changed size during iteration")

    record.note = failing  # type: ignore[method-assign]
    for _ in range(3):
        assert beats.acquire(timeout=10)
    record.note = note  # type: ignore[method-assign]
    record.finish("finished")
    logger.remove(number)
    assert len(said) == 1
    assert "cannot update " in said[0] and "record.json: dictionary changed size" in said[0]


def test_fields_change_only_between_two_writes(tmp_path: Path) -> None:
    record = Record.create(tmp_path, name="r", tag="t")
    noted = threading.Thread(target=record.note, kwargs={"best": {"value": 1.0}})
    with record._save_lock:  # as the heartbeat does while it writes
        noted.start()
        noted.join(0.05)
        assert record.info["best"] is None
    noted.join()
    record.finish("finished")
    assert read_info(record.path)["best"] == {"value": 1.0}


def test_the_latest_is_the_newest_training(tmp_path: Path) -> None:
    for name, trains in (("1", True), ("2", True), ("3", False)):
        record = Record.create(tmp_path, name=name, tag="t")
        record.finish("finished")
        if trains:
            (record.path / "ledger.jsonl").touch()
    assert find("latest", (str(tmp_path),)).name == "2"
