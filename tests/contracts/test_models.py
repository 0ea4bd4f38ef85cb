"""The contract of models: all pairs of encoder, head and task learn, and each of them resumes; `slow`: all triples."""

from __future__ import annotations

import itertools
import json
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import alchemy
from alchemy.cli.derived_config import derive_test
from alchemy.config.load import prepare_cfg
from alchemy.loop import loader_of
from alchemy.records.local_copies import use_local_copies
from alchemy.records.metrics_file import read_metrics
from alchemy.runner import run_task
from alchemy.verify.compare_records import compare
from tests.contracts.parts import each
from tests.contracts.trainings import config_of
from tests.models.tiny import KINDS, folder
from tests.ready import ready
from tests.toy import Interrupt

WORDS = [f"w{i:02}" for i in range(30)]
TEXTS = [" ".join(WORDS[(3 * i + j) % 30] for j in range(1 + 2 * i % 7)) for i in range(14)]
ENCODERS: dict[str, dict[str, Any]] = {
    "embedding": {"type": "alchemy.models.encoders.Embedding", "dim": 8},
    "lstm": {"type": "alchemy.models.encoders.Recurrent", "dim": 8, "hidden": 6, "layers": 2},
    "gru": {"type": "alchemy.models.encoders.Recurrent", "kind": "gru", "dim": 8, "hidden": 6},
    "transformer": {"type": "alchemy.models.encoders.Transformer", "dim": 8, "heads": 2, "inner": 16},
    "ngrams": {"type": "alchemy.models.fasttext.NGrams", "dim": 8, "buckets": 50, "ends": True, "sparse": True},
    **{kind: {"type": "alchemy.models.pretrained.Pretrained", "path": kind} for kind in KINDS},
}
HEADS: dict[str, dict[str, Any]] = {
    "none": {"type": "alchemy.models.heads.Pool"},
    "cnn": {"type": "alchemy.models.heads.CNN", "filter_sizes": [2, 3], "filter_num": 6},
    "lstm": {"type": "alchemy.models.heads.LSTM", "lstm_hidden_size": 6, "lstm_layers": 1},
    "gru": {"type": "alchemy.models.heads.GRU", "gru_hidden_size": 6, "gru_layers": 1},
    "rcnn": {"type": "alchemy.models.heads.RCNN", "hidden": 6},
    "attention": {"type": "alchemy.models.heads.Attention"},
    "dpcnn": {"type": "alchemy.models.heads.DPCNN", "filter_num": 8},
}
# the name in configs of transformers
DROPOUTS = {
    "bert": ("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "distilbert": ("dropout", "attention_dropout"),
    "xlnet": ("dropout",),
}
OF_HEADS = {"lstm": ("lstm_dropout",), "gru": ("gru_dropout",), "rcnn": ("dropout",), "dpcnn": ("dropout",)}
TASKS = ("single", "pair", "multi", "regression", "relation", "softmax", "crf")


def triples() -> Iterator[tuple[str, str, str]]:
    """All valid combinations: a tagger has no head, and spans of words are not tokens that can be tagged or marked."""
    for encoder, head, task in itertools.product(ENCODERS, HEADS, TASKS):
        by_token = task in ("relation", "softmax", "crf")
        if not (by_token and encoder == "ngrams") and not (task in ("softmax", "crf") and head != "none"):
            yield encoder, head, task


SINGLES, PAIRS = ((0,), (1,), (2,)), ((0, 1), (0, 2), (1, 2))  # places in a triple


def cover(rows: list[tuple[str, str, str]], places: Iterable[tuple[int, ...]]) -> list[tuple[str, str, str]]:
    """Return a subset of the rows that contains, at these places, all values that occur together in any row."""

    def values(row: tuple[str, str, str]) -> set[tuple[Any, ...]]:
        return {(place, *(row[i] for i in place)) for place in places}

    left, chosen = set().union(*map(values, rows)), []
    while left:
        chosen.append(max(rows, key=lambda row: len(values(row) & left)))
        left -= values(chosen[-1])
    return chosen


def cases(places: Iterable[tuple[int, ...]]) -> list[Any]:
    """Return all triples; those that are not needed to cover the values at these places are slow."""
    rows = list(triples())
    fast = cover(rows, places)
    return [pytest.param(*row, marks=() if row in fast else pytest.mark.slow, id="-".join(row)) for row in rows]


def samples(task: str) -> list[dict[str, Any]]:
    for_task = {
        "single": lambda i: {"label": "ab"[i % 2]},
        "pair": lambda i: {"pair": TEXTS[-i], "label": "abc"[i % 3]},
        "multi": lambda i: {"labels": list("abc")[: i % 4]},
        "regression": lambda i: {"label": i / 7},
        "relation": lambda i: {"label": ["Other", "r(e1,e2)"][i % 2]},
        "softmax": lambda i: {},
        "crf": lambda i: {},
    }[task]
    rows = [{"text": text, **for_task(i)} for i, text in enumerate(TEXTS)]
    for row in rows:
        tokens = row["text"].split()
        if task == "relation":
            row |= {"tokens": tokens, "e1_tokens": [0, 1], "e2_tokens": [len(tokens) - 1, len(tokens)]}
        if task in ("softmax", "crf"):
            row |= {"tokens": tokens, "tags": ["B-X" if int(word[1:]) % 5 == 0 else "O" for word in tokens]}
    return rows


def config(encoder: str, head: str, task: str, root: Path, dropout: float) -> dict[str, Any]:
    table = dict(ENCODERS[encoder])
    if encoder in KINDS:
        table["path"] = str(folder(root / "hf", encoder))
        table["options"] = dict.fromkeys(DROPOUTS.get(encoder, DROPOUTS["bert"]), dropout)
    else:
        table["dropout"] = dropout
    kind, model, more = "Classification", "TextClassifier", {}
    if task == "relation":
        kind, model = "Relation", "RelationClassifier"
    elif task in ("softmax", "crf"):
        kind, model, more = "Tagging", "Tagger", {"decoder": task}
    options: dict[str, Any] = {"kind": task} if task in ("multi", "regression") else {}
    options |= {"pair": True, "template": "$A eos $B:1"} if task == "pair" else {}
    (root / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in samples(task)))
    pipes = [
        {"type": "alchemy.pipeline.lst.SequenceWrapper", "datapipe": [str(root / "rows.jsonl")]},
        {"type": "alchemy.pipeline.itr.JsonlOpener"},
        {"type": "alchemy.pipeline.lst.ItrToLst"},
    ]
    return {
        "tag": "t",
        "seed": 5,
        "log_every": 1,
        "runner": "alchemy.runner.Trainer",
        "plugins": [{"type": "alchemy.plugins.FileLogger", "log_dir": str(root / "records")}],
        "task": {
            "type": f"alchemy.tasks.{kind}",
            "tokenizer": "alchemy.text.Words",
            **options,
            "datasets": {
                "train": {"pipes": pipes, "batch_size": 14},
                "dev": {"pipes": pipes, "batch_size": 14},
                "test": {"pipes": pipes, "batch_size": 3},
            },
        },
        "model": {
            "type": f"alchemy.models.{model}",
            "encoder": table,
            **({"head": HEADS[head] | dict.fromkeys(OF_HEADS.get(head, ()), dropout)} if kind != "Tagging" else {}),
            "dropout": dropout,
            **more,
        },
        # Adagrad updates only the rows of a sparse gradient
        "optim": {"type": "alchemy.optim.Adagrad" if encoder == "ngrams" else "alchemy.optim.AdamW", "lr": 0.01},
        "sched": {"type": "alchemy.sched.Constant", "epochs": 4, "pipes": [{"type": "tests.toy.Interrupt"}]},
        "checkpoint": {"asynchronous": False},
    }


