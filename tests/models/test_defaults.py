"""The default model without an encoder: it learns, and is saved, resumed and loaded like any other."""

from __future__ import annotations

import random
import signal
from pathlib import Path
from typing import Any

import pytest

import alchemy
from alchemy.loop import loader_of
from alchemy.runner import run_task
from alchemy.verify.compare_records import compare
from tests.ready import ready
from tests.tasks.texts import config
from tests.toy import Interrupt


def write_questions(path: Path, count: int) -> None:
    """Questions whose class depends on a pair of words, among other words; half of them have the class `what`."""
    draw = random.Random(1)
    starts = {"what": "what is", "how": "is what", "who": "who is"}
    rows = []
    for _ in range(count):
        label = draw.choices(list(starts), [2, 1, 1])[0]
        words = [f"w{draw.randrange(40)}" for _ in range(draw.randrange(1, 8))]
        place = draw.randrange(len(words) + 1)
        rows.append(f"{label}\t{' '.join([*words[:place], starts[label], *words[place:]])}\n")
    path.write_text("".join(rows))


def defaults(root: Path, epochs: int, **optim: Any) -> dict[str, Any]:
    root.mkdir(exist_ok=True)
    cfg = config(root, "classes")
    write_questions(root / "data.txt", 200)
    write_questions(root / "dev.txt", 100)
    splits = cfg["task"]["datasets"]
    splits["dev"] = {"pipes": [{**splits["train"]["pipes"][0], "path": str(root / "dev.txt")}], "batch_size": 64}
    splits["train"] = {**splits["train"], "batch_size": 16, "shuffle": True}
    cfg["model"] = {"type": "alchemy.models.TextClassifier"}
    cfg["optim"] = optim or {"type": "alchemy.optim.Adagrad", "lr": 0.05}
    cfg["sched"] = {"type": "alchemy.sched.LineWarmup", "epochs": epochs, "num_warmup_steps": 0.1}
    cfg["sched"]["pipes"] = [{"type": "tests.toy.Interrupt"}]
    return cfg


def test_it_beats_the_most_frequent_class_and_answers_from_its_record(tmp_path: Path) -> None:
    result = run_task(defaults(tmp_path, 4), raise_errors=True)
    assert result.ret["accuracy"] > 0.9  # half of the questions have the same class
    said = alchemy.load(result.record_dir).predict(["what is w1 w2", "w1 who is w2"])
    assert [row["pred"] for row in said] == ["what", "who"]


@pytest.mark.parametrize("kind", ["AdamW", "SGD"])
def test_it_learns_with_any_optimizer(kind: str, tmp_path: Path) -> None:
    with ready(defaults(tmp_path, 1, type=f"alchemy.optim.{kind}", lr=0.01)) as run:
        batch, losses = next(iter(loader_of(run, "train"))), []
        run.model.eval()  # without dropout, each loss is below the previous one
        for _ in range(3):
            with run.updater.micro_batch(batch):
                loss = run.task.loss(batch)
                losses.append(loss.sum.item())
                run.updater.accumulate(loss)
            run.updater.step()
    assert losses == sorted(losses, reverse=True) and losses[0] > losses[-1]


def test_it_goes_on_as_if_it_had_never_stopped(tmp_path: Path) -> None:
    whole = run_task(defaults(tmp_path / "one", 2), raise_errors=True)
    Interrupt.at = 15
    try:
        cut = run_task(defaults(tmp_path / "two", 2), raise_errors=True)
    finally:
        Interrupt.at = 0
    assert cut.signal == signal.SIGINT
    alchemy.resume(cut.record_dir, raise_errors=True)
    assert compare(Path(whole.record_dir), Path(cut.record_dir)).differences == []
