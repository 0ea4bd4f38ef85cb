"""Links in a record: those that leave it are rejected before anything is read or written through them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from alchemy.cli import main
from alchemy.errors import AlchemyError
from alchemy.records import Record
from alchemy.records.symlinks import path_inside, refuse_links
from alchemy.runner import run
from tests.toy import config

COMMANDS = {
    "resume": ["resume", "{}", "--device", "-1"],
    "test": ["test", "{}", "--device", "-1"],
    "predict": ["predict", "{}", "--device", "-1"],
    "generate": ["generate", "{}", "--input", "in.txt"],
    "score": ["score", "{}", "--source", "in.txt", "--target", "in.txt"],
    "export": ["export", "{}", "--format", "ctranslate2"],
    "replay": ["replay", "{}", "--update", "1"],
    "ledger": ["verify", "ledger", "{}"],
    "checkpoints": ["checkpoint", "ls", "{}"],
    "average": ["checkpoint", "average", "{}", "--last", "2", "--to", "average"],
}
FILES = ("run.log", "ledger.jsonl", "metrics.jsonl", "record.json", "env.json", "cfg.toml", "README.md", ".lock")
FOLDERS = ("state", "checkpt", "results", "media", "export", "backup", "state/best")


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    cfg = config(tmp_path_factory.mktemp("links") / "runs")
    (result,) = run([cfg], device=[-1], raise_errors=True)
    assert result.record_dir is not None
    return result.record_dir


@pytest.fixture
def record(original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's own record, next to a folder `outside` that must not change."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "outside").mkdir()
    (tmp_path / "in.txt").write_text("a\n")
    shutil.copytree(original, tmp_path / "runs" / original.name)
    return tmp_path / "runs" / original.name


def move_out(record: Path, name: str) -> Path:
    """Move a file or folder of a record outside, and replace it by a link; a missing one gets a dead link."""
    inside, outside = record / name, record.parents[1] / "outside" / Path(name).name
    if inside.exists():
        inside.rename(outside)
    inside.symlink_to(outside)
    return outside


@pytest.mark.parametrize("words", COMMANDS.values(), ids=COMMANDS)
def test_every_command_refuses_them(words: list[str], record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = move_out(record, "run.log")
    before = log.read_bytes()
    assert main([word.format(record) for word in words]) == 2
    told = capsys.readouterr().err
    assert f"contains links that point outside it: run.log -> {log}; remove them" in told and told.count("\n") == 1
    assert log.read_bytes() == before and not (record / "results").exists()


@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_resume_refuses_each_of_them(name: str, record: Path) -> None:
    outside = move_out(record, name)
    before = sorted(outside.parent.rglob("*"))
    with pytest.raises(AlchemyError, match=f"contains links that point outside it: {name} -> "):
        Record.reopen(record)
    assert sorted(outside.parent.rglob("*")) == before


def test_links_that_stay_inside_and_the_way_to_a_record_are_followed(record: Path, tmp_path: Path) -> None:
    (record / "newest").symlink_to("checkpt")
    (record / "checkpt" / "log").symlink_to(record / "run.log")
    (record / "backup" / "src").mkdir(parents=True)
    (record / "backup" / "src" / "data").symlink_to("/data")  # code is copied with its links
    (tmp_path / "disk").symlink_to(record.parent)
    assert refuse_links(tmp_path / "disk" / record.name) == tmp_path / "disk" / record.name


def test_a_link_in_the_backup_is_not_written_through(record: Path, tmp_path: Path) -> None:
    (record / "backup").mkdir(exist_ok=True)
    (record / "backup" / "home").symlink_to(tmp_path)
    assert refuse_links(record) == record  # a copy of code may contain links
    with pytest.raises(AlchemyError, match=r"backup/home/\.bashrc points outside the record"):
        path_inside(record, "backup/home/.bashrc")
    assert path_inside(record, "results/a.jsonl") == record / "results" / "a.jsonl"