def run(cfg: dict[str, Any], at: int = 0) -> Any:
    Interrupt.at = at
    try:
        return run_task(cfg, raise_errors=True)
    finally:
        Interrupt.at = 0


def near(one: Any, other: Any) -> bool:
    """Return whether two predictions are equal up to rounding."""
    if isinstance(one, float):
        return abs(one - other) < 1e-4
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(near(one[key], other[key]) for key in one)
    if isinstance(one, list):
        return len(one) == len(other) and all(map(near, one, other))
    return bool(one == other)


MODELS = {
    "TextClassifier": {"type": "alchemy.models.TextClassifier", "training": "classes"},
    "RelationClassifier": {"type": "alchemy.models.RelationClassifier", "training": "relation"},
    "Tagger": {"type": "alchemy.models.Tagger", "training": "tagging"},
    "Translator": {"type": "alchemy.models.Translator", "training": "translation"},
    "ImageClassifier": {"type": "alchemy.models.ImageClassifier", "training": "image"},
    "Segmenter": {"type": "alchemy.models.Segmenter", "training": "segmentation"},
}


@pytest.fixture
def cfg(table: dict[str, Any], tmp_path: Path, corpora: Path) -> dict[str, Any]:
    cfg = config_of(table["training"], tmp_path, corpora)
    assert cfg["model"]["type"] == table["type"]
    return cfg


