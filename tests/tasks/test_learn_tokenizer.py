"""Text tasks from a config: train, evaluate, predict, and learn tokenizers and labels from the training data."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.cli import main
from alchemy.config.toml_writer import dumps
from alchemy.errors import AlchemyError, Refused
from alchemy.pipeline import build_datapipes
from alchemy.runner import run_task
from alchemy.text import Words
from tests.tasks.texts import TEXTS, config, refused


@pytest.mark.parametrize(("kind", "score"), [("classes", "accuracy"), ("tagging", "f1"), ("relation", "f1")])
def test_a_task_learns_its_data_by_heart(kind: str, score: str, tmp_path: Path) -> None:
    result = run_task(config(tmp_path, kind), raise_errors=True)
    assert result.ret[score] == 1.0
    assert len(result.ret["preds"]) == {"classes": 16, "tagging": 12, "relation": 12}[kind]


def test_a_label_that_training_never_saw_is_told_with_its_line(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes")
    (tmp_path / "dev.tsv").write_text("good\ta fine day\ngodo\ta sad day\n")
    pipe = {**cfg["task"]["datasets"]["dev"]["pipes"][0], "path": str(tmp_path / "dev.tsv")}
    cfg["task"]["datasets"]["dev"] = {"pipes": [pipe], "batch_size": 4}
    with pytest.raises(AlchemyError, match=r"dev.tsv:2 .*'godo'.*did you mean 'good'"):
        run_task(cfg, raise_errors=True)


def test_data_without_labels_are_answered_and_not_scored(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes")
    (tmp_path / "dev.csv").write_text("text\na fine day\n")
    pipe = {"type": "alchemy.pipeline.processors.TextClassification", "path": str(tmp_path / "dev.csv")}
    cfg["task"]["datasets"]["dev"] = {"pipes": [pipe], "batch_size": 4}
    found = alchemy.run_task(cfg, raise_errors=True).ret
    assert found["preds"][0]["pred"] in ("good", "bad")
    assert "accuracy" not in found and "loss" not in found


def test_answers_come_in_the_order_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cfg = config(tmp_path, "classes")
    split = {"pipes": cfg["task"]["datasets"]["dev"]["pipes"], "max_sentences": 3}  # batched by length
    cfg["task"]["datasets"] = {"train": split, "dev": split, "test": split}
    cfg["plugins"][0]["log_dir"] = "records/train"
    Path("c.toml").write_text(dumps(cfg))
    assert main(["run", "c.toml", "--test", "--predict", "--device", "-1"]) == 0
    texts = [text for _, text in TEXTS]
    (trained,), (tested,), (asked,) = (
        sorted(Path("records", name).iterdir()) for name in ("train", "test", "inference")
    )
    rows = (asked / "results" / "predictions.jsonl").read_text().splitlines()
    assert [json.loads(row)["text"] for row in rows] == texts
    result = run_task(cfg, raise_errors=True)
    assert [row["text"] for row in result.ret["preds"]] == texts
    assert (trained / "labels").is_dir() and (tested / "results" / "test_report.json").is_file()


def test_encoded_samples_are_kept_when_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = run_task(config(tmp_path, "classes"), raise_errors=True)
    cached = [run_task(config(tmp_path, "classes", cache=True), raise_errors=True) for _ in range(2)]
    assert len(list(Path(".alchemy/cache").glob("*/manifest.json"))) == 1  # train and dev are the same samples
    assert all(run.ret["loss"] == first.ret["loss"] for run in cached)


def test_what_cannot_be_is_told_before_the_first_step(tmp_path: Path) -> None:
    refused(config(tmp_path, "relation", other="Othr"), "other = 'Othr' is not one of the labels; did you mean 'Other'")
    refused(config(tmp_path, "tagging", scheme="BIO"), r"data.txt:1 .*'E-NAME' is not a BIO.*set the tagging scheme")
    refused(config(tmp_path, "classes", learn={"min_freq": 2}), "Words cannot be trained with min_freq")
    refused(config(tmp_path, "classes", pair=True), r"data.txt:1 .*pair = true, but a sample has text, label")
    Words.train(["other words, in another language"]).save(tmp_path / "strange")
    strange = str(tmp_path / "strange")
    refused(config(tmp_path, "classes", tokenizer=strange), r"52 of 52 tokens of the first texts are not in the vocab")
    cfg = config(tmp_path, "tagging")
    refused({**cfg, "criterion": {"type": "alchemy.nn.losses.CrossEntropy"}}, "a CRF defines its own loss")
    cfg["model"]["encoder"] = {"type": "alchemy.models.fasttext.NGrams", "dim": 8, "buckets": 10}
    refused(cfg, "Tagger needs one vector per token, but NGrams does not return them")
    cfg = config(tmp_path, "classes")
    cfg["task"]["datasets"]["train"] = {
        "pipes": [{"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": [str(tmp_path / "data.txt")]}]
    }
    cfg["task"]["datasets"]["train"]["pipes"].append({"type": "alchemy.pipeline.itr.LineOpener"})
    refused(
        cfg | {"task": cfg["task"] | {"labels": ["a", "b"], "tokenizer": strange}}, "needs indexable data.*ItrToLst"
    )


def test_a_text_that_the_model_cannot_take_is_told_with_its_line(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes")
    cfg["model"]["encoder"] = {"type": "alchemy.models.encoders.Transformer", "dim": 8, "heads": 2, "max_length": 3}
    refused(cfg, r"data.txt:\d+: a text has 4 tokens, more than max_length = 3; set long to")
    refused(cfg | {"task": cfg["task"] | {"max_length": 9}}, "max_length = 9, but the model takes at most 3 tokens")


def test_a_record_is_not_gone_on_with_by_other_numbers_of_labels(tmp_path: Path) -> None:
    (tmp_path / "labels.txt").write_text("good\nbad\n")
    first = run_task(config(tmp_path, "classes", labels=str(tmp_path / "labels.txt")), raise_errors=True)
    (tmp_path / "labels.txt").write_text("bad\ngood\n")
    with pytest.raises(Refused, match="ids would change meaning"):
        alchemy.resume(
            first.record_dir, overrides=["sched.epochs=13"], allow=["sched.epochs", "data"], raise_errors=True
        )


def test_a_label_that_only_the_held_out_share_has_is_known(tmp_path: Path) -> None:
    rows = [f"{label},{text}\n" for label, text in TEXTS] + ["rare,a storm\n"]
    (tmp_path / "t.csv").write_text("label,text\n" + "".join(rows), "utf-8")
    read = {"type": "alchemy.pipeline.processors.TextClassification", "path": str(tmp_path / "t.csv")}
    for seed in range(50):  # find a seed that holds out the last row
        share: dict[str, Any] = {"type": "alchemy.pipeline.lst.HoldOut", "share": 0.3, "seed": seed}
        pipes: list[dict[str, Any]] = [read, share]
        train = build_datapipes(pipes)
        if all(train[index]["label"] != "rare" for index in range(len(train))):
            break
    cfg = config(tmp_path, "classification")
    splits = {"train": {"pipes": pipes}, "dev": {"pipes": [pipes[0], {**share, "held": True}]}}
    cfg["task"]["datasets"] = {name: {**table, "batch_size": 4} for name, table in splits.items()}
    cfg["sched"]["epochs"] = 1
    assert run_task(cfg, raise_errors=True).ret["accuracy"] >= 0
