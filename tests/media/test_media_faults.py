"""Faults of media that were found by trying: extreme values, slow sinks, bad updates, names and unwritable files."""

from __future__ import annotations

import json
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from alchemy.media.encode import encode_histogram, encode_images
from alchemy.media.pixels import to_pixels
from alchemy.media.run_methods import LogsMedia
from alchemy.records.media_entry import MediaEntry, Moment
from alchemy.records.media_file import MediaFile, to_path
from alchemy.records.read_media import read_media
from alchemy.report.frames import list_frames


class Logging(LogsMedia):
    """The media methods of a run, without the run."""

    def media_moment(self, update: int | None) -> Moment:
        return Moment(update or 0, 0, 0.0)


@pytest.mark.parametrize("lowest", [torch.finfo(torch.float32).min, torch.finfo(torch.bfloat16).min, -1e37])
def test_masked_logits_are_counted_in_the_right_bins(lowest: float) -> None:
    counts = encode_histogram(torch.tensor([lowest, 0.0, 1.0])).info["counts"]
    assert counts[0] == 1 and counts[-1] == 2
    assert sum(encode_histogram(torch.tensor([-3e38, 3e38])).info["counts"]) == 2
    assert sum(encode_histogram(torch.full((2,), 3.4e38)).info["counts"]) == 2
    assert encode_histogram(np.array([1e300, 0.0])).info["inf"] == 0


@pytest.mark.parametrize(("shape", "columns"), [((16, 1, 700), 0), ((4, 3, 3), 3000)])
def test_flat_images_and_many_columns_stay_small(shape: tuple[int, ...], columns: int) -> None:
    found = encode_images(np.zeros(shape, np.uint8), [], columns, shape[0])
    assert found.info["width"] * found.info["height"] < 4_000_000


def test_nan_is_black_and_does_not_change_the_range() -> None:
    pixels, remarks = to_pixels(np.array([[-200.0, -100.0], [np.nan, -150.0]]))
    assert pixels[..., 0].tolist() == [[0, 255], [0, 128]] and remarks == {"nan": 1, "range": [-200.0, -100.0]}


@pytest.mark.parametrize("kind", [np.uint16, np.float32])
def test_pictures_of_more_than_8_bits_keep_their_levels(kind: type) -> None:
    image = Image.fromarray((np.arange(64) * 1000).astype(kind).reshape(8, 8))
    assert len(np.unique(to_pixels(image)[0])) > 60


@pytest.mark.parametrize("update", [1.5, "7", True, float("nan"), -1, "../../x"])
def test_a_wrong_update_is_a_warning(update: Any, tmp_path: Path, logs: list[str]) -> None:
    run, file = Logging(), MediaFile(tmp_path)
    run.media.sinks.append(file.write)
    run.log_text("a", "b", update=update)
    run.log_text("fine", "b", update=np.int64(5))  # type: ignore[arg-type]
    run.media.close()
    assert [(row["name"], row["update"]) for row in read_media(tmp_path)] == [("fine", 5)]
    assert len(logs) == 1 and "update must be a non-negative integer" in logs[0]


@pytest.mark.parametrize("name", ["", " ", None, 7])
def test_a_name_is_a_text(name: Any, tmp_path: Path, logs: list[str]) -> None:
    run, file = Logging(), MediaFile(tmp_path)
    run.media.sinks.append(file.write)
    run.log_text(name, "b")
    run.media.close()
    assert read_media(tmp_path) == [] and "its name must be a text that is not empty" in logs[0]


def test_a_histogram_without_finite_values_is_kept_with_a_warning(tmp_path: Path, logs: list[str]) -> None:
    run, file = Logging(), MediaFile(tmp_path)
    run.media.sinks.append(file.write)
    run.log_histogram("gradients/a", torch.full((3,), torch.nan))
    run.media.close()
    (row,) = read_media(tmp_path)
    assert row["info"] == {"count": 3, "nan": 3, "inf": 0} and "no value of the histogram" in logs[0]
    (frame,) = list_frames(tmp_path)
    assert frame.load() == {"edges": [], "counts": [], "note": "no value is finite: count 3, nan 3"}


def test_a_flush_waits_only_for_what_came_before_and_a_backlog_is_bounded(logs: list[str]) -> None:
    run, gate = Logging(), threading.Semaphore(1)

    def wait(entry: MediaEntry) -> None:
        gate.acquire()

    run.media.sinks.append(wait)
    run.log_text("first", "x")
    assert run.media.flush(10.0)
    for _ in range(5000):  # nothing is written
        run.log_text("more", "x")
    assert not run.media.flush(0.01) and run.media.dropped > 500
    assert any("faster than they can be written" in text for text in logs)
    gate.release(5000)
    run.media.close()


