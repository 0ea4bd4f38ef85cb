"""The project that `alchemy new` writes."""

import tomllib

import pytest

from alchemy.cli import main
from alchemy.cli.new import project as files_of


def test_it_passes_the_check(project, capsys):
    assert main(["check", "train.toml", "--strict"]) == 0
    assert capsys.readouterr().out == "ok\n"


@pytest.mark.parametrize("name", ["demo", 'a "b" \\ c', "试验", "{{name}}"])
def test_any_name_gives_a_valid_config(name):
    files = files_of(name)
    assert tomllib.loads(files["train.toml"])["tag"] == name
    assert len(files["data/train.csv"].splitlines()) == 901
    assert ".gitignore" in files


def test_what_is_there_is_not_overwritten(project, capsys):
    (project / "src" / "model.py").write_text("mine")
    (project / "notes.txt").write_text("mine")
    assert main(["new", "."]) == 2
    assert "already contains README.md" in capsys.readouterr().err
    assert (project / "src" / "model.py").read_text() == "mine"
    assert main(["new", ".", "--force"]) == 0
    assert "PointClassifier" in (project / "src" / "model.py").read_text()
    assert (project / "notes.txt").read_text() == "mine"


def test_a_folder_that_cannot_be_written_is_one_clear_error(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert main(["new", str(tmp_path / "file" / "x")]) == 2
    assert "cannot write" in capsys.readouterr().err


def test_an_abbreviated_monitor_is_found_by_the_check(project, capsys):
    assert main(["check", "train.toml", "--set", "checkpoint.monitor=dev/acc"]) == 2
    assert "no evaluation computes 'acc'; did you mean 'accuracy'?" in capsys.readouterr().out
    assert main(["check", "train.toml", "--set", "checkpoint.monitor=dev/worst_class"]) == 0
