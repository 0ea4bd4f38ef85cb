"""The relation between two things that are marked in a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from alchemy.pipeline.encode import EncodeWords
from alchemy.pipeline.targets import LabelIds
from alchemy.task import AlchemyTask
from alchemy.tasks.scores import relation_scores
from alchemy.tasks.text import TextTask, cells


@AlchemyTask.register()
class Relation(TextTask):
    """One of several relations, for samples as alchemy.pipeline.processors.Relation gives them.

    `marks` are the names of what is marked: the model is given `e1_mask` and `e2_mask`. `other` is the label that
    stands for no relation, which the official `f1` leaves out. `blank` encodes words behind a blank, as RoBERTa wants.
    """

    def __init__(
        self,
        *,
        tokenizer: Any,
        learn: dict[str, Any] = {},
        labels: list[str] | str | None = None,
        marks: list[str] = ["e1", "e2"],
        other: str = "Other",
        template: str = "",
        max_length: int = 0,
        long: Literal["refuse", "only_first"] = "refuse",
        blank: bool = False,
    ) -> None:
        self.marks, self.other, self.template = marks, other, template
        self.max_length, self.long, self.blank = max_length, long, blank
        super().__init__(tokenizer=tokenizer, learn=learn, labels=labels)

    def texts(self, sample: Mapping[str, Any]) -> Iterable[str]:
        return (" ".join(sample["tokens"]),)

    def names(self, sample: Mapping[str, Any]) -> Iterable[str]:
        return (sample["label"],) if "label" in sample else ()

    def encoded(self, source: Any) -> Any:
        return EncodeWords(
            LabelIds(source, labels=self.labels),
            tokenizer=self.tokenizer,
            template=self.template,
            max_length=self.max_length,
            long=self.long,
            blank=self.blank,
            marks={f"{name}_tokens": f"{name}_mask" for name in self.marks},
        )

    def answers(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        best, places = outputs["logits"].float().cpu().softmax(-1).max(-1)
        columns = {name: cells(batch, name, len(best)) for name in ("text", *self.marks, self.target)}
        columns |= {"pred": [self.labels[place] for place in places.tolist()], "prob": best.tolist()}
        kept = {name: values for name, values in columns.items() if values}
        return [dict(zip(kept, row)) for row in zip(*kept.values())]

    def scores(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        gold, said = [row["label"] for row in answers], [row["pred"] for row in answers]
        return relation_scores(gold, said, self.labels, self.other)
