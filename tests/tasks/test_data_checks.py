"""Invalid or inconsistent data are reported with file and line before the first step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from alchemy.errors import AlchemyError
from alchemy.pipeline import EndStepPipeline
from alchemy.pipeline.processors import ParallelText, TextClassification
from alchemy.runner import run_task
from alchemy.seeds import sample_rng
from alchemy.tasks.text_task import texts_of
from tests.tasks.texts import BMES, config, refused

TABLE = "alchemy.pipeline.processors.TextClassification"


@EndStepPipeline.register()
class Never(EndStepPipeline):
    """Fails in the first step: errors must be reported before it."""

    def __call__(self, outputs: Any, **kwargs: Any) -> dict[str, Any]:
        raise AssertionError("a step was made")


def made(root: Path, kind: str = "classes", **task: Any) -> dict[str, Any]:
    """Run a config that must fail before its first step."""
    cfg = config(root, kind, **task)
    cfg["sched"]["pipes"] = [{"type": f"{__name__}.Never"}]
    return cfg


def reading(cfg: dict[str, Any], *, name: str = "train", **pipe: Any) -> dict[str, Any]:
    """Return the config with another processor for one split; dev equals train."""
    cfg["task"]["datasets"] |= {name: {"pipes": [{"type": TABLE, **pipe}], "batch_size": 2}}
    if name == "train":
        cfg["task"]["datasets"]["dev"] = cfg["task"]["datasets"]["train"]
    return cfg


@pytest.mark.parametrize("split", [{}, {"max_tokens": 40}], ids=["batch_size", "max_tokens"])
@pytest.mark.parametrize("cache", [False, True])
def test_a_text_of_dev_that_is_too_long_is_told_before_the_training(
    split: dict[str, Any], cache: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dev.tsv").write_text(f"good\ta fine day\nbad\t{'rain ' * 50}\n")
    cfg = made(tmp_path, max_length=5, cache=cache)
    reading(cfg, name="dev", format="tsv", text=1, label=0, path=str(tmp_path / "dev.tsv"))
    if split:
        for table in cfg["task"]["datasets"].values():
            table.pop("batch_size", None)
            table |= split
    refused(cfg, r"dev.tsv:2: a text has 50 tokens, more than max_length = 5; set long to 'longest_first'")


def test_the_length_that_the_model_takes_is_held_too(tmp_path: Path) -> None:
    cfg = made(tmp_path)
    cfg["model"]["encoder"] = {"type": "alchemy.models.encoders.Transformer", "dim": 8, "heads": 2, "max_length": 3}
    refused(cfg, r"data.txt:4: a text has 4 tokens, more than max_length = 3")


def drawn(sample: dict[str, Any]) -> dict[str, Any]:
    """Drop a random word: the length of a text changes at each read."""
    words = sample["text"].split()
    kept = [word for word in words if sample_rng().random() < 0.5] or words
    return {**sample, "text": " ".join(kept)}


def test_texts_that_change_by_chance_are_looked_at_and_trained_on(tmp_path: Path) -> None:
    cfg = config(tmp_path, "classes", max_length=5)
    cfg["sched"]["epochs"] = 1
    cfg["task"]["datasets"]["train"]["pipes"] = [
        *cfg["task"]["datasets"]["train"]["pipes"],
        {"type": "alchemy.pipeline.lst.Map", "fn": f"{__name__}.drawn"},
    ]
    assert "accuracy" in run_task(cfg, raise_errors=True).ret


KINDS: dict[str, tuple[str, dict[str, Any], dict[str, Any], str]] = {
    "words for numbers": (
        "text,label\na day,good\n",
        {},
        {"kind": "regression"},
        r"kind = 'regression', but a sample has kind = 'single': its label is 'good'; set kind = \"single\" in",
    ),
    "numbers for words": (
        "text,label\na day,1.5\na sun,2.0\n",
        {"kind": "regression"},
        {},
        r"kind = 'single', but a sample has kind = 'regression': its label is 1.5; set kind = \"regression\"",
    ),
    "several for one": (
        'text,labels\na day,"a,b"\n',
        {"kind": "multi"},
        {},
        r"a sample has kind = 'multi': its labels is \['a', 'b'\]; set kind = \"multi\" in \[task\]",
    ),
    "one for several": ("text,label\na day,a\n", {}, {"kind": "multi"}, 'or kind = "multi" in the processor'),
    "a pair that is not read": (
        "text,pair,label\na day,sun,a\n",
        {"pair": "pair"},
        {},
        "pair = false, but a sample has text, pair, label; for text pairs, set pair = true",
    ),
    "no pair": (
        "text,label\na day,a\n",
        {},
        {"pair": True},
        "pair = true, but a sample has text, label; for text pairs",
    ),
    "no labels": ("text,other\na day,a\n", {}, {}, "no field 'label' to learn from, only text; set its column"),
    "no numbers": ("text\na day\n", {}, {"kind": "regression"}, "no field 'label' to learn from, only text"),
}


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("learns", [True, False])
def test_a_processor_and_a_task_that_disagree_are_told(name: str, learns: bool, tmp_path: Path) -> None:
    table, pipe, task, message = KINDS[name]
    (tmp_path / "data.csv").write_text(table)
    given = {} if learns or task.get("kind") == "regression" else {"labels": ["a", "b"]}
    cfg = reading(made(tmp_path), path=str(tmp_path / "data.csv"), **pipe)
    cfg["task"] |= task | given
    refused(cfg, rf"data.csv:2 \[task.datasets.train\] .*{message}")


def test_a_pair_of_dev_alone_is_told(tmp_path: Path) -> None:
    (tmp_path / "dev.csv").write_text("text,pair,label\na day,sun,good\n")
    refused(
        reading(made(tmp_path), name="dev", path=str(tmp_path / "dev.csv"), pair="pair"),
        r"dev.csv:2 \[task.datasets.dev\] pair = false",
    )


@pytest.mark.parametrize(
    ("kind", "other", "message"),
    [
        (
            "tagging",
            "classes",
            r"alchemy.tasks.classification.Classification: a sample has no field 'text'; it has tokens",
        ),
        ("classes", "tagging", r"Tagging: a sample has no field 'tokens'; it has text, label"),
        ("tagging", "relation", r"Relation: a sample has no field 'e1_tokens'; it has tokens, tags"),
    ],
)
def test_a_processor_of_another_task_is_told(kind: str, other: str, message: str, tmp_path: Path) -> None:
    task = made(tmp_path, other)["task"]
    cfg = made(tmp_path, kind)
    cfg["task"] = {**task, "datasets": cfg["task"]["datasets"]}
    refused(cfg, rf"data.txt:1 \[task.datasets.train\] .*{message}")


MODELS = {"classes": "TextClassifier", "tagging": "Tagger", "relation": "RelationClassifier"}
READS = {"classes": "label_id", "tagging": "words", "relation": "e1_mask"}


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("model", MODELS)
def test_a_model_of_another_task_is_told(kind: str, model: str, tmp_path: Path) -> None:
    if (kind, model) in ((kind, kind), ("relation", "classes")):  # a text with markers is also a text with a label
        cfg = config(tmp_path, kind)
        cfg["sched"]["epochs"] = 1
        cfg["model"]["type"] = f"alchemy.models.{MODELS[model]}"
        assert "accuracy" in run_task(cfg, raise_errors=True).ret
        return
    cfg = made(tmp_path, kind)
    cfg["model"]["type"] = f"alchemy.models.{MODELS[model]}"
    goes = {"classes": "Classification", "tagging": "Tagging", "relation": "Relation"}[model]
    refused(cfg, rf"{MODELS[model]} reads '{READS[model]}', but the samples of .* with alchemy.tasks.{goes}")


def test_a_model_of_another_kind_is_told(tmp_path: Path) -> None:
    cfg = made(tmp_path)
    cfg["model"]["kind"] = "multi"
    refused(cfg, "TextClassifier reads 'label_hot', but the samples of Classification have text, label, label_id")


def tagged(root: Path, **task: Any) -> dict[str, Any]:
    """A tagger whose train and dev data begin with a tag that BIO forbids, read by a processor without a scheme."""
    cfg = config(root, "tagging", scheme="BIO", **task)
    (root / "data.txt").write_text("小 B-NAME\n明 I-NAME\n\n" * 3 + "北 I-LOC\n京 I-LOC\n去 O\n\n")
    split = {
        "pipes": [{"type": "alchemy.pipeline.processors.Tagging", "path": str(root / "data.txt")}],
        "batch_size": 2,
    }
    cfg["task"]["datasets"] = {"train": split, "dev": split}
    cfg["sched"]["epochs"] = 1
    return cfg


@pytest.mark.parametrize("labels", [None, ["O", "B-NAME", "I-NAME", "B-LOC", "I-LOC"]], ids=["learnt", "given"])
def test_tags_that_the_scheme_forbids_are_counted_in_every_split(
    labels: Any, tmp_path: Path, warnings: list[str]
) -> None:
    run_task(tagged(tmp_path, labels=labels), raise_errors=True)
    for split in ("train", "dev"):
        (found,) = [text for text in warnings if text.startswith(f"{split}: 1 of 4 texts have tags that violate BIO")]
        assert "data.txt:10" in found


def test_tags_of_another_scheme_are_told(tmp_path: Path) -> None:
    for labels in (None, ["O", "B-NAME", "I-NAME"]):
        cfg = tagged(tmp_path, labels=labels)
        (tmp_path / "dev.txt").write_text(BMES)
        data = cfg["task"]["datasets"]
        data["dev"] = {**data["dev"], "pipes": [{**data["dev"]["pipes"][0], "path": str(tmp_path / "dev.txt")}]}
        (tmp_path / "data.txt").write_text("小 B-NAME\n明 I-NAME\n\n" * 3)
        refused(cfg, r"dev.txt:1 \[task.datasets.dev\] the tag 'E-NAME' is not a BIO")
    refused(tagged(tmp_path, labels=["O", "B-NAME", "E-NAME"]), "'E-NAME' is not a BIO.*set the tagging scheme")


def test_the_types_that_a_processor_lists_are_no_tags(tmp_path: Path) -> None:
    cfg = tagged(tmp_path)
    (tmp_path / "data.jsonl").write_text(json.dumps({"text": "小明在", "spans": [[0, 2, "PER"]]}) + "\n")
    pipe = {"type": "alchemy.pipeline.processors.Spans", "path": str(tmp_path / "data.jsonl"), "scheme": "BIO"}
    split = {"pipes": [{**pipe, "labels": ["PER"]}], "batch_size": 2}
    cfg["task"]["datasets"] = {"train": split, "dev": split}
    assert "f1" in run_task(cfg, raise_errors=True).ret


@pytest.mark.parametrize("text", ["\u200b\ufeff", " \u200d\n", "\u00ad"])
def test_a_text_in_which_there_is_nothing_to_see_is_empty(text: str, tmp_path: Path) -> None:
    with pytest.raises(AlchemyError, match="expected a non-empty string"):
        texts_of(text, "text")
    (tmp_path / "a.csv").write_text(f'text\none\n"{text.strip()}"\n')
    with pytest.raises(AlchemyError, match=r"a.csv:3 the text is .*, expected a non-empty string"):
        TextClassification(str(tmp_path / "a.csv"))
    (tmp_path / "a.tsv").write_text(f"one\teins\ntwo\t{text.strip()}\n")
    with pytest.raises(AlchemyError, match=r"a.tsv:2 the target is empty"):
        ParallelText(str(tmp_path / "a.tsv"))
    assert texts_of(f"a{text}b", "text") == {"text": f"a{text}b"}
