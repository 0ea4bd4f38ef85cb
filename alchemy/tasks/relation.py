"""Classification of the relation between marked entities in a text."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

from alchemy.constraints import Distinct, NonNegativeInt, NotEmpty
from alchemy.data.tables import BadRow
from alchemy.errors import AlchemyError, did_you_mean
from alchemy.metrics.scores import ClassScores
from alchemy.pipeline import DataPipeline, processors
from alchemy.pipeline.encode import EncodeWords
from alchemy.pipeline.label_ids import LabelIds
from alchemy.pipeline.output_rows import rows_of
from alchemy.pipeline.processors.relation import Marks
from alchemy.task import AlchemyTask
from alchemy.tasks.data_checks import Samples, check_logits
from alchemy.tasks.supervised_task import batch_fields
from alchemy.tasks.text_task import TextTask, texts_of


@AlchemyTask.register()
class Relation(TextTask):
    """Classifies relations in samples from alchemy.pipeline.processors.Relation.

    `marks` are the names of the marked entities; the model gets a mask for each, such as `e1_mask` and `e2_mask`.
    `other` is the label for no relation, which the official `f1` excludes. `blank` encodes words with a leading space,
    as RoBERTa requires.
    """

    packages = ("sklearn",)
    main_score = "f1"
    produces = ("loss", "f1", "accuracy", "macro_f1", "weighted_f1", "micro_f1", "mcc")
    processor: ClassVar[str] = "alchemy.pipeline.processors.Relation"

    def __init__(
        self,
        *,
        tokenizer: Any,
        learn: dict[str, Any] = {},
        labels: list[str] | str | None = None,
        marks: Annotated[list[str], NotEmpty(), Distinct()] = ["e1", "e2"],
        other: str = "Other",
        template: str = "",
        max_length: NonNegativeInt = 0,
        long: Literal["refuse", "only_first", "windows"] = "refuse",
        overlap: NonNegativeInt = 32,
        blank: bool = False,
        cache: bool = False,
        overwrite_cache: bool = False,
    ) -> None:
        self.marks, self.other, self.blank = marks, other, blank
        self.needs = ("tokens", *(f"{mark}_tokens" for mark in marks))
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
        if other and other not in self.labels:
            hint = did_you_mean(other, self.labels) or 'set other = "" if every label is a relation'
            raise AlchemyError(f"other = {other!r} is not one of the labels", hint=hint)

    def texts(self, sample: Mapping[str, Any]) -> Iterable[str]:
        return (" ".join(sample["tokens"]),)

    def names(self, sample: Mapping[str, Any]) -> Iterable[str]:
        return (sample["label"],) if "label" in sample else ()

    def question(self, item: object) -> dict[str, Any]:
        """Convert a text such as `<e1> rain </e1> made <e2> mud </e2>`, or a dict, to a sample."""
        if isinstance(item, Mapping) and "tokens" in item:
            names = ("text", "tokens", *self.marks, *(f"{mark}_tokens" for mark in self.marks))
            absent = [name for name in names if name not in item]
            if absent:
                raise AlchemyError(f"missing field {absent[0]!r}", hint=f"a sample needs {', '.join(names)}")
            return {name: item[name] for name in names}
        try:
            return self._reader.read(texts_of(item, "text")["text"])
        except BadRow as error:
            hint = "mark the entities: " + " and ".join(f"<{mark}> .. </{mark}>" for mark in self.marks)
            raise AlchemyError(f"invalid text: {error}", hint=hint) from error

    @cached_property
    def _reader(self) -> Marks:
        """The marker parser, with the `indicators` and `tokens` settings of the training processor."""
        splits = (self.cfg.get("datasets") or {}).values()
        pipes = [pipe for split in splits for pipe in split.get("pipes") or ()]
        table: Mapping[str, Any] = next((pipe for pipe in pipes if _reads_marks(str(pipe.get("type", "")))), {})
        options = {key: table[key] for key in ("indicators", "tokens") if key in table}
        return Marks(self.marks, **options)

    def encoded(self, source: Samples) -> Samples:
        return EncodeWords(
            LabelIds(source, labels=self.labels),
            tokenizer=self.tokenizer,
            segments="segments",
            **self.encode_options(),
            blank=self.blank,
            marks={f"{name}_tokens": f"{name}_mask" for name in self.marks},
        )

    def check_outputs(self, outputs: Any) -> None:
        check_logits(self, outputs)

    def answers(self, outputs: Mapping[str, Any], batch: Mapping[str, Any]) -> list[dict[str, Any]]:
        best, places = outputs["logits"].float().cpu().softmax(-1).max(-1)
        predicted = {"pred": [self.labels[place] for place in places.tolist()], "prob": best.tolist()}
        return rows_of({**batch_fields(batch, "text", *self.marks, self.target), **predicted}, "Relation")

    def report_options(self) -> dict[str, str]:
        return {"other": self.other}

    def scores(self, answers: list[dict[str, Any]]) -> dict[str, Any]:
        gold, predicted = [row["label"] for row in answers], [row["pred"] for row in answers]
        return ClassScores(gold, predicted, self.labels).relation_scores(self.other)


def _reads_marks(name: str) -> bool:
    """Return whether a pipe is the Relation processor or a subclass of it."""
    return issubclass(DataPipeline.resolve_registered_module(name), processors.Relation)
