"""The contract of tasks: load data, make steps, compute metrics, and predict from a record."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import alchemy
from alchemy.loop import loader_of
from alchemy.runner import run_task
from tests.contracts.parts import each
from tests.contracts.trainings import config_of
from tests.ready import ready

# `training` is a parameter of `config_of`
TASKS: dict[str, dict[str, Any]] = {
    "DefaultTask": {
        "type": "alchemy.task.DefaultTask",
        "training": "points",
        "questions": [{"x": torch.ones(1)}, {"x": torch.zeros(1)}],
        "answer": "logits",
    },
    "Classification": {
        "type": "alchemy.tasks.Classification",
        "training": "classes",
        "questions": ["fine", "a sad fog"],
    },
    "Relation": {
        "type": "alchemy.tasks.Relation",
        "training": "relation",
        "questions": ["the <e1> rain </e1> made <e2> mud </e2>", "<e1> mud </e1> <e2> dog </e2>"],
    },
    "Tagging": {"type": "alchemy.tasks.Tagging", "training": "tagging", "questions": ["小明在北京", "我去"]},
    "ImageClassification": {
        "type": "alchemy.tasks.ImageClassification",
        "training": "image",
        "questions": [np.zeros((12, 12, 3), np.uint8), np.zeros((9, 14), np.uint8)],
    },
    "Segmentation": {
        "type": "alchemy.tasks.Segmentation",
        "training": "segmentation",
        "questions": [np.zeros((16, 16), np.uint8), np.zeros((9, 14), np.uint8)],
    },
    "Translation": {
        "type": "alchemy.tasks.Translation",
        "training": "translation",
        "questions": ["a dog", "a cat runs"],
    },
}


@pytest.fixture
def cfg(table: dict[str, Any], tmp_path: Path, corpora: Path) -> dict[str, Any]:
    cfg = config_of(table["training"], tmp_path, corpora)
    assert cfg["task"]["type"] == table["type"]
    cfg["sched"]["epochs"] = 1
    return cfg


@each("task", TASKS)
def test_a_task_loads_its_data_and_makes_steps(cfg: dict[str, Any]) -> None:
    with ready(cfg) as run:
        assert list(run.task.splits) == list(cfg["task"]["datasets"])
        batch = next(iter(loader_of(run, "train")))
        text, outputs = run.task.step(batch)
        assert isinstance(text, str) and math.isfinite(outputs["loss"])
        run.updater.step()
        assert run.updater.updates == 1
        run.model.eval()
        run.task.begin_eval("dev")
        text, _ = run.task.eval_step(batch)
        assert isinstance(text, str) and run.updater.updates == 1


@each("task", TASKS)
def test_a_task_scores_with_numbers_and_its_record_answers(table: dict[str, Any], cfg: dict[str, Any]) -> None:
    result = run_task(cfg, raise_errors=True)
    told = ("preds", "bleu_tokenizer", "bleu_signature")
    scores = {name: value for name, value in result.ret.items() if name not in told}
    assert "loss" in scores and all(math.isfinite(value) for value in scores.values())
    with alchemy.load(result.record_dir, batch_size=1) as model:
        answers = model.predict(table["questions"])
        assert not model.module.training
    assert len(answers) == len(table["questions"])
    assert all(table.get("answer", "pred") in answer for answer in answers)