def test_each_kind_of_failure_is_reported(logs: list[str]) -> None:
    run, errors = Logging(), iter([ValueError("one"), OSError(28, "No space left"), OSError(28, "No space left")])

    def fail(entry: MediaEntry) -> None:
        raise next(errors)

    run.media.sinks.append(fail)
    for number in range(3):
        run.log_text(str(number), "x")
    run.media.close()
    assert len(logs) == 2 and "one" in logs[0] and "No space left" in logs[1]


def test_entries_with_numbers_of_their_own_survive_a_resume(tmp_path: Path) -> None:
    file = MediaFile(tmp_path)
    for update, at in ((96, 3), (960, 30)):
        file.write(MediaEntry("text", "samples", Moment(update, 0, 0.0, at), b"x", ".txt", {}))
    again = MediaFile(tmp_path)
    again.resume(1, 25)
    assert [row["update"] for row in read_media(tmp_path)] == [96]
    assert [path.name for path in tmp_path.rglob("*.txt")] == ["u96.txt"]  # nothing is left of what was superseded


def test_a_resume_goes_on_if_the_list_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, logs: list[str]
) -> None:
    file = MediaFile(tmp_path)
    for update in (1, 9):
        file.write(MediaEntry("text", "a", Moment(update, 0, 0.0), b"x", ".txt", {}))
    again = MediaFile(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("alchemy.records.media_file.open_to_append", lambda path: (_ for _ in ()).throw(OSError("no")))
        again.resume(1, 5)
    assert len(logs) == 1 and "cannot write to media.jsonl" in logs[0]
    again.write(MediaEntry("text", "a", Moment(6, 0, 0.0), b"x", ".txt", {}))
    assert [row["update"] for row in read_media(tmp_path)] == [1, 6]


def test_names_cannot_take_the_files_of_others(tmp_path: Path) -> None:
    assert to_path("../a b") != to_path(to_path("../a b"))
    file = MediaFile(tmp_path)
    for name in ("a", "a/u1.txt", "字" * 80, "\U0001f600" * 80):
        file.write(MediaEntry("text", name, Moment(1, 0, 0.0), name.encode(), ".txt", {}))
    rows = read_media(tmp_path)
    assert [(tmp_path / row["file"]).read_text() for row in rows] == [row["name"] for row in rows] and len(rows) == 4


def test_the_bound_holds_for_any_name(tmp_path: Path) -> None:
    file = MediaFile(tmp_path, max_mb=0.05)
    for update in range(12):
        file.write(MediaEntry("text", "lone \ud800", Moment(update, 0, 0.0), b"x" * 10_000, ".txt", {}))
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 60_000


def test_tables_are_copied_and_confusions_are_counts(tmp_path: Path, logs: list[str]) -> None:
    run, file, cell = Logging(), MediaFile(tmp_path), [1, 2]
    run.media.sinks.append(file.write)
    run.log_table("t", ["a", "b"], [[cell, torch.tensor(0.5)]])
    cell.append(3)
    run.log_confusion("c", ["x", "y"], [[0.5, 0.5], [0.0, 1.0]])
    run.log_confusion("d", ["x", "y"], np.array([[np.nan, 1], [0, 1]]))
    run.media.close()
    (row,) = read_media(tmp_path)
    assert json.loads((tmp_path / row["file"]).read_text())["rows"] == [["1 2", 0.5]]
    assert len(logs) == 2 and "expected counts" in logs[0]


def test_a_grid_of_a_huge_batch_is_cut_before_it_is_copied(tmp_path: Path) -> None:
    run, file = Logging(), MediaFile(tmp_path)
    run.media.sinks.append(file.write)
    run.log_images("g", torch.zeros(1, 1, 2, 2).expand(10**9, 1, 2, 2))  # 4 GB, if it were copied
    run.log_embedding("e", torch.zeros(1, 4).expand(10**9, 4))
    run.media.close()
    grid, points = read_media(tmp_path)
    assert grid["info"]["count"] == points["info"]["rows"] == 10**9 and grid["info"]["cut"] and points["info"]["cut"]
    assert np.load(BytesIO((tmp_path / points["file"]).read_bytes()))["vectors"].shape == (10_000, 4)
