"""`alchemy compare --examples`: the examples on which the models of records disagree."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from alchemy.cli import main
from tests.cli.run_command import run


@pytest.fixture
def two_records(trained_project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The records of two models, of which the second has other weights."""
    shutil.copytree(trained_project, tmp_path / "copy", symlinks=True)
    monkeypatch.chdir(tmp_path / "copy")
    first = next(Path("records").rglob("record.json")).parent
    second = first.with_name("second")
    shutil.copytree(first, second, symlinks=True)
    file = (second / "state" / "best" / "model.safetensors").resolve()
    save_file({name: -value for name, value in load_file(file).items()}, file)
    return [str(first), str(second)]


def test_disagreements_are_listed(two_records: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    out = run(capsys, "compare", *two_records, "--examples", "-n", "3")
    assert "they disagree on " in out and "; only right: A " in out and "more: -n 0 shows all" in out
    assert main(["compare", *two_records, "--examples", "dev", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["disagree"] > 3 and found["records"]["B"] == two_records[1]
    assert all(row["predictions"][0] != row["predictions"][1] for row in found["rows"])


def test_a_model_agrees_with_itself(two_records: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert "they disagree on 0 of " in run(capsys, "compare", two_records[0], two_records[0], "--examples")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--examples", "no"], "the config has no split 'no'"),
        (["--examples", "--seeds"], "--seeds and --metric do not apply"),
    ],
)
def test_wrong_options(
    two_records: list[str], words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert message in run(capsys, "compare", *two_records, *words, code=2)