@each("model", MODELS)
def test_gradients_reach_every_parameter_and_updates_lower_the_loss(cfg: dict[str, Any]) -> None:
    with ready(cfg) as run:
        batch, losses = next(iter(loader_of(run, "train"))), []
        for _ in range(5):
            with run.updater.micro_batch(batch):
                loss = run.task.loss(batch)
                losses.append(loss.sum.item() / float(loss.count))
                run.updater.accumulate(loss)
            assert all(param.grad is not None for param in run.model.parameters() if param.requires_grad)
            run.updater.step()
        assert losses == sorted(losses, reverse=True)


@each("model", MODELS)
def test_losses_are_sums_so_that_the_cut_of_the_data_does_not_matter(cfg: dict[str, Any]) -> None:
    def total(size: int) -> tuple[float, float]:
        split = cfg["task"]["datasets"]["train"]
        split["max_tokens" if "max_tokens" in split else "batch_size"] = size
        with ready(cfg) as run, torch.no_grad():
            run.model.eval()
            rows = [run.model.loss(run.model.forward(batch), batch) for batch in loader_of(run, "train")]
        return sum(float(loss) for loss, _ in rows), sum(float(count) for _, count in rows)

    (loss, count), (other, counted) = total(11), total(40)
    assert count == counted > 0 and loss == pytest.approx(other, rel=1e-5)


@each("model", MODELS)
def test_a_model_is_loaded_as_it_was_saved(cfg: dict[str, Any], tmp_path: Path) -> None:
    outputs, states = [], []
    for seed in (1, 2):
        with ready({**cfg, "seed": seed}) as run:
            if seed == 1:
                run.model.save(tmp_path / "weights")
            run.model.load(tmp_path / "weights")
            run.model.eval()
            batch = next(iter(loader_of(run, "dev")))
            outputs.append(run.model.forward(batch))
            states.append(run.model.state_dict())
    torch.testing.assert_close(states[1], states[0], rtol=0, atol=0)
    torch.testing.assert_close(*[{k: v for k, v in out.items() if isinstance(v, torch.Tensor)} for out in outputs])


@pytest.mark.parametrize(("encoder", "head", "task"), cases(PAIRS))
def test_it_learns_and_a_record_answers_as_the_run_did(encoder: str, head: str, task: str, tmp_path: Path) -> None:
    result = run(config(encoder, head, task, tmp_path, dropout=0.0))
    record = Path(result.record_dir)
    rows = [row["values"] for row in read_metrics(record / "metrics.jsonl")]
    losses = [values["train/loss"] for values in rows if "train/loss" in values]
    assert result.ret["loss"] < losses[0]
    document = prepare_cfg(record / "cfg.toml")
    use_local_copies(document, record)
    # other batches, so other padding; the weights come from the record
    again = run_task(derive_test(document, record / "state" / "last").document, raise_errors=True)
    assert near(again.ret["preds"], result.ret["preds"])


@pytest.mark.parametrize(("encoder", "head", "task"), cases(SINGLES))
def test_it_goes_on_as_if_it_had_never_stopped(encoder: str, head: str, task: str, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    whole = run(config(encoder, head, task, tmp_path / "one", dropout=0.3))
    cut = run(config(encoder, head, task, tmp_path / "two", dropout=0.3), at=3)
    assert cut.signal == signal.SIGINT
    alchemy.resume(cut.record_dir, raise_errors=True)
    assert compare(Path(whole.record_dir), Path(cut.record_dir)).differences == []
