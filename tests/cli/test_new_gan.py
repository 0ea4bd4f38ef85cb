"""The GAN project that `alchemy new --kind gan` writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from alchemy.cli import main
from alchemy.config.load import prepare_cfg

Image = pytest.importorskip("PIL.Image", reason="the extra `image` is not installed")

QUICK = ["--device=-1", "--set=sched.num_training_steps=6", "--set=sched.pipes.EvalESPipeline.period=3"]
SMALL = ["--set=task.datasets.train.pipes.Shapes.count=64", "--set=task.datasets.dev.pipes.Shapes.count=64"]


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    assert main(["new", str(tmp_path / "gan"), "--kind", "gan"]) == 0
    monkeypatch.chdir(tmp_path / "gan")
    return tmp_path / "gan"


def record_in(folder: Path) -> Path:
    (record,) = folder.iterdir()
    return record


@pytest.mark.parametrize("name", ["train.toml", "classifier.toml"])
def test_it_passes_the_check(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["check", name, "--strict"]) == 0
    assert capsys.readouterr().out == "ok\n"


def test_it_writes_a_picture_at_each_evaluation(project: Path) -> None:
    assert main(["run", "train.toml", *QUICK, *SMALL]) == 0
    pictures = sorted((record_in(project / "records" / "gan") / "media/images/dev/samples").iterdir())
    assert [path.name for path in pictures] == ["u3.png", "u6.png"]
    with Image.open(pictures[-1]) as picture:
        assert picture.width > 64 and len(picture.getcolors(2**16)) > 2


@pytest.mark.usefixtures("forked_runs")
def test_it_resumes_exactly(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "resume", "train.toml", *QUICK, *SMALL]) == 0
    assert "equal" in capsys.readouterr().out


def test_a_classifier_scores_the_samples(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    quick = ["--set=sched.epochs=1", "--set=task.datasets.train.pipes.Shapes.count=256"]
    assert main(["run", "classifier.toml", "--device=-1", *quick]) == 0
    scored = "--set=task.outputpipes.Recognize.classifier=records/classifier"
    assert main(["run", "train.toml", *QUICK, *SMALL, scored]) == 0
    text = (record_in(project / "records" / "gan") / "metrics.jsonl").read_text()
    for name in ("frechet", "recognized", "smallest_class", "real_recognized"):
        assert f'"dev/{name}"' in text


def write_idx(path: Path, images: np.ndarray) -> None:
    head = b"\0\0\x08\x03" + b"".join(length.to_bytes(4, "big") for length in images.shape)
    path.write_bytes(head + images.tobytes())


def test_it_reads_idx_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "images").mkdir()
    write_idx(tmp_path / "images" / "train-images-idx3-ubyte", np.zeros((100, 12, 12), np.uint8))
    assert main(["new", "mine", "--kind", "gan", "--data", "images"]) == 0
    assert not (tmp_path / "mine" / "src" / "shapes.py").exists()
    monkeypatch.chdir(tmp_path / "mine")
    cfg = prepare_cfg("train.toml")
    assert (cfg["model"]["size"], cfg["model"]["channels"]) == (12, 1)
    assert main(["run", "train.toml", *QUICK, "--set=sched.num_training_steps=2"]) == 0


def test_it_reads_folders_of_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for label in ("cats", "dogs"):
        (tmp_path / "images" / label).mkdir(parents=True)
        for number in range(40):
            Image.new("RGB", (20 + number, 30), (number, 90, 0)).save(tmp_path / "images" / label / f"{number}.png")
    assert main(["new", "mine", "--kind", "gan", "--data", "images"]) == 0
    monkeypatch.chdir(tmp_path / "mine")
    assert main(["run", "train.toml", *QUICK, "--set=sched.num_training_steps=2"]) == 0


def no_file(folder: Path) -> list[str]:
    return [str(folder / "missing")]


def two_files(folder: Path) -> list[str]:
    return [str(folder), str(folder)]


def an_empty_folder(folder: Path) -> list[str]:
    return [str(folder)]


def a_text(folder: Path) -> list[str]:
    (folder / "train.csv").write_text("a,b\n1,2\n")
    return [str(folder / "train.csv")]


def odd_images(folder: Path) -> list[str]:
    write_idx(folder / "odd", np.zeros((3, 10, 12), np.uint8))
    return [str(folder / "odd")]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (no_file, "does not exist"),
        (two_files, "--data has 2 paths, but a GAN reads one"),
        (an_empty_folder, "has no folders with images"),
        (a_text, "is not an idx file of gray images"),
        (odd_images, "have 10 x 12 pixels"),
    ],
)
def test_data_that_cannot_be_used(tmp_path: Path, capsys: pytest.CaptureFixture[str], make: Any, message: str) -> None:
    (tmp_path / "data").mkdir()
    assert main(["new", str(tmp_path / "mine"), "--kind", "gan", "--data", *make(tmp_path / "data")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "mine").exists()
