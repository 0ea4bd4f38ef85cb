"""Text classification, multi-label classification and regression, for texts or text pairs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal

import torch

from alchemy.constraints import Fraction, NonNegativeInt
from alchemy.data.messages import in_short, shorten
from alchemy.data.tables import BadRow
from alchemy.errors import AlchemyError
from alchemy.metrics.scores import ClassScores, LabelScores, number_scores
from alchemy.pipeline.encode import Encode
from alchemy.pipeline.itr import field_of
from alchemy.pipeline.label_ids import LabelIds
from alchemy.pipeline.output_rows import rows_of
from alchemy.pipeline.processors.labels import target_of
from alchemy.task import AlchemyTask
from alchemy.tasks.data_checks import Samples, check_logits
from alchemy.tasks.supervised_task import batch_fields
from alchemy.tasks.text_task import TextTask, texts_of

TARGETS = {"single": "label", "multi": "labels", "regression": "label"}
MAIN_SCORES = {"single": "accuracy", "multi": "micro_f1", "regression": "mse"}


@AlchemyTask.register()
class Classification(TextTask):
    """Predicts one label per text, several labels (`kind = "multi"`), or a number (`kind = "regression"`).

    Samples have a `text` field, plus `pair` for text pairs, as in alchemy.pipeline.processors.TextClassification.
    `threshold` is the minimum probability of a predicted label in multi-label tasks. `probabilities` adds the
    probabilities of all labels to each prediction. `left` pads on the left and `segment` is the segment id of padding:
    XLNet needs `left = true` and `segment = 4`.
    """

    processor: ClassVar[str] = "alchemy.pipeline.processors.TextClassification"
    needs = ("text",)
    batches: ClassVar[dict[str, int]] = {"max_sentences": 64}
    packages = ("sklearn",)
    produces = {
        "": ("loss",),
        "kind=single": ("accuracy", "macro_f1", "weighted_f1", "micro_f1", "mcc"),
        "kind=multi": ("accuracy", "micro_f1", "macro_f1", "weighted_f1", "samples_f1"),
        "kind=regression": ("mse", "mae", "pearson", "spearman"),
    }

    def __init__(
        self,
        *,
        tokenizer: Any,
        learn: dict[str, Any] = {},
        labels: list[str] | str | None = None,
        kind: Literal["single", "multi", "regression"] = "single",
        pair: bool = False,
        template: str = "",
        max_length: NonNegativeInt = 0,
        long: Literal["refuse", "longest_first", "only_first", "only_second", "windows"] = "refuse",
        overlap: NonNegativeInt = 32,
        left: bool = False,
        segment: NonNegativeInt = 0,
        threshold: Fraction = 0.5,
        probabilities: bool = False,
        cache: bool = False,
        overwrite_cache: bool = False,
    ) -> None:
        self.kind, self.pair, self.left, self.segment = kind, pair, left, segment
        self.threshold, self.probabilities = threshold, probabilities
        self.target = TARGETS[kind]  # type: ignore[misc]
        self.main_score, self.main_mode = MAIN_SCORES[kind], "min" if kind == "regression" else "max"
        super().__init__(
            tokenizer=tokenizer,
            learn=learn,
            labels=labels,
            template=template,
            max_length=max_length,
            long=long,
            overlap=overlap,
            cache=cache,
            overwrite_cache=overwrite_cache,
        )

    def texts(self, sample: Mapping[str, Any]) -> Iterable[str]:
        return [field_of(sample, name, self) for name in (("text", "pair") if self.pair else ("text",))]

    def check(self, sample: Mapping[str, Any]) -> None:
        super().check(sample)
        if self.pair != ("pair" in sample):
            text = f"pair = {str(self.pair).lower()}, but a sample has {in_short(sample)}"
            hint = 'for text pairs, set pair = true in [task] and pair = "COLUMN" in the processor; otherwise, neither'
            raise AlchemyError(text, hint=hint)
        if self.kind == "regression" and "label" in sample and isinstance(sample["label"], float | int | None):
            try:
                target_of(sample["label"])
            except BadRow as error:
                raise AlchemyError(str(error), hint="omit the field for unlabeled samples") from error
        found = _kinds_of(sample)
        if found and self.kind not in found:
            text = f"the task has kind = {self.kind!r}, but a sample has kind = {found[0]!r}"
            value = shorten(sample[TARGETS[found[0]]])
            hint = f'set kind = "{found[0]}" in [task], or kind = "{self.kind}" in the processor'
            raise AlchemyError(f"{text}: its {TARGETS[found[0]]} is {value}", hint=hint)

    def names(self, sample: Mapping[str, Any]) -> Iterable[str]:
        found = () if self.kind == "regression" else sample.get(self.target, ())
        return found if isinstance(found, list | tuple) else (found,)

    def question(self, item: object) -> dict[str, Any]:
        """Convert a text, a `(text, pair)` tuple for pair tasks, or a dict with these fields to a sample."""
        return dict(texts_of(item, *(("text", "pair") if self.pair else ("text",))))

    def _find_labels(self, labels_option: list[str] | str | None) -> list[str]:
        labels = [] if self.kind == "regression" else super()._find_labels(labels_option)
        if labels_option is None and self.kind == "single" and len(labels) == 1:
            hint = "is it the right column? a classifier needs at least two labels"
            raise AlchemyError(f"only one label, {labels[0]!r}: nothing to learn", section="task", hint=hint)
        return labels

    def encoded(self, source: Samples) -> Samples:
        if self.kind != "regression":
            to, hot = ("label_hot", True) if self.kind == "multi" else ("label_id", False)
            source = LabelIds(source, labels=self.labels, field=self.target, to=to, hot=hot)
        return Encode(
            source,
            tokenizer=self.tokenizer,
            pair="pair" if self.pair else "",
            segments="segments",
            **self.encode_options(),
        )

    def collate_options(self) -> dict[str, Any]:
        ids = {"mask": "mask", "value": self.tokenizer.pad or 0, "left": self.left}
        return {"fields": {"input_ids": ids, "segments": {"value": self.segment, "left": self.left}}}

    def check_outputs(self, outputs: Any) -> None:
        check_logits(self, outputs)

    def answers(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        predicted = self._predict(outputs["logits"].float().cpu())
        return rows_of({**batch_fields(batch, "text", "pair", self.target), **predicted}, "Classification")

    def _predict(self, logits: torch.Tensor) -> dict[str, list[Any]]:
        if self.kind == "regression":
            return {"pred": logits.tolist()}
        probs = logits.softmax(-1) if self.kind == "single" else logits.sigmoid()
        if self.kind == "single":
            best, places = probs.max(-1)
            predicted = {"pred": [self.labels[place] for place in places.tolist()], "prob": best.tolist()}
        else:
            given = (probs >= self.threshold).tolist()
            predicted = {"pred": [[label for label, yes in zip(self.labels, row) if yes] for row in given]}
        if self.probabilities or self.kind == "multi":
            predicted["probs"] = [dict(zip(self.labels, row)) for row in probs.tolist()]
        return predicted

    def scores(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        gold, predicted = [row[self.target] for row in answers], [row["pred"] for row in answers]
        if self.kind == "regression":
            return number_scores(gold, predicted)
        return (ClassScores if self.kind == "single" else LabelScores)(gold, predicted, self.labels).scores()


def _kinds_of(sample: Mapping[str, Any]) -> list[str]:
    """Return the task kinds that the label of a sample is valid for, or an empty list for an unlabeled sample.

    >>> _kinds_of({"label": "good"}), _kinds_of({"label": 0.5}), _kinds_of({"label": 1}), _kinds_of({"labels": []})
    (['single'], ['regression'], ['single', 'regression'], ['multi'])
    """
    label = sample.get("label")
    fits = {
        "single": label is not None and not isinstance(label, float),
        "multi": "labels" in sample,
        "regression": label is not None and not isinstance(label, str | list | tuple),
    }
    return [kind for kind, does in fits.items() if does]
