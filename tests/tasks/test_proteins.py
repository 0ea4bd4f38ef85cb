"""Proteins: a number for a sequence with one substitution, and a tag for each residue."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.runner import run_task
from tests.tasks.proteins import ENCODERS, WILD, tagging, variants
from tests.tasks.texts import refused


def train(cfg: dict[str, Any]) -> tuple[Path, dict[str, Any]]:
    """Run a config; return its record and the report of the dev split."""
    run_task(cfg, raise_errors=True)
    (record,) = Path(cfg["plugins"][0]["log_dir"]).iterdir()
    return record, json.loads((record / "results" / "dev_report.json").read_text())


def test_unscored_residues_count_neither_in_the_loss_nor_in_the_scores(tmp_path: Path) -> None:
    record, report = train(tagging(tmp_path))
    assert report["scores"]["accuracy"] == 1.0
    assert {name: row["support"] for name, row in report["tags"].items()} == {"C": 24, "E": 12, "H": 40}
    with alchemy.load(record) as model:
        task: Any = model.run.task
        assert task.labels == ["C", "E", "H"]
        (answer,) = model.predict(["msiqhfrval"])
        assert len(answer["pred"]) == 10 and "spans" not in answer


def test_accuracy_is_pooled_over_the_scored_residues(tmp_path: Path) -> None:
    cfg = tagging(tmp_path)
    cfg["sched"]["epochs"] = 1
    record, _ = train(cfg)
    with alchemy.load(record) as model:
        task: Any = model.run.task
        answers = [{"tags": ["H", "-", "C", "C"], "pred": ["H", "H", "C", "H"]}, {"tags": ["E"], "pred": ["H"]}]
        assert task.scores(answers) == {"accuracy": 0.5}
        assert task.scores([{"tags": ["-"], "pred": ["H"]}]) == {"accuracy": 0.0}


def test_what_cannot_be_tagged_is_refused(tmp_path: Path) -> None:
    cfg = tagging(tmp_path)
    cfg["model"]["decoder"] = "crf"
    refused(cfg, 'a CRF needs a tag for every word, but the task has unscored words; set decoder = "softmax"')
    refused(tagging(tmp_path, labels=["H", "E"]), r"data\.tsv:2 \[task.datasets.train\] the label 'C' is not a label")
    refused(tagging(tmp_path, learn={"k": 3}), "tokens of the first texts are not in the vocabulary")


@pytest.mark.parametrize("kind", ENCODERS)
def test_numbers_of_substitutions_are_learned(tmp_path: Path, kind: str) -> None:
    cfg = variants(tmp_path, ENCODERS[kind], learn={"k": 2} if kind == "kmers" else {})
    cfg["sched"]["epochs"] = 25
    assert train(cfg)[1]["scores"]["spearman"] > 0.8


def test_sequences_of_another_length_than_the_reference(tmp_path: Path) -> None:
    refused(
        variants(tmp_path, ENCODERS["substitutions"] | {"reference": WILD + "A"}),
        "a sequence has 10 residues, but the reference has 11",
    )


def protein_bert(root: Path) -> Path:
    """Return a folder with AntiBERTy, a BERT for antibodies; skip the test if its package is not installed."""
    found = importlib.util.find_spec("antiberty")
    if found is None or not found.submodule_search_locations:
        pytest.skip("antiberty is not installed: pip install --no-deps antiberty==0.1.3")
    weights = Path(found.submodule_search_locations[0]) / "trained_models"
    if not (weights / "vocab.txt").is_file():
        pytest.skip("this version of antiberty has no weights: install 0.1.3")
    (root / "bert").mkdir()
    model = weights / "AntiBERTy_md_smooth"
    for file in (weights / "vocab.txt", model / "config.json", model / "pytorch_model.bin"):
        (root / "bert" / file.name).symlink_to(file)
    return root / "bert"


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["tagging", "regression"])
def test_a_pretrained_protein_model(tmp_path: Path, kind: str) -> None:
    folder = protein_bert(tmp_path)
    encoder = {"type": "alchemy.models.pretrained.Pretrained", "path": str(folder)}
    cfg = tagging(tmp_path) if kind == "tagging" else variants(tmp_path, encoder)
    if kind == "regression":
        for split in cfg["task"]["datasets"].values():
            split["pipes"][0]["spaced"] = True
    cfg["task"]["tokenizer"] = {"type": "alchemy.text.Folder", "path": str(folder), "lower": False}
    cfg["model"]["encoder"] = encoder
    cfg["optim"]["lr"] = 1e-4
    _, report = train(cfg)
    assert report["scores"]["accuracy" if kind == "tagging" else "spearman"] > 0.8
