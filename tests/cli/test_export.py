"""`alchemy export`, and `alchemy generate --engine ctranslate2`: the texts of the model, or no file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.runner import run_task
from tests.tasks.test_learning import config as texts_config
from tests.tasks.test_translation import config, corpora

pytest.importorskip("ctranslate2", reason="the extra `export` is not installed")

__all__ = ["corpora"]  # the fixture

LINES = ["a dog", "", "small cat sees a dog", "a", "  ", "the größte ZEBRA", "cat runs"]


@pytest.fixture(scope="module")
def trained(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(str(run_task(config(corpora, tmp_path_factory.mktemp("run")), raise_errors=True).record_dir))


@pytest.fixture
def record(trained: Path, tmp_path: Path) -> Path:
    shutil.copytree(trained, tmp_path / trained.name, symlinks=True)
    return tmp_path / trained.name


def said(capsys: Any, *words: str | Path, code: int = 0) -> str:
    assert main([*map(str, words), "--device", "-1"]) == code
    read = capsys.readouterr()
    return str(read.err if code else read.out)


@pytest.mark.parametrize("options", [(), ("--nbest", "3"), ("--min-length", "2"), ("--max-length", "2")])
def test_both_engines_write_the_same(options: tuple[str, ...], record: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.en").write_text("".join(line + "\n" for line in LINES), "utf-8")
    words = ("generate", record, "--input", tmp_path / "in.en", *options)
    found = said(capsys, *words, "--engine", "ctranslate2")
    assert found == said(capsys, *words) and len(found.splitlines()) >= len(LINES)
    folder = record / "export" / "ctranslate2-float32"
    assert json.loads((folder / "alchemy.json").read_text())["agreement"]["lines"] == 20
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
