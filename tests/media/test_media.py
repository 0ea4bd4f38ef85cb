"""Media of a run: what is written, what is refused with a warning, and how little the training loop notices."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from alchemy.media.encode import MAX_ROWS, MAX_TEXT
from alchemy.media.pixels import to_pixels
from alchemy.media.run_methods import LogsMedia
from alchemy.records.media_entry import MediaEntry, Moment
from alchemy.records.media_file import MediaFile, to_path
from alchemy.records.read_media import read_media


class Logging(LogsMedia):
    """The media methods of a run, without the run."""

    update = 0

    def media_moment(self, update: int | None) -> Moment:
        return Moment(self.update if update is None else update, 2, 1.5)


@pytest.fixture
def file(tmp_path: Path) -> MediaFile:
    return MediaFile(tmp_path)


@pytest.fixture
def run(file: MediaFile) -> Iterator[Logging]:
    run = Logging()
    run.media.sinks.append(file.write)
    yield run
    run.media.close()


def rows_of(run: Logging, file: MediaFile) -> list[dict[str, Any]]:
    assert run.media.flush()
    return read_media(file.folder)


def only_row(run: Logging, file: MediaFile) -> dict[str, Any]:
    (row,) = rows_of(run, file)
    return row


def content(file: MediaFile, row: dict[str, Any]) -> Any:
    return json.loads((file.folder / row["file"]).read_text())


FLOATS = torch.linspace(0, 1, 15).reshape(1, 3, 5)


@pytest.mark.parametrize(
    "image",
    [
        FLOATS,
        FLOATS[0].bfloat16(),
        FLOATS[0].numpy(),
        (FLOATS * 255).round().byte(),
        np.repeat(FLOATS[0].numpy()[..., None], 3, axis=2),
        np.repeat(FLOATS.numpy(), 3, axis=0),
        (FLOATS[0].numpy() * 65535).astype(np.uint16),
        Image.fromarray((FLOATS[0].numpy() * 255).round().astype(np.uint8)),
    ],
)
def test_images_of_every_layout_become_the_same_picture(image: Any, run: Logging, file: MediaFile) -> None:
    run.log_image("a", image)
    row = only_row(run, file)
    with Image.open(file.folder / row["file"]) as picture:
        found = np.asarray(picture)
    assert found.shape == (3, 5, 3) and (found[..., 0] == found[..., 2]).all()
    assert np.abs(found[..., 0].astype(int) - np.linspace(0, 255, 15).reshape(3, 5)).max() <= 1
    assert (row["info"]["width"], row["info"]["height"]) == (5, 3)


def test_an_image_outside_the_range_is_scaled_and_says_so(run: Logging, file: MediaFile) -> None:
    run.log_image("a", torch.tensor([[-2.0, 0.0], [2.0, 0.0]]))
    row = only_row(run, file)
    assert row["info"]["range"] == [-2.0, 2.0]
    assert to_pixels(np.array([[-2.0, 0.0], [2.0, 0.0]]))[0][..., 0].tolist() == [[0, 128], [255, 128]]


def test_a_grid_has_all_images_and_is_a_copy(run: Logging, file: MediaFile) -> None:
    images = torch.zeros(5, 3, 8, 8)
    run.log_images("a", images, columns=5)
    images.fill_(1.0)  # training goes on
    row = only_row(run, file)
    assert row["info"]["count"] == 5
    with Image.open(file.folder / row["file"]) as picture:
        assert (np.asarray(picture) == 0).mean() > 0.8


def test_a_histogram_counts_what_is_finite(run: Logging, file: MediaFile) -> None:
    values = torch.cat([torch.arange(100.0), torch.tensor([torch.nan, torch.inf, -torch.inf])])
    run.log_histogram("a", values)
    info = only_row(run, file)["info"]
    assert sum(info["counts"]) == 100 and (info["nan"], info["inf"], info["count"]) == (1, 2, 103)
    assert (info["min"], info["max"], info["mean"]) == (0.0, 99.0, 49.5)
    assert len(info["edges"]) == len(info["counts"]) + 1 and info["edges"][-1] == 99.0


@pytest.mark.parametrize("values", [torch.zeros(3), np.ones((2, 2), np.int64), [1.0, 2.0], torch.full((2,), torch.nan)])
def test_a_histogram_of_anything_numeric(values: Any, run: Logging, file: MediaFile) -> None:
    run.log_histogram("a", values)
    info = only_row(run, file)["info"]
    assert info["count"] == len(np.ravel(values)) and sum(info.get("counts", [])) == info["count"] - info["nan"]


def test_texts_tables_attention_and_confusions(run: Logging, file: MediaFile) -> None:
    run.log_text("t", "x" * (MAX_TEXT + 5))
    run.log_table("rows", ["text", "score"], [["喂 <b>", float("nan")], [["a", "b"], np.float32(0.5)]] * MAX_ROWS)
    run.log_attention("heads", torch.eye(2).repeat(3, 1, 1), ["a", "b"], ["c", "d"], example="a b")
    run.log_confusion("labels", ["yes", "no"], torch.tensor([[3, 1], [0, 2]]))
    run.log_embedding("words", torch.ones(2, 3), ["a", "b"])
    text, table, attention, confusion, embedding = rows_of(run, file)
    assert text["info"] == {"chars": MAX_TEXT + 5, "cut": True}
    assert (file.folder / text["file"]).stat().st_size == MAX_TEXT
    assert content(file, table)["rows"][:2] == [["喂 <b>", "nan"], ["a b", 0.5]]
    assert table["info"] == {"rows": 2 * MAX_ROWS, "columns": 2} and len(content(file, table)["rows"]) == MAX_ROWS
    assert np.shape(content(file, attention)["weights"]) == (3, 2, 2) and attention["info"]["example"] == "a b"
    assert content(file, confusion) == {"labels": ["yes", "no"], "cells": [[0, 0, 3], [0, 1, 1], [1, 1, 2]]}
    with np.load(file.folder / embedding["file"]) as found:
        assert found["vectors"].shape == (2, 3) and found["labels"].tolist() == ["a", "b"]


@pytest.mark.parametrize("caption", ["x" * 100_000, "two\nlines", "喂"])
def test_any_caption_fits(caption: str, run: Logging, file: MediaFile) -> None:
    run.log_images("a", torch.rand(2, 1, 4, 4), captions=[caption] * 2)
    assert only_row(run, file)["info"]["count"] == 2


def test_values_that_are_rare_but_fine(run: Logging, file: MediaFile, logs: list[str]) -> None:
    run.log_histogram("sparse", torch.eye(4).to_sparse())
    run.log_histogram("narrow", torch.tensor([1.0, 1.0000001]))
    run.log_histogram("large", torch.tensor([3e38, -3e38, 3e38, 3e38]))
    run.log_table("scalars", ["a", "b"], [[torch.tensor(1.5), np.array(2)]])
    run.log_image("half", torch.tensor([[60000.0, -60000.0]]).half())
    run.log_image("float", torch.tensor([[3e38, -3e38]]))
    sparse, narrow, large, scalars, half, _ = rows_of(run, file)
    assert sparse["info"]["count"] == 16 and large["info"]["mean"] == pytest.approx(1.5e38)
    assert len(set(narrow["info"]["edges"])) == 65
    assert content(file, scalars)["rows"] == [[1.5, 2]] and half["info"]["range"] == [-60000.0, 60000.0]
    assert logs == []


def test_ten_thousand_classes(run: Logging, file: MediaFile) -> None:
    counts = np.zeros((10_000, 10_000), np.int8)
    counts[np.arange(10_000), np.arange(10_000)] = 3
    counts[:3, :] += 1
    run.log_confusion("a", map(str, range(10_000)), counts)
    row = only_row(run, file)
    cells = content(file, row)["cells"]
    assert row["info"]["total"] == 60_000 and row["info"]["cut"] and len(cells) == 20_000
    assert sum(gold == predicted for gold, predicted, _ in cells) == 10_000  # the largest are kept


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (lambda run: run.log_image("a", torch.zeros(2, 5, 5)), "expected an image [H, W], [C, H, W]"),
        (lambda run: run.log_image("a", torch.zeros(0, 5)), "got (0, 5)"),
        (lambda run: run.log_image("a", "cat.png"), "got str"),
        (lambda run: run.log_image("a", b"GIF89a"), "expected a PNG file"),
        (lambda run: run.log_images("a", torch.zeros(5)), "expected a list of images"),
        (lambda run: run.log_images("a", []), "there are no images"),
        (lambda run: run.log_table("a", ["x"], [[1, 2]]), "expected rows of 1 values, got one of 2"),
        (lambda run: run.log_attention("a", torch.zeros(2, 3), "ab", "ab"), "got shape (1, 2, 3)"),
        (lambda run: run.log_confusion("a", ["x"], [[1, 2], [3, 4]]), "1 x 1 classes, got shape (2, 2)"),
        (lambda run: run.log_embedding("a", torch.zeros(2, 3), ["x"]), "expected vectors [N, D]"),
        (lambda run: run.log_histogram("a", ["x"]), "expected numbers, got values of type <U1"),
        (lambda run: run.log_figure("a", object()), "no attribute 'savefig'"),
    ],
)
def test_bad_input_is_one_warning(log: Any, expected: str, run: Logging, file: MediaFile, logs: list[str]) -> None:
    log(run)
    log(run)
    assert rows_of(run, file) == []
    assert len(logs) == 1 and expected in logs[0] and "'a'" in logs[0] and "training continues" in logs[0]


def test_nan_in_an_image_is_one_warning_and_black(run: Logging, file: MediaFile, logs: list[str]) -> None:
    for update in range(2):
        run.log_image("a", torch.full((2, 2), torch.nan), update=update)
    assert [row["info"]["nan"] for row in rows_of(run, file)] == [4, 4]
    assert logs == ["4 values of the image 'a' are not finite: drawn black; training continues"]


def test_without_a_sink_nothing_is_prepared() -> None:
    run = Logging()
    run.log_image("a", object())  # would be a warning
    assert run.media.flush() and run.media.dropped == 0


def test_a_full_disk_is_one_warning_and_the_next_entry_is_tried(
    run: Logging, file: MediaFile, logs: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        for number in range(3):
            run.log_histogram(f"a{number}", [1.0])
        assert run.media.flush()
    assert len(logs) == 1 and "MediaFile cannot write the histogram 'a0'" in logs[0]
    run.log_histogram("b", [1.0])
    assert [row["name"] for row in rows_of(run, file)] == ["b"]


def test_a_line_cut_by_a_crash_is_skipped(run: Logging, file: MediaFile) -> None:
    run.log_histogram("a", [1.0])
    assert rows_of(run, file)
    with open(file.folder / "media.jsonl", "a") as lines:
        lines.write('{"update": 3, "ki')
    again = MediaFile(file.folder, gen=1)
    again.write(MediaEntry("text", "b", Moment(4, 0, 0.0), b"x", ".txt", {}))
    assert [row["name"] for row in read_media(file.folder)] == ["a", "b"]


def test_a_resumed_run_supersedes_what_came_later(run: Logging, file: MediaFile) -> None:
    for update in (1, 2, 3):
        run.log_text("a", f"first {update}", update=update)
    assert run.media.flush()
    file.resume(1, 2)
    run.log_text("a", "again 3", update=3)
    rows = rows_of(run, file)
    assert [(row["update"], row["gen"]) for row in rows] == [(1, 0), (2, 0), (3, 1)]
    assert (file.folder / rows[-1]["file"]).read_text() == "again 3"


def test_old_entries_become_sparse_when_the_bound_is_reached(run: Logging, file: MediaFile, logs: list[str]) -> None:
    file.max_mb = 0.1
    for update in range(30):
        run.log_text("a", "x" * 10_000, update=update)
    rows = rows_of(run, file)
    size = sum((file.folder / row["file"]).stat().st_size for row in rows)
    updates = [row["update"] for row in rows]
    assert size <= 0.1 * 2**20 and updates[-1] == 29 and updates[0] < 24 and len(updates) >= 5
    assert len(list((file.folder / "media").rglob("*.txt"))) == len(rows)
    assert len(logs) == 1 and "exceed max_media_mb = 0.1" in logs[0]


def test_superseded_entries_do_not_come_back_when_others_are_removed(tmp_path: Path) -> None:
    def entry(name: str, update: int) -> MediaEntry:
        return MediaEntry("text", name, Moment(update, 0, 0.0), b"x" * 100_000, ".txt", {})

    first = MediaFile(tmp_path, max_mb=1.0)
    for update in range(1, 9):
        first.write(entry("old", update))
    second = MediaFile(tmp_path, gen=1, max_mb=0.6)
    second.resume(1, 2)
    for update in range(3, 9):
        second.write(entry("new", update))
    names = [(row["name"], row["update"]) for row in read_media(tmp_path)]
    assert ("old", 3) not in names and not any(name == "old" and update > 2 for name, update in names)
    assert names[-1] == ("new", 8)


def test_an_entry_larger_than_the_bound_is_refused(run: Logging, file: MediaFile, logs: list[str]) -> None:
    file.max_mb = 0.001
    run.log_text("a", "x" * 10_000)
    assert rows_of(run, file) == [] and "exceed max_media_mb = 0.001" in logs[0]


@pytest.mark.parametrize("name", ["dev/hardest", "../../up", "a b", "/etc/passwd", "喂", "x" * 500, ".", "a//b", "a\0"])
def test_every_name_is_a_path_inside(name: str, run: Logging, file: MediaFile) -> None:
    run.log_text(name, "x")
    row = only_row(run, file)
    path = (file.folder / row["file"]).resolve()
    assert row["name"] == name and path.is_relative_to(file.folder.resolve() / "media" / "text")


def test_different_names_have_different_paths() -> None:
    names = ["a b", "a_b", "a  b", "a/b", "a//b", "./a/b", "喂", "x" * 300, "x" * 301]
    assert len({to_path(name) for name in names}) == len(names)


@pytest.mark.parametrize(
    "bad",
    [
        {"file": "../x.txt"},
        {"file": "media/" + "a" * 5000},
        {"file": "media/link.txt"},
        {"kind": "svg"},
        {"update": "1"},
        {"info": 3},
    ],
)
def test_hostile_rows_are_left_out(bad: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "media").mkdir()
    (tmp_path / "media" / "x.txt").write_text("x")
    (tmp_path / "media" / "link.txt").symlink_to("/etc/passwd")
    good = {"update": 1, "epoch": 0, "t": 0, "gen": 0, "kind": "text", "name": "a", "file": "media/x.txt", "info": {}}
    lines = [good, {**good, "name": "b", **bad}, ["no row"], {**good, "name": "c"}]
    (tmp_path / "media.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert [row["name"] for row in read_media(tmp_path)] == ["a", "c"]
