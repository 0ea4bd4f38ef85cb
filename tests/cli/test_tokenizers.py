"""A record encodes with the tokenizer of its training run, even if the folder in the config changes."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from alchemy.cli import main
from alchemy.cli.derived_config import use_own_tokenizers
from alchemy.config.toml_writer import dumps
from alchemy.config.tree import Document
from alchemy.records import newest
from alchemy.text import Words
from tests.toy import config

LINES = ["the cat sat", "the dog", "a cat and a dog"]
ENCODE = {"type": "alchemy.pipeline.encode.Encode", "tokenizer": "words"}


def point(sample: dict[str, Any]) -> dict[str, Any]:
    total = float(sample["input_ids"].sum())
    return {"x": [total / 10], "y": [total / 5]}


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The record of a model trained on words, and the tokenizer folder next to it."""
    monkeypatch.chdir(tmp_path)
    Words.train(LINES).save("words")
    rows = [{"text": line} for line in LINES]
    pipes = [
        {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": rows},
        ENCODE,
        {"type": "alchemy.pipeline.lst.Map", "fn": f"{__name__}.point"},
    ]
    split = {"pipes": pipes, "batch_size": 3, "collate_fn": "alchemy.data.collate.Pad"}
    cfg = config("records", task__datasets={"train": split, "dev": split, "test": split}, sched__epochs=1)
    Path("train.toml").write_text(dumps(cfg))
    assert main(["run", "train.toml", "--device", "-1"]) == 0
    return newest()


def test_a_record_is_tested_with_its_own_tokenizer(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.rmtree("words")
    capsys.readouterr()
    assert main(["test", str(trained), "--device", "-1"]) == 0
    assert f"using the tokenizers of {trained}: input_ids" in capsys.readouterr().err
    tested = newest()
    assert f'tokenizer = "{trained}/tokenizer/input_ids"' in (tested / "cfg.toml").read_text()
    # without the copy, the folder of the config is used, and the check reports that it is missing
    shutil.rmtree(trained / "tokenizer")
    assert main(["test", str(trained), "--device", "-1"]) == 2
    assert "file not found: 'words'" in capsys.readouterr().err


def test_a_tokenizer_given_with_set_is_used(trained: Path) -> None:
    Words.train(["other words"]).save("other")
    change = 'task.datasets.test.pipes.1.tokenizer="other"'
    assert main(["test", str(trained), "--device", "-1", "--set", change]) == 0
    assert 'tokenizer = "other"' in (newest() / "cfg.toml").read_text()


@pytest.mark.parametrize("now", ["gone", "another", "the same"])
def test_a_record_goes_on_with_its_own_tokenizer(trained: Path, now: str, capsys: pytest.CaptureFixture[str]) -> None:
    if now != "the same":
        shutil.rmtree("words")
    if now == "another":
        Words.train(["other words"]).save("words")
    longer = ["--set", "sched.epochs=2", "--allow", "sched.epochs"]
    assert main(["resume", str(trained), "--device", "-1", *longer]) == 0
    told = "the tokenizer of 'input_ids' in the config is missing or has changed: using the tokenizer of the record"
    assert (told in capsys.readouterr().out) == (now != "the same")
    named = "words" if now == "the same" else f"{trained}/tokenizer/input_ids"
    assert f'tokenizer = "{named}"' in (trained / "cfg.toml").read_text()


def test_only_fields_that_the_record_has_are_changed(tmp_path: Path) -> None:
    Words.train(LINES).save(tmp_path / "tokenizer" / "ids")
    pipes = [{**ENCODE, "to": "ids"}, {**ENCODE, "to": "pieces"}, {**ENCODE, "to": "ids"}, 3]
    document = Document({"task": {"datasets": {"test": {"pipes": pipes}}}})
    assert use_own_tokenizers(document, tmp_path) == ["ids"]
    named = [pipe["tokenizer"] for pipe in document["task"]["datasets"]["test"]["pipes"][:3]]
    assert named == [str(tmp_path / "tokenizer" / "ids"), "words", str(tmp_path / "tokenizer" / "ids")]
