"""`alchemy diff`, against another record and against the files on disk."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from alchemy.cli import main
from tests.analysis.fake_curves import change_info, write_code, write_curves, write_environment, write_ledger

CONFIG = 'tag = "demo"\nseed = 1\nplugins = [{ type = "alchemy.plugins.Backup", paths = ["src"] }]\n[optim]\nlr = 0.1\n'
BACKUP = {"plugins": [{"type": "alchemy.plugins.Backup", "paths": ["src"]}]}
CODE = {"src/model.py": "a = 1\n", "src/data.py": "c = 3\n"}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project, and two records of it that were started with `--set optim.lr=0.2`."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".alchemy").mkdir()
    (tmp_path / "train.toml").write_text(CONFIG)
    (tmp_path / "src").mkdir()
    for name, text in CODE.items():
        (tmp_path / name).write_text(text)
    for number in (1, 2):
        folder = write_curves(tmp_path / "records", number, {"dev/f1": [0.1, 0.2]}, BACKUP | {"optim": {"lr": 0.2}})
        write_code(folder, CODE)
        write_environment(folder)
        write_ledger(folder, ["aa"])
        change_info(folder, cmd=["/bin/alchemy", "run", "train.toml", "--set", "optim.lr=0.2", "--desc", "x"])
    return tmp_path


def test_identical_records_are_called_so(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "last~1", "last", "--exit-code"]) == 0
    out = capsys.readouterr().out
    assert out.count(": identical") == 5
    assert out.endswith("A and B are identical\n")


def test_a_record_equals_the_files_it_was_started_from(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "last", ".", "--only", "config,code", "--exit-code"]) == 0
    assert "A and B are identical in: config, code" in capsys.readouterr().out


def test_changes_since_the_run_are_shown(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "train.toml").write_text(CONFIG.replace("seed = 1", "seed = 2\ndepth = 3"))
    (project / "src/model.py").write_text("a = 2\n")
    (project / "src/data.py").unlink()
    (project / "src/new.py").write_text("")
    (project / "src/key.py").write_text("-----BEGIN RSA PRIVATE KEY-----\n")
    (project / "src/__pycache__").mkdir()
    (project / "src/__pycache__/model.pyc").write_text("")
    assert main(["diff", "last", ".", "--only", "config,code", "--exit-code"]) == 1
    out = capsys.readouterr().out
    assert "seed: 1 -> 2" in out and "depth: absent -> 3" in out and "optim.lr" not in out
    assert "-a = 1\n+a = 2\n" in out
    assert "src/data.py: only in A" in out and "src/new.py: only in B" in out
    assert "key.py" not in out and "pyc" not in out


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (["/bin/alchemy", "test", "latest"], "not started with `alchemy run`"),
        (["script.py"], "not started with `alchemy run`"),
        (["/bin/alchemy", "run", "gone.toml"], "started from gone.toml, which does not exist"),
        (["/bin/alchemy", "run", "train.toml", "--what"], "has no option '--what'"),
        ("text", "not started with `alchemy run`"),
    ],
)
def test_an_unknown_config_file_is_said(
    project: Path, capsys: pytest.CaptureFixture[str], command: object, message: str
) -> None:
    change_info(max((project / "records").iterdir()), cmd=command)
    assert main(["diff", "last", ".", "--only", "config"]) == 0
    assert message in capsys.readouterr().out


def test_json_has_all_sections(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "last~1", "last", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["identical"] is True
    assert list(found)[3:] == ["config", "code", "environment", "metrics", "ledger"]
    main(["diff", "last", ".", "--json"])
    found = json.loads(capsys.readouterr().out)
    assert list(found)[3:] == ["config", "code", "environment"]
    assert found["environment"]["changes"]


def test_control_characters_of_a_record_are_escaped(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = max((project / "records").iterdir())
    (folder / "backup/src/model.py").write_text("a = '\x1b[31m'\n")
    write_environment(folder, platform="\x1b]0;title\x07")
    main(["diff", "last~1", "last"])
    out = capsys.readouterr().out
    assert "\x1b" not in out and "\\u001b[31m" in out and "\\u001b]0;title" in out


def test_packages_of_one_side_are_one_line(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_environment(
        max((project / "records").iterdir()), packages={"numpy": "2.1"} | {f"p{place}": "1" for place in range(30)}
    )
    main(["diff", "last~1", "last", "--only", "environment"])
    out = capsys.readouterr().out
    assert "environment: 31 differences\n  packages.numpy: 2.0 -> 2.1\n" in out
    assert "  30 packages only in B: p0, p1, p10, p11, p12, p13, p14, p15 and 22 more\n" in out
    main(["diff", "last~1", "last", "--json"])
    assert len(json.loads(capsys.readouterr().out)["environment"]["changes"]) == 31


def test_another_best_checkpoint_with_the_same_curve_is_said(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number, scores in ((3, [0.2, 0.1]), (4, [0.1, 0.2])):
        curves = {"dev/f1": scores, "train/lr": [0.2, 0.0006976744186046512]}
        folder = write_curves(project / "records", number, curves)
        change_info(folder, best={"metric": "dev/f1", "value": 0.2, "update": 2 - number % 2})
    main(["diff", "last~1", "last", "--only", "metrics"])
    out = capsys.readouterr().out
    assert "metrics: 2 of 2 differ, 1 of them only at the best checkpoint; first logged difference at update 1: " in out
    assert out.splitlines()[-3].split() == ["train/lr", "0.0006977", "0.0006977", "0.2", "0.0006977"]


def test_a_metric_of_one_side_is_rounded_and_one_file_differs(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write_curves(project / "records", 3, {"dev/f1": [0.1, 0.2], "dev/loss": [1.0, 1 / 3]}, BACKUP)
    write_code(folder, CODE | {"src/model.py": "a = 2\n"})
    main(["diff", "last~1", "last", "--only", "code,metrics"])
    out = capsys.readouterr().out
    assert "code: 1 of 2 files differs\n" in out and "metrics: 1 of 2 differs; " in out
    assert "  dev/loss          0.3333          0.3333\n" in out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["last", "last", "--only", "confg"], "no section is called 'confg'; did you mean 'config'"),
        (["last", "last", "--only", ","], "no section is called ''"),
        (["last", ".", "--only", "metrics"], "a folder has no metrics to compare with"),
        (["last", "nothing"], "record not found: 'nothing'"),
        (["last~9", "last"], "only 2 training runs"),
        ([".", "last"], "put the record first: alchemy diff last ."),
    ],
)
def test_mistakes_have_one_clear_error(
    project: Path, capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    assert main(["diff", *words]) == 2
    assert message in capsys.readouterr().err
