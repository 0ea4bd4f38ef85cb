"""`alchemy export`, and `alchemy generate --engine ctranslate2`: the same output as the model, or no file."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.runner import run_task
from tests.tasks.pairs import config
from tests.tasks.texts import config as texts_config

pytest.importorskip("ctranslate2", reason="the extra `export` is not installed")

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
    words: tuple[Any, ...] = ("generate", record, "--input", tmp_path / "in.en", *options)
    found = said(capsys, *words, "--engine", "ctranslate2")
    assert found == said(capsys, *words) and len(found.splitlines()) >= len(LINES)
    folder = record / "export" / "ctranslate2-float32"
    assert json.loads((folder / "alchemy.json").read_text())["agreement"]["lines"] == 20
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_scores_and_tokens_are_those_of_the_model(record: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.en").write_text("a dog\n\nsmall cat\n", "utf-8")
    words = ("generate", record, "--input", tmp_path / "in.en", "--nbest", "2", "--json", "--alignments")
    both = [said(capsys, *words, "--engine", engine).splitlines() for engine in ("ctranslate2", "torch")]
    assert [len(rows) for rows in both] == [3, 3]
    for theirs, ours in (map(json.loads, pair) for pair in zip(*both)):
        assert theirs["scores"] == pytest.approx(ours["scores"], abs=1e-4)
        for one, other in zip(theirs["token_scores"], ours["token_scores"], strict=True):
            assert one == pytest.approx(other, abs=1e-3)
        for key in ("source", "nbest", "tokens", "alignments"):
            assert theirs[key] == ours[key]


def test_an_export_is_made_checked_and_found_again(record: Path, tmp_path: Path, capsys: Any) -> None:
    words = ("export", record, "--format", "ctranslate2")
    folder = record / "export" / "ctranslate2-float32"
    first, second = said(capsys, *words).splitlines(), said(capsys, *words).splitlines()
    assert (
        first[0].startswith(f"{folder}  0.") and first[0].endswith("MiB") and "the same text for 20 of 20" in first[1]
    )
    assert second == [f"{first[0]}  (already exported, not verified again)", first[1]]
    small = said(capsys, *words, "--precision", "int8", "--to", tmp_path / "small")
    assert "BLEU" in small and (tmp_path / "small" / "model.bin").stat().st_size < (folder / "model.bin").stat().st_size


def test_sentences_of_files_do_where_the_data_are_gone(
    record: Path, corpora: Path, tmp_path: Path, capsys: Any
) -> None:
    words: list[Any] = ["export", record, "--format", "ctranslate2", "--set"]
    words.append(f"task.datasets.dev.pipes.0.source={tmp_path}/no")
    assert "there are no sentences to check the export on" in said(capsys, *words, code=2)
    assert not (record / "export").exists()
    (tmp_path / "in.en").write_text("a dog\n\nsmall cat\n", "utf-8")
    (tmp_path / "in.de").write_text("ein hund\n\nkleiner kater\n", "utf-8")
    words += ["--lines", tmp_path / "in.en"]
    assert "the same text for 2 of 2" in said(capsys, *words)
    assert "int8 is checked by its BLEU" in said(capsys, *words, "--precision", "int8", code=2)
    assert "BLEU" in said(capsys, *words, "--precision", "int8", "--references", tmp_path / "in.de")
    (tmp_path / "in.de").write_text("ein hund\n", "utf-8")
    told = said(capsys, *words, "--to", tmp_path / "x", "--references", tmp_path / "in.de", code=2)
    assert "in.en has 3 lines, but" in told
    shutil.rmtree(record / "export")
    gone = ["--set", words[5], "--engine", "ctranslate2"]
    assert said(capsys, "generate", record, "--input", tmp_path / "in.en", *gone).count("\n") == 3


def test_what_cannot_be_is_told_and_leaves_nothing(record: Path, corpora: Path, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "in.en").write_text("a dog\n", "utf-8")
    words = ("generate", record, "--input", tmp_path / "in.en", "--output", tmp_path / "out", "--engine", "ctranslate2")
    assert "does not support `no_repeat`" in said(capsys, *words, "--no-repeat", "2", code=2)
    assert "does not support the search Sampling" in said(capsys, *words, "--sample", code=2)
    assert "--precision int8 requires --engine ctranslate2" in said(
        capsys, *words[:-1], "torch", "--precision", "int8", code=2
    )
    told = said(capsys, "export", record, "--format", "ctranslate2", "--references", "x", code=2)
    assert "--references requires --lines" in told
    assert not (record / "export").exists() and not (tmp_path / "out").exists()


def test_models_that_it_cannot_hold_are_refused_by_name(corpora: Path, tmp_path: Path, capsys: Any) -> None:
    cfg = config(corpora, tmp_path, "lstm")
    cfg["sched"]["epochs"] = 1
    lstm = str(run_task(cfg, raise_errors=True).record_dir)
    for words in (("export", lstm, "--format", "ctranslate2"), ("generate", lstm, "--engine", "ctranslate2")):
        assert "CTranslate2 does not support the network AttentionLSTM" in said(capsys, *words, code=2)
    classes = str(run_task(texts_config(tmp_path, "classes"), raise_errors=True).record_dir)
    assert "CTranslate2 does not support models" in said(capsys, "export", classes, "--format", "ctranslate2", code=2)
