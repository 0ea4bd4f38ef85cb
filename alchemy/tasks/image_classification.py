"""Image classification: one label per image."""

# B batch, K classes

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from alchemy.constraints import NonNegativeInt, PositiveInt
from alchemy.errors import AlchemyError
from alchemy.metrics.scores import ClassScores
from alchemy.pipeline.label_ids import LabelIds
from alchemy.pipeline.output_rows import rows_of
from alchemy.task import AlchemyTask
from alchemy.tasks.data_checks import Samples, check_logits, unknown_label
from alchemy.tasks.image_task import ImageTask, Mode, labels_in, path_of
from alchemy.tasks.supervised_task import batch_fields


@AlchemyTask.register()
class ImageClassification(ImageTask):
    """Predicts one label per image for samples with an `image` and a `label` or `label_id`.

    `labels` is a list or a file; it defaults to the labels that the processor of the training data lists, such as the
    names of its folders, or else to all labels in the training data, sorted. `top_k` is the number of labels that a
    prediction lists and that `top_k_accuracy` considers. `probabilities` adds the probabilities of all labels to each
    prediction. The other options are those of all image tasks.
    """

    processor: ClassVar[str] = "alchemy.pipeline.processors.ImageFolder"
    packages = ("sklearn", "PIL")
    main_score = "accuracy"
    produces = ("loss", "accuracy", "top_k_accuracy", "macro_f1", "weighted_f1", "micro_f1", "mcc")

    def __init__(
        self,
        *,
        labels: list[str] | str | None = None,
        mode: Mode = "RGB",
        size: tuple[PositiveInt, PositiveInt] | None = None,
        transforms: list[dict[str, Any]] = [],
        augment: list[dict[str, Any]] = [],
        mean: list[float] = [0.5],
        std: list[float] = [0.5],
        top_k: PositiveInt = 5,
        probabilities: bool = False,
        hardest: NonNegativeInt = 24,
    ) -> None:
        super().__init__(
            mode=mode, size=size, transforms=transforms, augment=augment, mean=mean, std=std, hardest=hardest
        )
        self.top_k, self.probabilities = top_k, probabilities
        self.labels: list[str] = self._find_labels(labels)
        if len(self.labels) == 1:
            hint = "put the images of each label in a folder of its own; a classifier needs at least two labels"
            raise AlchemyError(f"only one label, {self.labels[0]!r}: nothing to learn", section="task", hint=hint)

    # -- labels
    def is_labeled(self, sample: Mapping[str, Any]) -> bool:
        return "label" in sample or "label_id" in sample

    def names(self, sample: Mapping[str, Any]) -> Iterable[str]:
        if "label" in sample:
            return (str(sample["label"]),)
        return (str(sample["label_id"]),) if "label_id" in sample else ()

    def _processor_labels(self, source: Samples) -> list[str]:
        return labels_in(source)

    def _collect_labels(self) -> list[str]:
        found = super()._collect_labels()
        if all(name.isdecimal() for name in found):  # the ids of classes without names
            return [str(number) for number in range(max(map(int, found)) + 1)]
        return found

    def check_source(self, source: Samples, split: str) -> None:
        strange = [name for name in labels_in(source) if name not in self.labels]
        if strange:
            raise unknown_label(self, strange[0], path_of(source), split)

    def check_sample(self, sample: Mapping[str, Any]) -> None:
        number = sample.get("label_id", 0)
        if not 0 <= number < len(self.labels):
            text = f"the label_id is {number}, but there are {len(self.labels)} labels"
            raise AlchemyError(text, hint="list one label for each class")

    def encode(self, source: Samples, transforms: list[Any]) -> Samples:
        if labels_in(source) != self.labels:  # otherwise the ids of the processor are right
            source = LabelIds(source, labels=self.labels)
        return super().encode(source, transforms)

    # -- steps
    def check_outputs(self, outputs: Any) -> None:
        check_logits(self, outputs)

    def answers(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        logits_BK = outputs["logits"].float().cpu()
        probs_BK = logits_BK.softmax(-1)
        best_B, places_B = probs_BK.max(-1)
        columns: dict[str, list[Any]] = batch_fields(batch, "file")
        gold_B = batch["label_id"].cpu() if "label_id" in batch else None
        if gold_B is not None:
            columns["label"] = [self.labels[number] for number in gold_B.tolist()]
        columns |= {"pred": [self.labels[place] for place in places_B.tolist()], "prob": best_B.tolist()}
        if gold_B is not None:
            gold_probs_B = probs_BK.gather(1, gold_B[:, None])[:, 0]
            columns["loss"] = (-gold_probs_B.clamp_min(1e-30).log()).tolist()
            columns["rank"] = rank_of(logits_BK, gold_B).tolist()
        columns["top"] = self._name_top(probs_BK)
        if self.probabilities:
            columns["probs"] = [dict(zip(self.labels, row)) for row in probs_BK.tolist()]
        rows = rows_of(columns, "ImageClassification")
        self._keep_hardest(rows, batch)
        return rows

    def _name_top(self, probs_BK: Tensor) -> list[dict[str, float]]:
        best, places = probs_BK.topk(min(self.top_k, len(self.labels)))
        rows = zip(places.tolist(), best.tolist())
        return [{self.labels[place]: value for place, value in zip(*row)} for row in rows]

    def _keep_hardest(self, rows: list[dict[str, Any]], batch: Mapping[str, Any]) -> None:
        for place, row in enumerate(rows):
            if "loss" in row and self._hardest.fits(row["loss"]):
                picture = self.restore_image(batch["image"][place])
                caption = f"{row['label']}: {row['pred']} {row['prob']:.2f}"
                self._hardest.add(row["loss"], self.sample_index(place), picture, caption)

    def scores(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        found = ClassScores([row["label"] for row in answers], [row["pred"] for row in answers], self.labels).scores()
        if self.top_k < len(self.labels):  # otherwise it is always 1
            found["top_k_accuracy"] = sum(row["rank"] < self.top_k for row in answers) / len(answers)
        return found


def rank_of(logits_BK: Tensor, gold_B: Tensor) -> Tensor:
    """Return how many classes rank before the gold class; of equal logits, the first class ranks first.

    >>> rank_of(torch.tensor([[3.0, 1.0, 2.0], [1.0, 1.0, 1.0]]), torch.tensor([2, 1])).tolist()
    [1, 1]
    """
    own_B1 = logits_BK.gather(1, gold_B[:, None])
    before_BK = torch.arange(logits_BK.shape[1]) < gold_B[:, None]
    ahead_BK = (logits_BK > own_B1) | ((logits_BK == own_B1) & before_BK) | own_B1.isnan() | logits_BK.isnan()
    return ahead_BK.sum(1)
