"""`alchemy model`: the layers of a model, as a table, as JSON and as a graph."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest

from alchemy.cli import main
from tests.cli.run_command import run


def test_a_table_of_layers(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "model", "train.toml", "--depth", "2")
    assert out.splitlines()[0].split() == ["layer", "class", "output", "parameters", "FLOPs"]
    assert "· · 2            Linear           [32, 64]  4,160       8.19 k" in out
    assert "parameters: 4,547 (4,547 trainable, 0 frozen), 17.8 KiB\nFLOPs per sample: 8.83 k" in out
    assert "32 samples of 'train'" in out


@pytest.mark.parametrize("kind", ["text", "ner", "translation", "image", "segmentation", "gan"])
def test_every_kind_of_project(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run(capsys, "new", str(tmp_path / kind), "--kind", kind)
    monkeypatch.chdir(tmp_path / kind)
    assert main(["model", "train.toml", "--json", "--graph", "model.svg"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["note"] == "" and found["batch"]["samples"] > 1 and found["layers"]["flops"] > 0
    assert all(child["shapes"] or child["children"] for child in found["layers"]["children"])
    assert len(ElementTree.parse("model.svg").findall(".//{*}path[@marker-end]")) >= 2


def test_without_data_the_parameters_are_still_shown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree(project / "data")
    out = run(capsys, "model", "train.toml")
    assert "4,547" in out and "note: shapes and FLOPs are unknown, because no batch could be run: " in out
    out = run(capsys, "model", "train.toml", "--graph", "model.svg", code=2)
    assert "the graph needs a batch" in out


def test_a_record_without_checkpoints(
    trained_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained_project, tmp_path / "copy")
    monkeypatch.chdir(tmp_path / "copy")
    for folder in Path("records").rglob("state"):
        shutil.rmtree(folder)
    assert "4,547" in run(capsys, "model", "last")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["train.toml", "--depth", "0"], "--depth must be at least 1, got 0"),
        (["train.toml", "--graph", "a.png"], "expected a file that ends with .svg"),
        (["train.toml", "--graph", "no/such/a.svg"], "cannot write no/such/a.svg: No such file or directory"),
        (["nothing.toml"], "config file not found: 'nothing.toml'"),
    ],
)
def test_wrong_arguments(project: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert message in run(capsys, "model", *words, code=2)
