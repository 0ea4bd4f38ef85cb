"""Evaluate checkpoints, predict with the best one, and write the results."""

import csv
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from loguru import logger

from alchemy import AlchemyRunner, evaluate
from alchemy.files import write_atomic
from alchemy.loop import infer
from alchemy.metrics.scalars import numbers_in
from alchemy.runner import prepare
from src.checkpoints import read

SCORES, PREDICTED = "eval_results.txt", "predicted.csv"
NAMES = {"accuracy": "acc", "macro_f1": "f1"}  # their traditional names in eval_results.txt


@AlchemyRunner.register()
class Score(AlchemyRunner):
    """Evaluate each of the `checkpoints` on the split `dev`, and predict `test` with the best one.

    If there are several, the scores of each are written to its folder, and those of the last one also to `output_dir`.
    """

    def __init__(
        self,
        cfg: Any,
        device_info: dict[str, Any] | None = None,
        *,
        checkpoints: list[str],
        output_dir: str,
        **settings: Any,
    ) -> None:
        self.checkpoints, self.output_dir = [Path(name) for name in checkpoints], Path(output_dir)
        super().__init__(cfg, device_info, **settings)

    def run(self) -> dict[str, Any]:
        context, folders = self.context, self.checkpoints
        prepare(context)
        splits = context.table("task")["datasets"]
        with self._looping():
            found = {folder: self._score(folder) for folder in folders} if "dev" in splits else {}
            best = max(found, key=lambda folder: goodness(found[folder])) if found else folders[-1]
            self._write_scores(found)
            if "test" in splits:
                self._predict(best)
        return found.get(best, {})

    def _load(self, folder: Path) -> None:
        context = self.context
        read(folder, context.model.module, context.task.tokenizer, context.table("model")["encoder"]["kind"])

    def _score(self, folder: Path) -> dict[str, float]:
        self._load(folder)
        scores = results(evaluate("dev"))
        logger.info("{}: {}", folder.name, ", ".join(f"{name} {value:.4f}" for name, value in scores.items()))
        return scores

    def _write_scores(self, found: Mapping[Path, Mapping[str, float]]) -> None:
        if not found or not self.context.group.is_main:
            return
        for folder in [*(found if len(found) > 1 else ()), self.output_dir]:
            scores = found.get(folder, list(found.values())[-1])
            write_atomic(folder / SCORES, "".join(f"{name} = {scores[name]}\n" for name in sorted(scores)))

    def _predict(self, folder: Path) -> None:
        context = self.context
        self._load(folder)
        rows = [row for _, answers in infer(context, "test") for row in answers]
        if context.group.is_main:
            output = self.output_dir / PREDICTED
            write_atomic(output, table(rows, context.task.labels))
            logger.info("{}: wrote {} predictions to {}", folder.name, len(rows), output)


def results(scores: Mapping[str, Any]) -> dict[str, float]:
    """Return the metrics of an evaluation under their names in eval_results.txt."""
    found = {NAMES.get(name, name): value for name, value in numbers_in(scores).items()}
    return found | ({"acc_and_f1": (found["acc"] + found["f1"]) / 2} if "acc" in found else {})


def goodness(scores: Mapping[str, float]) -> float:
    """Return a score to maximize: the accuracy, or the negative error of a regression."""
    return scores["acc"] if "acc" in scores else -scores["mse"]


def table(rows: list[dict[str, Any]], labels: list[str]) -> str:
    """Return predictions as CSV, in data order: index and name of the class, or a number.

    >>> table([{"text": "..", "pred": "b", "prob": 0.5}], ["a", "b"])
    'pred,label,prob\\n1,b,0.5\\n'
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["pred", "label", "prob"] if labels else ["pred"])
    for row in rows:
        said = row["pred"]
        writer.writerow([labels.index(said), said, row["prob"]] if labels else [said])
    return text.getvalue()
