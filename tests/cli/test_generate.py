"""`alchemy generate`: a text for each line, in order, whatever the batches."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.runner import run_task
from tests.tasks.test_learning import config as texts_config
from tests.tasks.test_translation import config, corpora

__all__ = ["corpora"]  # the fixture

LINES = ["a dog", "", "small cat sees a dog", "a", "  ", "the größte ZEBRA"]


@pytest.fixture(scope="module")
def record(corpora: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    cfg = config(corpora, tmp_path_factory.mktemp("run"))
    cfg["sched"]["epochs"] = 2
    return str(run_task(cfg, raise_errors=True).record_dir)


def generated(record: str, capsys: Any, *words: str, code: int = 0) -> str:
    # a model of two epochs would rather say nothing
    assert main(["generate", record, "--device", "-1", "--min-length", "1", *words]) == code
    read = capsys.readouterr()
    return str(read.err if code else read.out)


def test_each_line_has_its_text(record: str, tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "in.en").write_text("".join(line + "\n" for line in LINES), "utf-8")
    file = str(tmp_path / "in.en")
    found = generated(record, capsys, "--input", file).splitlines()
    assert len(found) == len(LINES) and [not text for text in found] == [not line.strip() for line in LINES]
    assert generated(record, capsys, "--input", file, "--batch-size", "1").splitlines() == found
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
    assert generated(record, capsys).splitlines() == found
    generated(record, capsys, "--input", file, "--output", str(tmp_path / "out.de"))
    assert (tmp_path / "out.de").read_text("utf-8").splitlines() == found


def test_several_texts_with_scores_and_draws(record: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.en").write_text("a dog\n\nsmall cat\n", "utf-8")
    file = str(tmp_path / "in.en")
    rows = [
        row.split("\t") for row in generated(record, capsys, "--input", file, "--nbest", "6", "--scores").splitlines()
    ]
    assert [row[0] for row in rows] == [*["1"] * 6, "2", *["3"] * 6]
    scores = [float(row[1]) for row in rows[:6]]
    assert scores == sorted(scores, reverse=True)
    drawn = [generated(record, capsys, "--input", file, "--sample", "--seed", seed) for seed in ("1", "1", "2")]
    assert drawn[0] == drawn[1] != drawn[2]
    assert generated(record, capsys, "--input", file, "--sample", "--temperature", "0") == generated(
        record, capsys, "--input", file, "--beam", "1"
    )
    short = generated(record, capsys, "--input", file, "--max-length", "1").splitlines()
    assert all(len(text.split()) <= 1 for text in short)


def test_what_cannot_be_is_told(record: str, tmp_path: Path, capsys: Any) -> None:
    assert "--seed is for --sample" in generated(record, capsys, "--seed", "3", code=2)
    assert "--beam is for a search" in generated(record, capsys, "--sample", "--beam", "3", code=2)
    assert "there is no file" in generated(record, capsys, "--input", str(tmp_path / "none.en"), code=2)
    assert "cannot be written: Is a directory" in generated(record, capsys, "--output", str(tmp_path), code=2)
    (tmp_path / "in.en").write_bytes(b"a dog\n\xff\xfe\n")
    assert "in.en:2" in generated(record, capsys, "--input", str(tmp_path / "in.en"), code=2)
    other = run_task(texts_config(tmp_path, "classes"), raise_errors=True).record_dir
    assert "Classification writes no texts" in generated(str(other), capsys, code=2)
