"""`alchemy predict` with proteins: the column of the training, FASTA files, and letters that are not residues."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.runner import run_task
from tests.tasks.proteins import ENCODERS, tagging, variants
from tests.trained import trained

FASTA = ">a|1 some words\nmsiq\nHFRVAL\n\n>b\nMSIQHFRVAW\n"


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folders = {kind: tmp_path_factory.mktemp(kind) for kind in ("tags", "numbers")}
    configs = {"tags": tagging(folders["tags"]), "numbers": variants(folders["numbers"], ENCODERS["substitutions"])}
    for cfg in configs.values():
        cfg["sched"]["epochs"] = 1
    return {kind: str(run_task(cfg, raise_errors=True).record_dir) for kind, cfg in configs.items()}


def predict(record: str, capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> tuple[list[Any], str]:
    """Return the printed predictions and what is on standard error."""
    capsys.readouterr()
    assert main(["predict", record, "--device", "-1", *words]) == code
    printed = capsys.readouterr()
    return [json.loads(line) for line in printed.out.splitlines()], printed.err


@pytest.mark.parametrize(("kind", "column"), [("tags", "seq"), ("numbers", "sequence")])
def test_the_sequence_of_the_training_is_the_default_column(
    kind: str, column: str, records: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "in.csv").write_text(f"id,{column}\na,MSIQHFRVAL\n")
    ((row,), _) = predict(records[kind], capsys, "--file", str(tmp_path / "in.csv"))
    assert row["id"] == "a" and row[column] == "MSIQHFRVAL" and row["pred"]


@pytest.mark.parametrize("kind", ["tags", "numbers"])
def test_the_sequences_of_a_fasta_file(
    kind: str, records: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.faa"
    path.write_text(FASTA)
    rows, _ = predict(records[kind], capsys, "--file", str(path))
    assert [(row["id"], row["sequence"]) for row in rows] == [("a|1", "msiqHFRVAL"), ("b", "MSIQHFRVAW")]
    ((same,), _) = predict(records[kind], capsys, "--text", "MSIQHFRVAL")
    assert rows[0]["pred"] == same["pred"]
    _, told = predict(records[kind], capsys, "--file", str(path), "--column", "id", code=2)
    assert "is a FASTA file without columns" in told
    path.write_text("MSIQ\n")
    assert "'MSIQ' comes before the first header" in predict(records[kind], capsys, "--file", str(path), code=2)[1]


def test_letters_that_training_refuses_are_refused(
    records: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new.fasta"
    path.write_text(FASTA + ">c\nMSIQOFRVA!\n")
    rows, told = predict(records["numbers"], capsys, "--file", str(path), code=2)
    assert len(rows) == 2
    assert "new.fasta:7 [task.datasets.dev.pipes.0] 'O' is not in the alphabet ACDEFGHIKLMNPQRSTVWY; set" in told
    options = ("--set", "task.datasets.dev.pipes.Proteins.unknown=X")
    rows, _ = predict(records["numbers"], capsys, "--file", str(path), *options)
    assert len(rows) == 3
    ((row,), _) = predict(records["tags"], capsys, "--text", "hello world!")  # trained with `unknown`
    assert "".join(row["tokens"]) == "HELLXWXRLDX" and len(row["pred"]) == 11


def test_a_model_of_words_reads_no_fasta_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "new.fasta").write_text(FASTA)
    (tmp_path / "words").mkdir()
    record, _ = trained(tmp_path / "words", "classes")
    _, told = predict(str(record), capsys, "--file", str(tmp_path / "new.fasta"), code=2)
    assert "unknown file extension: 'new.fasta'; use .csv, .tsv, .jsonl, .ndjson or .txt" in told
