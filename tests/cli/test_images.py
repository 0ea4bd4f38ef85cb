"""Image projects on the command line: `alchemy new`, run, resume and predict, and their bad inputs."""

from __future__ import annotations

import contextlib
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from alchemy.cli import main
from alchemy.cli.starter.image_samples import SIZES, image_files
from alchemy.config.toml_writer import dumps
from tests.idx_files import write_idx
from tests.tasks.pictures import Trained, config, draw_labels, draw_masks, save, train_both

KINDS = ("image", "segmentation")


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train_both(tmp_path_factory)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- alchemy new
@pytest.mark.parametrize("kind", KINDS)
def test_a_project_with_sample_images_runs_resumes_and_predicts(
    kind: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new", "demo", "--kind", kind]) == 0
    printed = capsys.readouterr().out
    assert "  alchemy run train.toml --test\n" in printed
    command = next(line for line in printed.splitlines() if "alchemy predict" in line)
    monkeypatch.chdir("demo")
    assert main(["check", "train.toml", "--strict"]) == 0
    short = ["--device", "-1", "--set", "sched.epochs=1"]
    assert main(["run", "train.toml", "--test", *short]) == 0
    capsys.readouterr()
    assert main([*command.split()[1:], "--device", "-1"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert row["file"] == command.split()[-1]
    if kind == "segmentation":
        with Image.open(row["pred"]) as mask:
            assert mask.size == (64, 64) and set(np.unique(np.array(mask))) <= {0, 1, 2}
    more = ["--set", "sched.epochs=2", "--allow", "sched.epochs"]
    assert main(["resume", "latest", "--device", "-1", *more]) == 0


@pytest.mark.parametrize("kind", KINDS)
def test_sample_images_are_the_same_everywhere_and_in_one_split_only(kind: str) -> None:
    files = dict(image_files(kind))
    assert dict(image_files(kind)) == files
    images = [content for name, content in files.items() if "/masks/" not in name]
    assert len(set(images)) == len(images) == sum(SIZES.values()) * (3 if kind == "image" else 1)


@pytest.mark.parametrize(
    ("layout", "lines"),
    [
        ("labels", ['type = "ImageClassification"', 'train = "../pets"', "dev = 0.1", "batch_size = 16"]),
        ("sizes", ["size = [128, 128]"]),
        ("splits", ['train = "../pets/train"', 'dev = "../pets/val"']),
        ("masks", ['type = "Segmentation"', 'labels = ["background", "class_1"]', 'mode = "L"']),
        ("bytes", ["values = [0, 255]"]),
        ("lists", ['dev = { path = "../pets/images", mask_path = "../pets/masks", ids = "../pets/val.txt" }']),
    ],
)
def test_the_layout_of_folders_is_detected(layout: str, lines: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    root = Path("pets")
    if layout in ("labels", "sizes"):
        draw_labels(root)
    if layout == "sizes":
        save(root / "left" / "wide.png", np.zeros((20, 30, 3), np.uint8))
    for split in ("train", "val") if layout == "splits" else ():
        draw_labels(root / split)
    if layout in ("masks", "bytes", "lists"):
        draw_masks(root)
    for file in (root / "masks").glob("*.png") if layout == "bytes" else ():
        save(file, np.array(Image.open(file)) * 255)
    for split, rows in (("train", "0\n1\n2\n"), ("val", "3\n4\n")) if layout == "lists" else ():
        (root / f"{split}.txt").write_text(rows)
    assert main(["new", "demo", "--data", "pets"]) == 0
    text = Path("demo", "train.toml").read_text()
    for line in lines:
        assert line in text
    assert main(["check", "demo/train.toml"]) == 0 or "relative" in capsys.readouterr().out


def test_idx_files_are_detected(capsys: pytest.CaptureFixture[str]) -> None:
    write_idx(Path("mnist"))
    assert main(["new", "demo", "--data", "mnist"]) == 0
    assert "mnist/train-images-idx3-ubyte.gz: 512 images of 28 x 28 pixels" in capsys.readouterr().out
    text = Path("demo", "train.toml").read_text()
    label_path = 'label_path = "../mnist/t10k-labels-idx1-ubyte.gz"'
    assert f'test = {{ path = "../mnist/t10k-images-idx3-ubyte.gz", {label_path} }}' in text
    assert 'processor = "IdxImages"' in text and 'mode = "L"' in text and "RandomFlip" not in text
    with contextlib.chdir("demo"):
        assert main(["check", "--strict", "train.toml"]) == 0
    Path("mnist/train-images-idx3-ubyte.gz").write_bytes(b"")
    assert main(["new", "other", "--data", "mnist"]) == 2
    assert "is not an idx file of gray images" in capsys.readouterr().err


def test_tables_of_image_files_are_detected(capsys: pytest.CaptureFixture[str]) -> None:
    files = sorted(draw_labels(Path("pets")).rglob("*.png"))
    rows = [f"{n};{file.relative_to('pets').as_posix()};{file.parent.name};{n % 4}\n" for n, file in enumerate(files)]
    Path("pets", "train.csv").write_text("id;picture;species;age\n" + "".join(rows))
    Path("pets", "test.csv").write_text("id;image;species;age\n" + "".join(rows[::5]))
    assert main(["new", "demo", "--kind", "image", "--data", "pets/train.csv", "pets/test.csv"]) == 0
    assert "pets/train.csv: 24 images, 3 labels: dark 8, left 8, right 8" in capsys.readouterr().out
    text = Path("demo", "train.toml").read_text()
    assert 'test = { path = "../pets/test.csv", file = "image" }' in text
    for line in ('train = { path = "../pets/train.csv" }', "dev = 0.1", 'file = "picture"', 'label = "species"'):
        assert line in text
    with contextlib.chdir("demo"):
        assert main(["check", "--strict", "train.toml"]) == 0
    words = ["new", "other", "--kind", "image", "--data", "pets/train.csv", "--label"]
    assert main([*words, "age"]) == 0 and 'label = "age"' in Path("other", "train.toml").read_text()
    assert main([*words, "size", "--force"]) == 2
    assert "pets/train.csv has no column 'size' (--label)" in capsys.readouterr().err
    Path("alone.csv").write_text("picture,label\n" + "".join(f"{n}.png,{n % 2}\n" for n in range(9)))
    assert main(["new", "third", "--kind", "image", "--data", "alone.csv"]) == 2
    assert "no column of alone.csv has the paths of existing images" in capsys.readouterr().err


def test_folders_without_labels_or_masks_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    save(Path("pets", "one", "a.png"), np.zeros((4, 4), np.uint8))
    assert main(["new", "demo", "--kind", "image", "--data", "pets"]) == 2
    assert "pets has one, expected at least two labels" in capsys.readouterr().err
    assert main(["new", "demo", "--kind", "segmentation", "--data", "pets"]) == 2
    assert "pets has no folder of images; expected a folder `images` and a folder `masks`" in capsys.readouterr().err


# -- alchemy predict
def test_a_broken_file_among_good_ones_is_reported_and_the_others_are_answered(
    trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    draw_labels(Path("pets"), count=2)
    Path("pets/left/0.png").write_bytes(b"no image")
    Path("pets/left/notes.txt").write_text("not read")
    words = ["predict", str(trained["image"][0]), "--device", "-1", "--batch-size", "2", "--file", "pets"]
    assert main(words) == 2
    printed = capsys.readouterr()
    rows = [json.loads(line) for line in printed.out.splitlines()]
    names = ["pets/dark/0.png", "pets/dark/1.png", "pets/left/1.png", "pets/right/0.png", "pets/right/1.png"]
    assert [row["file"] for row in rows] == names
    assert "'pets/left/0.png' is not a readable image" in printed.err
    assert "1 of 6 images could not be predicted" in printed.err


def test_masks_are_written_under_the_names_of_the_images(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    draw_masks(Path("cells"), count=2)
    shutil.copytree("cells/images", "more")
    record = str(trained["segmentation"][0])
    words = ["predict", record, "--device", "-1", "--file", "cells/images/1.png", "more"]
    assert main([*words, "--to", "out", "--out", "rows.csv"]) == 0
    assert sorted(path.name for path in Path("out").iterdir()) == ["0.png", "1.png", "1_2.png"]
    assert Path("rows.csv").read_text().startswith("file,shares,pred\ncells/images/1.png,")
    assert main([*words, "--to", "more"]) == 2
    assert "masks in 'more' would overwrite the images" in capsys.readouterr().err


def test_a_split_is_predicted_with_its_masks_in_the_record(tmp_path: Path) -> None:
    cfg = config(tmp_path, "segmentation")
    cfg["sched"]["epochs"] = 1
    Path("c.toml").write_text(dumps(cfg))
    assert main(["run", "c.toml", "--device", "-1"]) == 0
    assert main(["predict", "latest", "--split", "dev", "--device", "-1"]) == 0
    (rows,) = Path("records").rglob("predictions.jsonl")
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(found) == 8 and all(Path(row["pred"]).is_file() and 0 <= row["iou"] <= 1 for row in found)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--file", "empty"], "the folder 'empty' has no images"),
        (["--file", "no.png"], "file not found: 'no.png'"),
        (["--text", "a"], "this model predicts images; pass image files or folders"),
    ],
)
def test_inputs_that_are_no_images_are_refused(
    trained: Trained, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("empty").mkdir()
    assert main(["predict", str(trained["image"][0]), "--device", "-1", *words]) == 2
    assert message in capsys.readouterr().err
